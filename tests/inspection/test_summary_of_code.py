"""What a trace keeps of its kernels' machine code: what each range is, and how much it does."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ikp import registry
from ikp.core.code_facts import FACTS, NO_FACTS, CodeFacts, RangeFacts, parse_facts, read_facts
from ikp.edit import concat
from ikp.errors import InspectError
from ikp.inspection import facts_of_trace as it
from ikp.inspection._images import codes, read_marks
from ikp.inspection._work import Often, flop
from ikp.inspection.summary_of_code import _Summary, code_facts
from ikp.plugins import Image
from ikp.sass.control_flow.flow import Flow
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.dataflow.lane_state import Shape
from ikp.sass.disassembly.listing import Code, Instruction
from tests.analysis.explain.launches import Scene, Warp
from tests.backends.sass import compile_kernel, spec
from tests.inspection.compiled import code, image
from tests.kernels import gemm as tiles
from tests.kernels.emptied import emptied
from tests.sass.compiled import code as plain
from tests.sass.texts import sass

pytestmark = pytest.mark.compiled


def plain_code(image: Image) -> Code:
    (found,) = codes(image)
    return found


def facts(name: str, trace: Any = None) -> CodeFacts:
    shape = None if trace is None else it._shape(trace.launches[0], None)
    (found,) = code_facts(image(code(name)), shape).values()
    return found


def test_a_specialised_gemm_says_what_each_range_is() -> None:
    found = facts("gluon gemm")
    assert {name: one.activity for name, one in found.ranges.items()} == {
        "wait full": "wait:barrier",
        "wgmma": "mma",
        "store": "store",
        "wait empty": "wait:barrier",
        "issue TMA": "copy",
    }
    assert found.chip == "sm_90a" and found.registers and found.all_products


def test_flops_of_a_tile_are_two_for_each_product() -> None:
    from examples import gemm_gluon

    each = facts("gluon gemm").ranges["wgmma"].flop
    tile = 2 * gemm_gluon.BM * gemm_gluon.BN * gemm_gluon.BK
    assert each is not None and each * gemm_gluon.WARPS == tile
    each = facts("gemm sm_90").ranges["dot"].flop
    m, n, k = (tiles.TILES[name] for name in ("BM", "BN", "BK"))
    assert each is not None and each * tiles.OPTIONS["num_warps"] == 2 * m * n * k


def test_a_wait_of_a_pipeline_is_one_for_copies() -> None:
    assert facts("gemm sm_90").ranges["load"].activity == "wait:copy"


@pytest.mark.any_pins  # the oldest Triton moves none
def test_products_that_stand_elsewhere_are_not_claimed() -> None:
    found = facts("gemm sm_80")  # 16 of 64 stand behind the range
    assert not found.all_products


@pytest.mark.parametrize(
    ("opcode", "operations"),
    [
        ("HGMMA.64x128x16.F32", 2 * 64 * 128 * 16 // 4),
        ("QGMMA.64x256x32.F32.E4M3.E4M3", 2 * 64 * 256 * 32 // 4),
        ("HMMA.16816.F32", 2 * 16 * 8 * 16),
        ("IMMA.16832.S8.S8", 2 * 16 * 8 * 32),
        ("DMMA.884", 2 * 8 * 8 * 4),
        ("UTCHMMA", None),
        ("HGMMA.SP.64x128x32.F32", None),
    ],
)
def test_shapes_of_products(opcode: str, operations: int | None) -> None:
    assert flop(Instruction(0, "", opcode, "")) == operations
    assert flop(Instruction(0, "P0", opcode, "")) is None


def test_a_range_of_which_nothing_is_left_is_told_by_name() -> None:
    made = compile_kernel(emptied, {"out": "*i32", "n": "i32"}, spec(), {"BLOCK": 128})
    (found,) = code_facts(image(made)).values()
    (text,) = found.lost
    assert text.startswith('"store" (emptied.py:13-14) holds no store, ')
    assert "Elsewhere are " in text and text.endswith(" STG.")
    assert parse_facts(found.text()) == found
    assert facts("gemm sm_90").lost == (), "its loads are a software pipeline's"


def test_a_session_tells_it_once_and_so_does_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    from ikp.profiling import writing

    monkeypatch.setattr(writing, "_reported", set())
    said = CodeFacts("sm_100a", lost=('"dot" (k.py:3) holds no tensor-core instruction.',))
    trace = replace(recorded("dot"), provenance={f"{FACTS}mine": said.text()})
    assert writing.lost_ranges(trace) == (f"mine: {said.lost[0]}",)
    assert writing.lost_ranges(trace) == ()
    assert said.lost[0] in {one.rationale for one in trace.explain().unknown}


def test_facts_read_back_as_they_were() -> None:
    found = facts("gluon gemm")
    assert parse_facts(found.text()) == found
    assert read_facts({"ranges of k": found.text()}, "k") == found


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 99}', '{"version": 1}'])
def test_other_facts_are_none(text: str) -> None:
    assert parse_facts(text) is None


class _Backend:
    @staticmethod
    def loaded_images() -> list[Any]:
        return [image(code("gluon gemm")), image(code("gemm sm_90"))]


@pytest.fixture
def _loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    _Backend.loaded_images()  # compiles them, for which the backends must be there
    monkeypatch.setattr(registry, "imported", lambda: [_Backend])
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def recorded(*names: str) -> Any:
    ranges = [(name, 10 * i, 10 * i + 5) for i, name in enumerate(names)]
    return Scene(label="mine").add(Warp(0, 0, 0, 0, 100, ranges)).trace()


@pytest.mark.usefixtures("_loaded")
def test_a_launch_is_of_the_kernel_with_its_names(tmp_path: Any) -> None:
    for _ in range(2):  # the second time from what was kept
        (text,) = it.facts_of_trace(recorded("load", "dot")).values()
        assert parse_facts(text) == facts("gemm sm_90", recorded("load", "dot"))
    kept = list(tmp_path.glob("ikp-facts-*.json"))
    assert len(kept) == 1
    kept[0].write_text("[")
    assert it.facts_of_trace(recorded("load", "dot"))["ranges of mine"] == text


@pytest.mark.usefixtures("_loaded")
def test_launches_with_labels_of_their_own_are_looked_up_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (text,) = it.facts_of_trace(recorded("load", "dot")).values()
    ranges = [("load", 0, 5), ("dot", 10, 15)]
    trace = Scene().add(*(Warp(0, 0, 0, 0, 100, ranges, launch=n) for n in range(30))).trace()
    launches = (replace(one, label=f"launch {n}") for n, one in enumerate(trace.launches))
    asked: list[Any] = []
    known = it.cached_facts
    monkeypatch.setattr(it, "cached_facts", lambda *some: (asked.append(some), known(*some))[1])
    found = it.facts_of_trace(replace(trace, launches=tuple(launches)))
    assert found == {f"ranges of launch {n}": text for n in range(30)}
    assert len(asked) == 1


@pytest.mark.usefixtures("_loaded")
def test_names_that_no_kernel_has_are_of_none() -> None:
    assert it.facts_of_trace(recorded("load", "other")) == {}


def test_the_mix_of_a_gemms_products_is_what_its_code_has() -> None:
    found = facts("gemm sm_90")
    made = plain_code(image(code("gemm sm_90")))
    tensor = sum(one.op == "HGMMA" for one in made.instructions)
    mixes = {name: each.mix for name, each in found.ranges.items()}
    assert mixes["dot"]["tensor.group.2"] == (tensor, 0, 0)
    assert "tensor.group.2" not in mixes["load"]
    assert sum(loop.mix.get("tensor.group.2", 0) for loop in found.loops) == tensor
    assert {loop.depth for loop in found.loops} == {0, 1}


def test_a_kernel_that_spills_says_how_much() -> None:
    spilled, kept = facts("gemm sm_80 spilled"), facts("gemm sm_80")
    assert spilled.spills and spilled.local_bytes and spilled.register_limit == 96
    assert kept.spills == kept.local_bytes == 0 and kept.register_limit is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"store.global.', '"store.globe.'),
        ('"tensor.group.2":[', '"tensor.group.2":[1e999,'),
        ('"sums":0.0', '"sums":-1'),
        ('"sums":0.0', '"sums":"many"'),
        ('"accesses":[[', '"accesses":[[1,'),
    ],
)
def test_damaged_facts_of_ranges_are_none(before: str, after: str) -> None:
    text = facts("gluon gemm").text()
    assert before in text and parse_facts(text.replace(before, after)) is None


def test_facts_of_ranges_read_back() -> None:
    found = facts("gemm sm_90")
    assert parse_facts(found.text()) == found
    assert found.ranges["dot"].line.rpartition(":")[0].endswith("gemm.py")


def test_kernels_that_differ_leave_what_they_agree_on_and_bounds() -> None:
    one = CodeFacts("sm_90a", 64, None, True, {"dot": RangeFacts("mma", 128, 0, 0, 9, 4)})
    other = replace(one, registers=32, ranges={"dot": RangeFacts("mma", 256, 0, 2, 7, 8)})
    both = it._agreed([one, other])
    ranges = {"dot": RangeFacts("mma", None, 0, 2, 9)}
    assert both == CodeFacts("sm_90a", None, None, True, ranges, 2)
    assert parse_facts(both.text()) == both
    assert it._agreed([one]) == one
    more = replace(one, ahead=0.0, halo=0.5)
    assert it._agreed([more]) == more, "what a kernel alone says stays"


def test_cutes_code_is_found_where_it_was_told_to_keep_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from ikp.backends.cute import CuteBackend

    kept = image(code("gluon gemm"))
    (tmp_path / "k.cubin").write_bytes(kept.cubin)
    (tmp_path / "k.ptx").write_text(kept.ptx)
    (tmp_path / "alone.cubin").write_bytes(b"")
    monkeypatch.setenv("CUTE_DSL_DUMP_DIR", str(tmp_path))
    monkeypatch.delenv("CUTE_DSL_KEEP", raising=False)
    assert list(CuteBackend.loaded_images()) == []
    monkeypatch.setenv("CUTE_DSL_KEEP", "ptx,cubin")
    (found,) = CuteBackend.loaded_images()
    assert (found.cubin, found.ptx) == (kept.cubin, kept.ptx)
    monkeypatch.setenv("CUTE_DSL_DUMP_DIR", str(tmp_path / "none"))  # CuTe makes no folder
    monkeypatch.setattr(registry, "imported", lambda: [CuteBackend, _Backend])
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    found = it.facts_of_trace(recorded("load", "dot"))
    assert "none, which is no folder" in found[f"{NO_FACTS}all"]
    expected = facts("gemm sm_90", recorded("load", "dot"))
    assert parse_facts(found[f"{FACTS}mine"]) == expected, "another language's"


def test_tritons_code_is_found_beside_what_it_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from ikp.backends.triton import TritonBackend
    from ikp.backends.triton import _hooks as hooks

    kept = image(code("gluon gemm"))
    (tmp_path / "gemm.cubin").write_bytes(kept.cubin)
    (tmp_path / "gemm.ptx").write_text(kept.ptx)
    (tmp_path / "gemm.json").write_text('{"shared": 4096}')
    (tmp_path / "plain.cubin").write_bytes(b"")
    (tmp_path / "plain.ptx").write_text(".target sm_90a")
    files = {tmp_path / f"{name}.ptx" for name in ("gemm", "plain", "gone")}
    monkeypatch.setattr(hooks, "_loaded", files)
    (found,) = TritonBackend.loaded_images()
    assert (found.cubin, found.ptx, found.shared) == (kept.cubin, kept.ptx, 4096)
    (said,) = code_facts(found).values()
    assert said == replace(facts("gluon gemm"), shared=4096)
    for text in ("[", "[]", "{}", '{"shared": null}'):
        (tmp_path / "gemm.json").write_text(text)
        (found,) = TritonBackend.loaded_images()
        assert found.shared is None


def test_a_session_on_a_gpu_keeps_facts_and_one_on_a_cpu_asks_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ikp.profiling.writing import with_code_facts

    monkeypatch.setattr(it, "facts_of_trace", lambda _: {"ranges of mine": "said"})
    trace = recorded("load", "dot")
    assert with_code_facts(trace).provenance == {"ranges of mine": "said"}
    host = tuple(replace(one, clock=replace(one.clock, kind="host")) for one in trace.launches)
    assert with_code_facts(replace(trace, launches=host)).provenance == {}


@pytest.mark.usefixtures("_loaded")
def test_without_a_disassembler_a_trace_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise InspectError("nvdisasm was not found. Install it.")

    monkeypatch.setattr(it, "cached_facts", missing)
    trace = recorded("load", "dot")
    said = it.facts_of_trace(trace)
    assert said == {"no ranges of mine": "InspectError: nvdisasm was not found. Install it."}
    (told,) = (
        one.rationale
        for one in replace(trace, provenance=said).explain().unknown
        if "machine code failed" in one.rationale
    )
    assert told.endswith("failed: InspectError: nvdisasm was not found. Install it.")
    assert it.facts_of_trace(recorded("load", "other")) == {}


@pytest.mark.usefixtures("_loaded")
def test_a_fault_in_reading_code_loses_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(it, "cached_facts", fails)
    trace = recorded("load", "dot")
    said = it.facts_of_trace(trace)
    assert said == {"no ranges of mine": "RuntimeError: a fault"}
    verdict = replace(trace, provenance=said).explain()
    assert any("a fault" in one.rationale for one in verdict.unknown)
    monkeypatch.setattr(_Backend, "loaded_images", fails)
    assert it.facts_of_trace(trace) == {"no ranges of all": "RuntimeError: a fault"}


def in_machine_code(folder: Any, monkeypatch: pytest.MonkeyPatch, *names: str) -> Any:
    """Return a trace of kernels that nobody edited, of one label, with all that each records."""
    from ikp.core.regions import region_id
    from ikp.probes.kept_code import KEPT, keep
    from tests.inspection.test_machine_code import patched
    from tests.sass.compiled import code as plain

    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    made = [(patched(name), plain(name).compiled) for name in names]
    kept = [keep(patch, one.name, one.asm["ptx"], 4096) for patch, one in made]
    regions = list(dict.fromkeys(name for patch, _ in made for name in patch.names))
    trace = recorded(*regions)
    known = tuple(replace(each, id=region_id(each.name)) for each in trace.regions)
    return replace(trace, regions=known, provenance={f"{KEPT}mine": "\n".join(kept)})


def test_a_kernel_that_nobody_edited_keeps_facts_of_all_its_ranges(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    trace = in_machine_code(tmp_path, monkeypatch, "matmul")
    (said,) = it.facts_of_trace(trace).values()
    found = parse_facts(said)
    assert found is not None and {*found.ranges} == {region.name for region in trace.regions}
    assert (found.kernels, found.shared, found.all_products) == (1, 4096, True)
    own = Cubin.read(plain("matmul").compiled.asm["cubin"]).kernel("matmul").registers
    assert found.plain_registers == own and found.registers is not None
    assert found.ranges["matmul"].activity == "compute"  # what is in no range of its own
    explained = replace(trace, provenance={"ranges of mine": said}).explain()
    assert not any("machine code" in one.rationale for one in explained.unknown)


def test_a_kernels_own_range_may_be_shown_by_another_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    trace = in_machine_code(tmp_path, monkeypatch, "matmul")
    shown = tuple(
        replace(region, name="matmul<float>") if region.name == "matmul" else region
        for region in trace.regions
    )
    (said,) = it.facts_of_trace(replace(trace, regions=shown)).values()
    found = parse_facts(said)
    assert found is not None and "matmul<float>" in found.ranges and "matmul" not in found.ranges


def test_registers_of_a_copy_are_told_apart_from_the_plain_kernels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from ikp.probes.kept_code import KEPT, keep
    from tests.inspection.test_machine_code import patched

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    patch = replace(patched("matmul"), registers=(17, 31))
    kept = keep(patch, "matmul", plain("matmul").compiled.asm["ptx"], 0)
    trace = replace(recorded(*patch.names), provenance={f"{KEPT}mine": kept})
    found = parse_facts(it.facts_of_trace(trace)["ranges of mine"])
    assert found is not None and found.plain_registers == 17 and found.registers != 17


def test_of_two_kernels_with_one_label_each_says_what_its_ranges_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    trace = in_machine_code(tmp_path, monkeypatch, "matmul", "rms_norm")
    (said,) = it.facts_of_trace(trace).values()
    found = parse_facts(said)
    assert found is not None and found.kernels == 2 and found.registers is None
    assert {*found.ranges} == {region.name for region in trace.regions}


def test_loads_of_one_line_without_a_wait_between_are_under_way_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Though each has a scoreboard of its own; three in a row are too few."""
    trace = in_machine_code(tmp_path, monkeypatch, "gathered")
    (said,) = it.facts_of_trace(trace).values()
    found = parse_facts(said)
    assert found is not None
    widths = {name: one.lane_bytes for name, one in found.ranges.items() if " x" in name}
    assert sorted(widths.values(), key=str) == [4, None, None, None]


