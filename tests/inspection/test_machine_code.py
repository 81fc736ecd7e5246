"""Whether ranges in finished machine code hold what they name: read back from the patched cubin."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

import ikp
from ikp.cli.main import cli
from ikp.core.segment import Selection
from ikp.core.trace import of_class
from ikp.errors import InspectError
from ikp.inspection import _holding as holding
from ikp.inspection.report import CodeRange, KernelReport, Report
from ikp.inspection.verified import verified
from ikp.probes import kept_code
from ikp.probes.kept_code import KEPT
from ikp.probes.made_patch import Patch
from ikp.probes.patch import patch
from ikp.probes.points.source_ranges import NamedRange, Unpaired, written
from ikp.unedited.plan import plan
from tests.edit.warps import block
from tests.probes.test_written import compiled as named_matmul
from tests.sass import kernels
from tests.sass.compiled import code, machine

pytest.importorskip("triton")
pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

KERNELS = ("matmul", "matmul TMA", "attention", "rms_norm", "gathered")


@cache
def patched(name: str, *, lines: bool = False) -> Patch:
    """Return a kernel with records at every place, or at the ranges of all its lines."""
    made = code(name).compiled
    numbers = {
        line.number
        for each in machine(name).flow.code.instructions
        for line in each.lines
        if line.file == kernels.__file__
    }
    chosen = plan(lines=[f"kernels.py:{n}" for n in sorted(numbers)], level="machine").lines
    more = {"lines": chosen, "detail": "kernel"} if lines else {"detail": "ops"}
    return patch(made.asm["cubin"], made.name, ptx=made.asm["ptx"], **more)


def kept(made: Patch, name: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    return Path(kept_code.keep(made, code(name).compiled.name, code(name).compiled.asm["ptx"]))


@pytest.fixture
def inspected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return what inspects a patched kernel as it is kept."""

    def inspect(made: Patch, name: str) -> KernelReport:
        (kernel,) = ikp.inspect(kept(made, name, monkeypatch, tmp_path))
        return kernel

    return inspect


def test_blocks_that_do_not_record_are_not_read(inspected) -> None:
    """Their code is the kernel's own, once more; what is said of the other is said as ever."""
    made = code("matmul").compiled
    shown = []
    for blocks in (None, Selection(block_step=7)):
        options = {"detail": "ops", "ptx": made.asm["ptx"], "blocks": blocks}
        kernel = inspected(patch(made.asm["cubin"], made.name, **options), "matmul")
        ranges = [
            (each.name, [(copy.named, [i.text for i in copy.instructions if "L_x" not in i.text])])
            for each in kernel.ranges
            for copy in each.copies
        ]
        assert not kernel.warnings and not kernel.problems
        shown.append((ranges, sum(each.op == "HGMMA" for each in kernel.instructions)))
    assert shown[0] == shown[1]


def judged(kernel: KernelReport) -> list[tuple[CodeRange, int]]:
    return [(r, c.named) for r in kernel.ranges for c in r.copies if c.named is not None]


@pytest.mark.parametrize("lines", [False, True], ids=["ops", "lines"])
def test_ranges_hold_what_they_name(inspected, lines: bool) -> None:
    """Of all automatic ranges, at least 99 in 100; what stands in docs/inspecting.md."""
    told, short = Counter[str](), []
    for name in KERNELS:
        made = patched(name, lines=lines)
        kernel = inspected(made, name)
        told["ranges"] += len(judged(kernel))
        short += [str(warning) for warning in kernel.warnings]
        found = {each.name for each in kernel.ranges}
        assert {*made.names[1:]} <= found, "ranges that the patched code doesn't show"
        assert not kernel.problems
    assert told["ranges"] > 100
    assert len(short) <= told["ranges"] / 100, short


def test_ranges_that_the_source_names_hold_what_stands_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    made = named_matmul().compiled
    cubin, ptx = made.asm["cubin"], made.asm["ptx"]
    marked = patch(cubin, made.name, detail="kernel", ptx=ptx, ranges=True)
    (kernel,) = ikp.inspect(kept_code.keep(marked, made.name, ptx))
    assert not kernel.warnings and not kernel.problems
    assert {each.name.partition(":")[0] for each in kernel.ranges} == {"load", "dot", "store"}
    assert all(copy.named for each in kernel.ranges for copy in each.copies)
    monkeypatch.setattr(holding, "written", lambda file: _exchanged(written(file)))
    (kernel,) = ikp.inspect(kept_code.keep(marked, made.name, ptx))
    assert {str(each).partition('" ')[0] for each in kernel.warnings} >= {
        '"dot: wait',
        '"store',
    }


def _exchanged(found: tuple[NamedRange | Unpaired, ...]) -> tuple[NamedRange | Unpaired, ...]:
    """Say of a source that what is its store is its dot, and the other way round."""
    other = {"dot": "store", "store": "dot"}
    return tuple(each._replace(name=other.get(each.name, each.name)) for each in found)


def test_what_is_between_its_clock_reads_is_counted_by_kind_and_line(inspected) -> None:
    kernel = inspected(patched("matmul"), "matmul")
    (product,) = (r for r in kernel.ranges if r.name.startswith("wgmma x4"))
    (copy,) = product.copies
    assert copy.named == 4 < len(copy.instructions)
    assert [i.op for i in copy.instructions].count("HGMMA") == 4
    loop = next(r for r in kernel.ranges if r.name.startswith("loop"))
    assert loop.copies[0].named is None


