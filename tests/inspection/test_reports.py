"""What the reports say: exactly where the machine code is stable, and by property elsewhere."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ikp.inspection.report import CodeRange, KernelReport
from ikp.sass.disassembly.opcodes import Work, work_of
from tests.backends.opcodes import text_of
from tests.inspection.compiled import CASES, code, kernel, only, pipelined
from tests.kernels import gemm

pytestmark = pytest.mark.compiled
FILE = Path(gemm.__file__)
PIPELINED = pytest.mark.parametrize(
    "name", ["gemm sm_80", "gemm sm_90", "gemm sm_90 not placed", "gemm sm_80 spilled"]
)
MMA = {"gemm sm_80": "HMMA", "gemm sm_90": "HGMMA"}


def line_of(text: str) -> int:
    """Return the first line of the GEMM's file that holds a text."""
    lines = FILE.read_text().split("\n")
    return next(at for at, line in enumerate(lines, 1) if text in line)


def total(found: CodeRange, work: Work) -> int:
    return sum(copy.counts[work] for copy in found.copies)


@PIPELINED
def test_the_range_around_the_loads_holds_no_copies_and_the_report_says_where_they_are(
    name: str,
) -> None:
    found = kernel(name)
    load = found["load"]
    assert total(load, Work.COPY) == total(load, Work.LOAD) == 0
    assert (total(load, Work.WAIT), total(load, Work.BARRIER)) == (1, 1)
    (warning,) = [w for w in found.warnings if w.range is load]
    assert '"load" (gemm.py:' in warning.message
    assert "holds no load and no copy" in warning.message
    assert "software pipeline" in warning.message
    loop = f"the loop at gemm.py:{line_of('for k in')}"
    places = {group.place: group for group in warning.elsewhere}
    assert set(places) == {f"before {loop}", f'in {loop}, after "dot"'}
    counts = [len(places[place].instructions) for place in sorted(places)]
    assert counts == [16, 8]  # two of three stages ahead, and one per iteration
    assert {i.op for group in warning.elsewhere for i in group.instructions} == {"LDGSTS"}
    assert sum(i.op == "LDGSTS" for i in found.instructions) == sum(counts)


@PIPELINED
def test_ranges_know_their_lines(name: str) -> None:
    for region, last in (("load", "y = tl.load"), ("dot", "acc = tl.dot")):
        source = kernel(name)[region].source
        assert source is not None
        assert Path(source.file) == FILE
        assert (source.first, source.last) == (
            line_of(f'with ikp.range("{region}"'),
            line_of(last),
        )


def test_every_instruction_of_the_gemm_has_a_line_that_is_there() -> None:
    size = len(FILE.read_text().split("\n"))
    lines = [line for i in kernel("gemm sm_90").instructions for line in i.lines]
    assert {line.number for line in lines if line.file == str(FILE)} <= set(range(1, size + 1))


def test_the_dot_holds_every_wgmma_of_the_loop() -> None:
    found = kernel("gemm sm_90")
    assert sum(i.op == "HGMMA" for i in found.instructions) == 4
    assert total(found["dot"], Work.TENSOR) == 4
    assert [w.range.name for w in found.warnings] == ["load"]


def test_what_the_compiler_moved_behind_the_end_is_told() -> None:
    """On sm_80, mma.sync is plain arithmetic to LLVM: it sinks some below the clock read."""
    found = kernel("gemm sm_80")
    inside = total(found["dot"], Work.TENSOR)
    every = sum(i.op == "HMMA" for i in found.instructions)
    told = [w for w in found.warnings if w.range.name == "dot"]
    if inside == every:
        assert told == []
    else:
        assert f"holds {inside} of the {every} tensor core instructions" in told[0].message
        assert sum(len(g.instructions) for g in told[0].elsewhere) == every - inside