def test_what_takes_longest_is_read_first(monkeypatch: pytest.MonkeyPatch) -> None:
    from ikp.probes.kept_code import KEPT

    asked: list[str] = []
    monkeypatch.setattr(it, "_of_kept", lambda trace, path, *_: asked.append(path) or iter(()))
    scenes = [
        Scene(label=label).add(Warp(0, 0, 0, 0, end, [("a", 0, 5)])).trace()
        for label, end in (("short", 10), ("long", 90))
    ]
    said = {f"{KEPT}{name}": name for name in ("short", "long")}
    it.facts_of_trace(replace(concat(scenes), provenance=said))
    assert asked == ["long", "short"]


def test_a_copy_that_no_warp_comes_to_does_not_speak_for_a_range() -> None:
    """The rule: an unrolled loop's body is not executed where the loop has fewer iterations."""
    summary = _Summary(Flow(sass("NOP", "NOP", "EXIT")), read_marks(""), Shape(), 0)
    warps, guessed = {0: 0.0, 1: 1.0, 2: 0.0}, {2}
    values = SimpleNamespace(warps=warps.get, is_guessed=guessed.__contains__)
    vars(summary)["_accesses"] = SimpleNamespace(values=values)
    often = Often(1.0)
    assert [summary._comes({at: often}) for at in range(3)] == [False, True, True]
    assert summary._comes({}), "nothing is left of it"