def test_a_wait_for_loads_is_its_second_clock_read(inspected) -> None:
    kernel = inspected(patched("rms_norm"), "rms_norm")
    waits = [r for r in kernel.ranges if r.name.startswith("wait for ")]
    assert waits and all(not c.instructions and c.named for r in waits for c in r.copies)


def test_a_wait_for_a_flag_holds_the_load_that_asks_for_it(inspected) -> None:
    kernel = inspected(patched("flagged"), "flagged")
    waits = {r.name.partition(" @")[0]: r for r in kernel.ranges if "wait" in r.name}
    assert {*waits} == {"flag wait", "wait for values"} and not kernel.warnings
    asked = [copy.named for copy in waits["flag wait"].copies]
    assert asked and set(asked) == {1}


def test_a_kernel_that_is_its_only_range_is_shown(inspected) -> None:
    made = code("rms_norm").compiled
    kernel = inspected(patch(made.asm["cubin"], made.name, detail="kernel"), "rms_norm")
    assert kernel.name == "rms_norm" and not (kernel.ranges or kernel.warnings or kernel.problems)
    assert "0 ranges in" in str(Report((kernel,)))


def test_none_of_the_records_own_instructions_counts_as_the_kernels(inspected) -> None:
    plain = len(machine("matmul").flow.code.instructions)
    kernel = inspected(patched("matmul"), "matmul")
    loop = next(r for r in kernel.ranges if r.name.startswith("loop"))
    assert len(loop.copies[0].instructions) < plain
    ops = {i.address for r in kernel.ranges for c in r.copies for i in c.instructions}
    ours = [range(*span) for span in patched("matmul").ours]
    assert ours and not any(address in span for address in ops for span in ours)


def test_a_range_that_does_not_hold_what_it_names_is_told(inspected) -> None:
    """Names that stand for others' ids: the cubin is the same, what is said of it is not."""
    made = patched("matmul")
    ids = {name: name.replace("wgmma x4", "wgmma x5") for name in made.names}
    from ikp.core.regions import region_id
    from ikp.inspection import _images as ptx_names

    wrong = {region_id(name): ids[name] for name in made.names}
    said = ptx_names.PtxMarks(wrong, {}, len(wrong), made.ours, named_by_code=True)
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(ptx_names, "read_marks", lambda _: said)
        (warning,) = inspected(made, "matmul").warnings
    assert "lacks 1 of 5" in str(warning)


def test_a_trace_says_where_its_code_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kept(patched("matmul"), "matmul", monkeypatch, tmp_path)
    plain = of_class(ikp.Trace, block([]))
    recorded = replace(plain, provenance={f"{KEPT}matmul": str(path)})
    (kernel,) = ikp.inspect(recorded)
    assert kernel.name == "matmul" and judged(kernel)
    recorded.save(tmp_path / "x.pftrace")
    shown = CliRunner().invoke(cli, ["inspect", str(tmp_path / "x.pftrace"), "--format", "json"])
    assert json.loads(shown.stdout)["kernels"][0]["name"] == "matmul"
    path.unlink()
    with pytest.raises(InspectError, match="is not there"):
        ikp.inspect(recorded)
    with pytest.raises(InspectError, match="names no machine code"):
        ikp.inspect(plain)


@pytest.mark.parametrize(
    ("clock", "plan", "words"),
    [
        ("cycles", "", "compiled with their records"),
        ("cycles", "level=machine detail=ops", "has been taken out of it"),
        ("host", "level=source detail=ops", "interpreter, which makes none"),
    ],
)
def test_a_trace_without_machine_code_is_told_why(clock: str, plan: str, words: str) -> None:
    plain = of_class(ikp.Trace, block([]))
    launches = [replace(each, clock=replace(each.clock, kind=clock)) for each in plain.launches]
    known = {"marks in matmul": plan} if plan else {}
    trace = replace(plain, launches=tuple(launches), provenance=known)
    for refused in (ikp.inspect, verified):
        with pytest.raises(InspectError, match=words):
            refused(trace)


def test_it_is_found_in_tritons_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(patched("matmul"), "matmul", monkeypatch, tmp_path)
    shown = CliRunner().invoke(cli, ["inspect", "--kernel", "matmul"]).stdout
    assert "wgmma x4 @kernels.py" in shown and "as named" in shown


def test_a_cache_that_can_not_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file"))
    assert kept_code.keep(patched("matmul"), "matmul", "").startswith("not kept: ")


@pytest.mark.parametrize("name", ["matmul", "matmul TMA", "attention"])
def test_a_summary_of_patched_code_says_what_the_marks_say(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from ikp.analysis.explain.activity import Activity, of_region
    from ikp.inspection._images import images
    from ikp.inspection.summary_of_code import code_facts

    made = patched(name)
    (image,) = images(kept(made, name, monkeypatch, tmp_path))
    (facts,) = code_facts(image).values()
    assert facts.all_products and {*facts.ranges} == {*made.names}
    for each, found in facts.ranges.items():
        marked = of_region(each, None, frozenset(made.names[:1])).activity
        if found.activity and marked is not Activity.AROUND:  # what is left in a loop computes
            assert found.activity == marked.value, each
        if each.startswith("wgmma x"):
            assert found.flop is not None and found.flop % (2 * 64 * 64 * 16 // 4) == 0