def test_roles_of_a_warp_specialised_kernel() -> None:
    found = kernel("gluon gemm")
    assert {r.name for r in found.ranges} == {
        "wait full", "wgmma", "store", "wait empty", "issue TMA",
    }  # fmt: skip
    tma = [i for copy in found["issue TMA"].copies for i in copy.instructions]
    assert {i.op for i in tma if work_of(i) is Work.COPY} == {"UTMALDG"}
    assert total(found["wgmma"], Work.TENSOR) == sum(i.op == "HGMMA" for i in found.instructions)
    assert total(found["store"], Work.STORE) > 0
    assert all(total(found[f"wait {what}"], Work.WAIT) > 0 for what in ("full", "empty"))
    assert found.warnings == ()
    sources = [r.source for r in found.ranges if r.source]
    assert len({(s.first, s.last) for s in sources}) == 5


def test_nested_ranges_hold_what_inner_ones_do() -> None:
    found = kernel("nested")
    inner = {i.address for copy in found["inner"].copies for i in copy.instructions}
    outer = {i.address for copy in found["outer"].copies for i in copy.instructions}
    assert inner <= outer
    assert len(found["inner"].copies) == 4
    assert len(found["outer"].copies) == len(found["static"].copies) == 2


def test_instants_hold_nothing() -> None:
    for name in ("instants", "nested"):
        instants = [r for r in kernel(name).ranges if r.kind == "instant"]
        assert instants
        assert all(c.instructions == () and c.starts == c.ends for r in instants for c in r.copies)


def test_unrolled_copies_are_one_range() -> None:
    (work,) = kernel("unrolled").ranges
    assert len(work.copies) == 40
    assert {
        i.op for copy in work.copies for i in copy.instructions if work_of(i) is Work.STORE
    } == {"STG"}


def test_ids_known_at_run_time_are_one_range_without_a_name() -> None:
    (work,) = kernel("run-time ids").ranges
    assert work.name == "(id known at run time)"
    assert work.kind == "range"
    assert len(work.copies) == 40


def test_a_token_has_a_start_on_every_way_to_its_end() -> None:
    flights = [r for r in kernel("overlapping").ranges if r.name == "flight"]
    assert max(len(copy.starts) for r in flights for copy in r.copies) >= 3
    assert kernel("overlapping")["second"].copies[0].instructions


@pytest.mark.parametrize("name", CASES)
def test_ikp_own_reads_and_stores_are_not_counted(name: str) -> None:
    found = kernel(name)
    own = {c.store for r in found.ranges for c in r.copies}
    own |= {at for r in found.ranges for c in r.copies for at in (*c.starts, *c.ends)}
    held = {i.address for r in found.ranges for c in r.copies for i in c.instructions}
    assert not own & held
    assert not own & {i.address for g in found.outside for i in g.instructions}


@pytest.mark.parametrize("name", CASES)
def test_every_opcode_is_known(name: str) -> None:
    assert {i.opcode for i in kernel(name).instructions if work_of(i) is Work.OTHER} == set()


@pytest.mark.parametrize("name", CASES)
def test_names_are_those_of_the_source(name: str) -> None:
    found: KernelReport = kernel(name)
    assert not [r.name for r in found.ranges if r.name.endswith("?")]
    for one in found.ranges:
        assert one.source is not None
        assert one.source.calls or one.name
        text = Path(one.source.file).read_text().split("\n")
        lines = text[one.source.first - 1 : one.source.last]
        assert any("ikp." in line for line in lines), (one.name, one.source)


def test_the_body_of_a_with_statement_is_what_python_says() -> None:
    tree = ast.parse(FILE.read_text())
    spans = {(n.lineno, n.end_lineno) for n in ast.walk(tree) if isinstance(n, ast.With)}
    for one in kernel("gemm sm_90").ranges:
        assert one.source is not None
        assert (one.source.first, one.source.last) in spans


def test_three_stages_put_one_more_stage_of_copies_before_the_loop_than_two() -> None:
    two, three = (only(pipelined(90, num_stages=n)).warnings[0] for n in (3, 4))
    assert [len(g.instructions) for g in two.elsewhere] == [16, 8]
    assert [len(g.instructions) for g in three.elsewhere] == [24, 8]


@pytest.mark.parametrize("name", CASES)
def test_no_instruction_of_the_machine_code_is_left_out(name: str) -> None:
    addresses = [i.address for i in kernel(name).instructions]
    assert addresses == list(range(0, len(text_of(code(name).compiled.asm["cubin"])), 16))
