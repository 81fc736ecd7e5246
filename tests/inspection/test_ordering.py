"""What ``ikp.profile(schedule=...)`` says of stores and clock reads, in machine code.

``True``: records are stored outside the ranges that follow each other in a block, and what a range
held without it, but for address arithmetic, it holds with it. ``False``: each record stands where
it was written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from ikp.inspection.model import Copy, Kernel
from ikp.inspection.opcodes import IDLE, work_of
from tests.backends.sass import Code, compile_kernel, spec
from tests.inspection.compiled import OUT_AND_N, only, pipelined, unrolled
from tests.kernels import control

pytestmark = pytest.mark.compiled

KERNELS: dict[str, Callable[[bool], Code]] = {
    "gemm sm_80": lambda schedule: pipelined(80, schedule),
    "gemm sm_90": lambda schedule: pipelined(90, schedule),
    "nested": lambda schedule: compile_kernel(control.nested, OUT_AND_N, spec(schedule=schedule)),
    "functional": lambda schedule: compile_kernel(
        control.functional, OUT_AND_N, spec(schedule=schedule)
    ),
    "early return": lambda schedule: compile_kernel(
        control.early_return, OUT_AND_N, spec(schedule=schedule)
    ),
    "unrolled": lambda schedule: unrolled(schedule=schedule),
}
GEMMS = pytest.mark.parametrize("name", ["gemm sm_80", "gemm sm_90"])
SIBLINGS = pytest.mark.parametrize("name", ["gemm sm_80", "gemm sm_90", "unrolled"])


@cache
def kernel(name: str, schedule: bool) -> Kernel:
    return only(KERNELS[name](schedule))


def copies(found: Kernel) -> list[Copy]:
    return sorted((c for r in found.ranges for c in r.copies), key=lambda copy: copy.ends)


def held(found: Kernel) -> dict[str, list[list[str]]]:
    """Return the opcodes that each copy of each range holds, integers and jumps left out."""
    work: dict[str, list[list[str]]] = {}
    for one in found.ranges:
        for copy in sorted(one.copies, key=lambda copy: copy.ends):
            opcodes = [i.opcode for i in copy.instructions if work_of(i) not in IDLE]
            work.setdefault(one.name, []).append(sorted(opcodes))
    return work


def stores_inside(found: Kernel) -> int:
    """Return how many records are stored between the clock reads of another."""
    made = copies(found)
    return sum(
        other.starts[0] < copy.store < other.ends[0]
        for copy in made
        for other in made
        if copy is not other
    )


@pytest.mark.parametrize("name", KERNELS)
def test_placing_records_takes_no_work_out_of_a_range_and_puts_none_in(name: str) -> None:
    placed, written = (held(kernel(name, schedule)) for schedule in (True, False))
    assert placed == written


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
