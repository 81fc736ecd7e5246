"""What records cost in machine code, counted: no GPU needed."""

from __future__ import annotations

from functools import cache

import pytest

from ikp.core.abi import ClockKind, OverflowMode
from tests.backends.sass import (
    CAPABILITIES,
    LOCAL_MEMORY,
    SYNCHRONISING,
    Code,
    compile_kernel,
    spec,
)
from tests.kernels.straight import straight
from tests.products import pairwise

pytestmark = pytest.mark.compiled

STORES = 16
START, RANGE, RUN_TIME_ID = 2, 10, 12
"""SASS instructions that a start, a whole range, and a range of a run-time id may cost."""
PUBLISHED = 11
"""Those that a range costs more in a stream: its start and its end publish the slot's counts."""
GOLDEN = {
    # instructions that init and finish add; that 16 ranges add to it
    (80, OverflowMode.STOP): (92, 127),
    (80, OverflowMode.WRAP): (96, 128),
    (80, OverflowMode.STREAM): (104, 302),
    (90, OverflowMode.STOP): (92, 127),
    (90, OverflowMode.WRAP): (96, 128),
    (90, OverflowMode.STREAM): (104, 302),
    (100, OverflowMode.STOP): (92, 127),
    (100, OverflowMode.WRAP): (96, 128),
    (100, OverflowMode.STREAM): (104, 302),
}
"""As counted with the ptxas of Triton 3.6 and 3.9. Lower them when a change makes them smaller."""

ARCHITECTURES = pytest.mark.parametrize("capability", CAPABILITIES)
MODES = pytest.mark.parametrize("mode", OverflowMode, ids=lambda mode: mode.name)


@cache
def code(
    records: int,
    kind: str = "range",
    capability: int = 90,
    mode: OverflowMode | None = OverflowMode.STOP,
    clock: ClockKind = ClockKind.CYCLES,
) -> Code:
    """Compile the straight-line kernel; ``mode`` None compiles it without recording."""
    constants = {"STORES": STORES, "RECORDS": records, "KIND": kind}
    prof = None if mode is None else spec(mode, clock)
    return compile_kernel(straight, {"x": "*i32", "p": "i32"}, prof, constants, capability)


def size(*args: object) -> int:
    return code(*args).size  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("n", "capability", "mode"), pairwise([0, 1, 15], CAPABILITIES, OverflowMode)
)
def test_one_more_range_costs_at_most_ten_instructions(
    n: int, capability: int, mode: OverflowMode
) -> None:
    one_more = size(n + 1, "range", capability, mode) - size(n, "range", capability, mode)
    assert 0 < one_more <= RANGE + PUBLISHED * (mode is OverflowMode.STREAM)


@pytest.mark.parametrize(
    ("kind", "budget"),
    [
        ("payload", RANGE),
        ("functional", RANGE),
        ("instant", RANGE),
        ("run-time id", RUN_TIME_ID),
    ],
)
def test_one_more_record_of_each_kind(kind: str, budget: int) -> None:
    assert 0 < size(9, kind) - size(8, kind) <= budget


def test_the_global_timer_costs_no_more() -> None:
    counts = [size(n, "range", 90, OverflowMode.STOP, ClockKind.GLOBALTIMER) for n in (8, 9)]
    assert 0 < counts[1] - counts[0] <= RANGE
    assert any("GLOBALTIMERLO" in text for text in code(0).instructions)


@ARCHITECTURES
def test_a_start_costs_at_most_two_instructions(capability: int) -> None:
    """A range costs that much more than another end of a range that is open already."""
    ranges = size(16, "range", capability) - size(8, "range", capability)
    ends = size(16, "end", capability) - size(8, "end", capability)
    assert ranges - ends <= 8 * START


@MODES
@ARCHITECTURES
def test_the_clock_is_read_twice_per_range(capability: int, mode: OverflowMode) -> None:
    reads = [code(n, "range", capability, mode).clock_reads for n in (0, 16)]
    assert reads[1] - reads[0] == 2 * 16


@MODES
@ARCHITECTURES
def test_sizes_are_those_of_the_golden_table(capability: int, mode: OverflowMode) -> None:
    plain = size(0, "range", capability, None)
    empty, full = (size(n, "range", capability, mode) for n in (0, 16))
    init, ranges = GOLDEN[capability, mode]
    assert empty - plain <= init
    assert full - empty <= ranges


@MODES
@ARCHITECTURES
def test_nothing_synchronises_and_nothing_spills(capability: int, mode: OverflowMode) -> None:
    plain = code(0, "range", capability, None)
    for records in (0, 16):
        recorded = code(records, "range", capability, mode)
        assert recorded.count(SYNCHRONISING) == plain.count(SYNCHRONISING) == {}
        assert recorded.count(LOCAL_MEMORY) == {}


@MODES
def test_a_hundred_unrolled_ranges_keep_few_registers(mode: OverflowMode) -> None:
    """A store that waits holds its record: with no limit, this kernel would spill."""
    constants = {"STORES": 100, "RECORDS": 100, "KIND": "payload"}
    types = {"x": "*i32", "p": "i32"}
    plain = compile_kernel(straight, types, None, constants)
    recorded = compile_kernel(straight, types, spec(mode), constants)
    assert recorded.count(LOCAL_MEMORY) == {}
    assert recorded.allocated <= plain.allocated + 32
