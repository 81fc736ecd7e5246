"""What ``ikp.profile(schedule=...)`` says of stores and clock reads, in machine code.

``True``: records are stored outside the ranges that follow each other in a block, and what a range
holds without it, it holds with it: the same work, and the same waits. It may hold a handful of
integer instructions more. ``False``: each record stands where it was written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
import triton

from ikp.backends.triton.passes.schedule import HANDFUL
from ikp.inspection.report import Copy, KernelReport
from ikp.ptx.instructions import StatementKind, joined, parse, statements
from ikp.sass.disassembly.opcodes import IDLE, Work, work_of
from tests.backends.gluon import kernels as gluon_kernels
from tests.backends.gluon.compiling import compile_gluon
from tests.backends.sass import Code, compile_kernel, spec
from tests.inspection.compiled import OUT_AND_N, gluon_gemm, only, pipelined, unrolled
from tests.inspection.waiting import waits
from tests.kernels import called, choices, control, dependent, relay, wrapped
from tests.products import THOROUGH

pytestmark = pytest.mark.compiled

RECORD = 14  # instructions of a record's store, at most
COPIES = 4  # by which two machine codes of one text differ: moves from register to register


def small(kernel: Any, capability: int, types: Any = None, **constants: Any) -> Any:
    """Return what compiles a kernel, given whether its records are placed."""

    def made(schedule: bool) -> Code:
        on = spec(schedule=schedule)
        return compile_kernel(kernel, types or OUT_AND_N, on, constants, capability)

    return made


def gluon(kernel: Any, capability: int) -> Any:
    """Return the same for a Gluon kernel."""
    return lambda schedule: compile_gluon(
        kernel, OUT_AND_N, spec(schedule=schedule), capability=capability
    )


KERNELS: dict[str, Callable[[bool], Code]] = {
    **{f"gemm sm_{at}": partial(pipelined, at) for at in (80, 90, 100)},
    **{
        f"{name} sm_{at}": small(
            getattr(dependent, name), at, dependent.TYPES[name], **dependent.SIZES[name]
        )
        for name, places in (
            ("looked_up", (80, 90, 100)),
            ("hash_after", (80, 90)),
            ("hash_inside", (90, 100)),
        )
        for at in places
    },
    "nested sm_80": small(control.nested, 80),
    "functional sm_90": small(control.functional, 90),
    "overlapping sm_100": small(control.overlapping, 100),
    "early return sm_90": small(control.early_return, 90),
    "payloads sm_80": small(control.payloads, 80, {"ints": "*i32", "floats": "*fp32"}),
    "conditional sm_100": small(choices.conditional, 100),
    "placed sm_90": small(choices.placed, 90),
    "calling sm_80": small(called.calling, 80),
    "relay sm_100": small(relay.relay, 100, {"tiles": "*i32", "out": "*i32", "n": "i32"}),
    "scale sm_90": small(
        wrapped.scale, 90, {"x": "*fp32", "n": "i32"}, BLOCK=64, EVEN=False, NAME="x"
    ),
    "unrolled sm_90": lambda schedule: unrolled(schedule=schedule),
    "run-time ids sm_90": lambda schedule: unrolled("run-time id", schedule=schedule),
    "gluon control sm_100": gluon(gluon_kernels.control, 100),
    "gluon specialised sm_90": gluon(gluon_kernels.specialised, 90),
    "gluon gemm sm_90": gluon_gemm,
}
AGAIN = {"looked_up sm_80", "looked_up sm_100", "hash_after sm_90", "hash_inside sm_100"}
"""For another GPU, what Triton makes of these is much the same."""
SMALL = {
    *("nested sm_80", "functional sm_90", "overlapping sm_100", "early return sm_90"),
    *("payloads sm_80", "conditional sm_100", "placed sm_90", "scale sm_90"),
}
"""With each Triton, the records of these are found as their PTX has them: in test_records."""
EVERY = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.any_pins if name in SMALL else ())
        for name in KERNELS
        if THOROUGH or name not in AGAIN
    ],
)
GEMMS = pytest.mark.parametrize("name", ["gemm sm_80", "gemm sm_90"])
SIBLINGS = pytest.mark.parametrize("name", ["gemm sm_80", "gemm sm_90", "unrolled sm_90"])


@cache
def code(name: str, schedule: bool) -> Code:
    if name == "gemm sm_100" and tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9):
        pytest.skip("before 3.9, Triton can't pipeline a loop with tcgen05 and volatile assembly")
    return KERNELS[name](schedule)


@cache
def kernel(name: str, schedule: bool) -> KernelReport:
    return only(code(name, schedule))


def copies(found: KernelReport) -> list[Copy]:
    return sorted((c for r in found.ranges for c in r.copies), key=lambda copy: copy.ends)


def held(found: KernelReport) -> dict[str, set[tuple[str, ...]]]:
    """Return the opcodes that copies of each range hold, integers and jumps left out.

    Copies may be more or fewer: ptxas unrolls loops by what is in them.
    """
    work: dict[str, set[tuple[str, ...]]] = {}
    for one in found.ranges:
        for copy in one.copies:
            opcodes = [i.opcode for i in copy.instructions if work_of(i) not in IDLE]
            work.setdefault(one.name, set()).add(tuple(sorted(opcodes)))
    return work


def stores_inside(found: KernelReport) -> int:
    """Return how many records are stored between the clock reads of another."""
    made = copies(found)
    return sum(
        other.starts[0] < copy.store < other.ends[0]
        for copy in made
        for other in made
        if copy is not other
    )


@EVERY
def test_placing_records_takes_no_work_out_of_a_range_and_puts_none_in(name: str) -> None:
    placed, written = (held(kernel(name, schedule)) for schedule in (True, False))
    assert placed == written


@EVERY
def test_no_wait_moves_from_range_to_range(name: str) -> None:
    placed, written = (
        waits(code(name, schedule).compiled.asm["cubin"], kernel(name, schedule))
        for schedule in (True, False)
    )
    assert written
    assert placed == written


@EVERY
def test_its_text_is_statements_of_known_kinds_and_comes_back(name: str) -> None:
    ptx = code(name, True).ptx
    parts = statements(ptx)
    assert joined(parts) == ptx
    assert [part.text for part in parts if part.kind is StatementKind.OTHER] == []
    made = [parse(part.code) for part in parts if part.kind is StatementKind.INSTRUCTION]
    assert all(made)


def others(found: KernelReport, copy: Copy) -> int:
    """Return how many other records are stored between a range's clock reads."""
    return sum(
        min(copy.starts) < other.store < max(copy.ends)
        for other in copies(found)
        if other is not copy
    )


