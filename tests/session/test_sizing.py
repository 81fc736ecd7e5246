"""The size of a buffer that nobody gave one: from the launch and the device's memory."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ikp
from ikp.core import abi
from ikp.core.abi import ClockKind, OverflowMode
from ikp.core.segment import EVERYTHING, Spec, select
from ikp.errors import UsageError
from ikp.session import memory
from ikp.session.memory import (
    DEFAULT_BYTES,
    MARGIN,
    MORE,
    MOST_BYTES,
    RECORDS,
    SHARE,
    SMALL,
    BufferSize,
    inferred,
    slots_of,
)
from tests.host import Host

torch = pytest.importorskip("torch")

SPEC = Spec()
SPECS = [
    SPEC,
    replace(SPEC, overflow=OverflowMode.WRAP),
    replace(SPEC, clock=ClockKind.CYCLES64),
    replace(SPEC, totals=True),
]


@pytest.mark.parametrize("spec", SPECS)
def test_each_warp_of_a_known_launch_has_room(spec: Spec) -> None:
    slots = 20_000
    size = inferred(spec, slots, lambda: 1 << 40)
    per_slot = (size - abi.LAUNCH_HEADER_BYTES) // slots
    mode = "totals" if spec.totals else "timeline"
    fits = abi.slot_capacity(per_slot, spec.overflow, spec.clock)
    assert fits == RECORDS[mode] or size == MOST_BYTES


@given(st.sampled_from(SPECS), st.integers(0, 1 << 40), st.none() | st.integers(0, 1 << 40))
def test_a_size_is_the_default_or_less_with_room_or_what_bounds_leave_of_more(
    spec: Spec, slots: int, free: int | None
) -> None:
    size = inferred(spec, slots, lambda: free)
    mode = "totals" if spec.totals else "timeline"
    default = DEFAULT_BYTES[mode]
    assert size <= MOST_BYTES
    assert size <= default or free is None or size <= free // SHARE
    if size < default:
        fits = (size - abi.LAUNCH_HEADER_BYTES) // slots
        assert abi.slot_capacity(fits, spec.overflow, spec.clock) == SMALL[mode]


@pytest.mark.parametrize(
    ("slots", "attempted", "expected"),
    [
        (1 << 14, 100, abi.segment_bytes(1 << 14, RECORDS["timeline"])),
        (1 << 13, 800, abi.segment_bytes(1 << 13, 1024)),
        (1 << 14, 80_000, MOST_BYTES),
        (1 << 6, 8000, abi.segment_bytes(1 << 6, 10_240)),
        (1, 80_000, abi.segment_bytes(1, 114_688)),
        (0, 80_000, DEFAULT_BYTES["timeline"]),
    ],
)
def test_what_a_launch_attempted_is_kept_by_the_next_as_far_as_memory_goes(
    slots: int, attempted: int, expected: int
) -> None:
    assert inferred(SPEC, slots, lambda: None, attempted) == expected
    least = inferred(SPEC, slots, lambda: 0, attempted)
    assert least == min(expected, DEFAULT_BYTES["timeline"]), "of free memory, a share"
    ring = replace(SPEC, overflow=OverflowMode.WRAP)
    assert inferred(ring, slots, lambda: None, attempted) == inferred(ring, slots, lambda: None)


def test_of_little_memory_an_eighth_is_taken_but_the_default_always() -> None:
    assert inferred(SPEC, 1 << 20, lambda: 400 << 20) == 50 << 20
    assert inferred(SPEC, 1 << 20, lambda: 80 << 20) == DEFAULT_BYTES["timeline"]
    assert inferred(SPEC, 1 << 20, lambda: 0) == DEFAULT_BYTES["timeline"]
    assert inferred(SPEC, 1 << 20, lambda: None) == MOST_BYTES


def test_the_device_is_not_asked_where_the_default_will_do() -> None:
    def ask() -> int:
        raise AssertionError

    assert inferred(SPEC, 0, ask) == inferred(SPEC, 1000, ask) == DEFAULT_BYTES["timeline"]
    assert inferred(SPEC, 24, ask) < DEFAULT_BYTES["timeline"] // 8


@pytest.mark.parametrize(
    ("grid", "options", "slots"),
    [
        (132, {}, 132 * 8),
        ((4, 3, 2), {}, 24 * 8),
        ([7], {"granularity": "block"}, 7),
        (100, {"warps": [0, 5, 12]}, 200),
        (100, {"blocks": range(10, 100, 30)}, 3 * 8),
        (0, {}, 0),
    ],
)
def test_slots_are_the_warps_that_record(grid: Any, options: dict[str, Any], slots: int) -> None:
    chosen = select(**{"warps": None, "blocks": None, "granularity": "warp", **options})
    assert slots_of(grid, 8, chosen) == (slots, 0)
    blocks = math.prod(grid if isinstance(grid, (tuple, list)) else [grid])
    assert slots_of(grid, 8, replace(chosen, others=True)) == (slots, 8 * blocks)


@pytest.mark.parametrize("grid", [(), (1, 2, 3, 4), "x", (1, -1), 2.5, True, None])
def test_what_is_no_grid_is_refused(grid: Any) -> None:
    with pytest.raises(UsageError, match="is no grid"):
        slots_of(grid, 8, EVERYTHING)


@pytest.mark.parametrize("warps", [None, 33, -1, 1.5, True])
def test_what_is_no_number_of_warps_is_refused(warps: Any) -> None:
    with pytest.raises(UsageError, match="give also how many warps a block has, 1 to 32"):
        slots_of(8, warps, EVERYTHING)


def test_a_size_goes_before_the_launch_and_the_sessions_before_none(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "MOST_BYTES", 1 << 30)
    with ikp.profile() as prof:
        launch: dict[str, Any] = {"grid": (1 << 13), "num_warps": 8}
        wanted = abi.segment_bytes(1 << 16, RECORDS["timeline"])
        assert prof.buffer("k", **launch).nbytes == wanted
        assert prof.buffer("k", size=4096, **launch).nbytes == 4096
        prof.reset()
    with ikp.profile(buffer_size=8192) as prof:
        assert prof.buffer("k", **launch).nbytes == 8192
        with pytest.raises(UsageError, match="is no grid"):
            prof.buffer("k", num_warps=8)
        prof.reset()


@pytest.mark.parametrize(
    ("slots", "made", "expected"),
    [
        (1 << 14, 0, DEFAULT_BYTES["timeline"]),
        (1 << 14, 100, abi.segment_bytes(1 << 14, MARGIN * 100 + MORE)),
        (1 << 14, 10_000, abi.segment_bytes(1 << 14, RECORDS["timeline"])),
        (1 << 6, 0, abi.segment_bytes(1 << 6, SMALL["timeline"])),
    ],
)
def test_what_launches_made_makes_a_large_buffer_smaller_and_never_larger(
    slots: int, made: int, expected: int
) -> None:
    room, cpu = BufferSize(grid=slots, num_warps=1), torch.device("cpu")
    assert room.nbytes(SPEC, EVERYTHING, cpu, None, made) == expected
    assert room.nbytes(SPEC, EVERYTHING, cpu, 8192, made) == 8192