@EVERY
def test_a_range_holds_a_handful_of_integer_instructions_more_at_most(name: str) -> None:
    placed, written = (kernel(name, schedule) for schedule in (True, False))
    for one in placed.ranges:
        before = next(each for each in written.ranges if each.name == one.name)
        (least, most), (less, more) = (each.counts(Work.INTEGER) for each in (before, one))
        inside = [
            max(others(k, c) for c in r.copies) for k, r in ((written, before), (placed, one))
        ]
        assert more <= most + HANDFUL + COPIES + RECORD * inside[1]
        assert less >= least - COPIES - RECORD * inside[0]


@SIBLINGS
def test_placed_stores_stand_outside_of_all_ranges(name: str) -> None:
    assert len(copies(kernel(name, True))) >= 2
    assert stores_inside(kernel(name, True)) == 0


@GEMMS
def test_with_it_only_address_arithmetic_stands_between_an_end_and_the_next_start(
    name: str,
) -> None:
    found = kernel(name, True)
    load, dot = copies(found)
    between = [i for i in found.instructions if load.ends[0] < i.address < dot.starts[0]]
    assert not [i for i in between if work_of(i) not in IDLE]
    assert load.store > dot.ends[0]


@GEMMS
def test_without_it_a_record_is_stored_before_the_next_range_starts(name: str) -> None:
    load, dot = copies(kernel(name, False))
    assert load.ends[0] < load.store < dot.starts[0]


@SIBLINGS
def test_without_it_every_record_is_stored_before_the_next_clock_read(name: str) -> None:
    made = copies(kernel(name, False))
    reads = sorted(at for copy in made for at in (*copy.starts, *copy.ends))
    for copy in made:
        assert not [at for at in reads if copy.ends[0] < at < copy.store]


@GEMMS
def test_the_option_changes_the_code(name: str) -> None:
    assert kernel(name, True).instructions != kernel(name, False).instructions
