"""Figures from the tables of address probes, against answers that are known by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ikp.core.address_tables import RecordedAccess, figures
from ikp.core.run_figures import (
    ADDRESSES,
    AccessFigures,
    AddressFigures,
    read_addresses,
)

pytestmark = pytest.mark.any_pins
LANES = np.arange(32)
ALL = (1 << 32) - 1
CAPACITY = 64


def table(requests, capacity=CAPACITY, seed=0):
    """Return one warp's table: requests are (lanes, their addresses); lanes store in any order."""
    words = np.zeros(4 + 4 * capacity, np.uint32)
    rows = []
    for lanes, addresses in requests:
        mask = sum(1 << int(lane) for lane in lanes)
        order = np.random.default_rng(seed).permutation(len(lanes))
        rows += [(lanes[n], addresses[n] & ALL, addresses[n] >> 32, mask) for n in order.tolist()]
    words[0] = len(rows)
    kept = np.array(rows[:capacity], np.uint32).reshape(-1, 4)
    words[4 : 4 + kept.size] = kept.ravel()
    return words


def figured(space, width, requests, kind="load", lanes=32, beyond=0, capacity=CAPACITY):
    access = RecordedAccess("X", "f.py:1", "", space, kind, width, lanes, beyond)
    data = table(requests, capacity).tobytes()
    (found,) = figures(data, [access], 1, capacity)
    return found


@pytest.mark.parametrize(
    ("width", "stride", "sectors", "least"),
    [(4, 4, 4, 4), (4, 8, 8, 4), (4, 32, 32, 4), (4, 0, 1, 4), (16, 16, 16, 16), (2, 2, 2, 2)],
)
def test_sectors_of_global_memory(width: int, stride: int, sectors: int, least: int) -> None:
    found = figured("global", width, [(LANES, 0x7F00_0000_1000 + stride * LANES)])
    assert (found.cost, found.least, found.stride) == (sectors, least, stride)
    assert (found.active, found.requests, found.executed) == (32, 1, 32)


def test_a_constant_in_the_instruction_counts() -> None:
    at = [(LANES, 0x1000 + 4 * LANES)]
    assert figured("global", 4, at).cost == 4
    assert figured("global", 4, at, beyond=16).cost == 5


@pytest.mark.parametrize(
    ("width", "stride", "wavefronts", "least"),
    [
        (4, 4, 1, 1),
        (4, 8, 2, 1),
        (4, 128, 32, 1),
        (4, 132, 1, 1),
        (4, 0, 1, 1),  # one word is broadcast
        (2, 2, 1, 1),
        (8, 8, 2, 2),
        (8, 16, 4, 2),
        (16, 16, 4, 4),
        (16, 128, 32, 4),
        (16, 144, 4, 4),
        (8, 0, 1, 1),  # both halves of the warp ask for the same words
        (16, 0, 2, 2),
    ],
)
def test_wavefronts_of_shared_memory(width: int, stride: int, wavefronts: int, least: int) -> None:
    found = figured("shared", width, [(LANES, 0x400 + stride * LANES)])
    assert (found.cost, found.least) == (wavefronts, least)


def test_lanes_of_a_shared_atomic_with_one_address_go_one_after_another() -> None:
    addresses = LANES // 4 * 4
    assert figured("shared", 4, [(LANES, addresses)], "atomic").cost == 4
    assert figured("shared", 4, [(LANES, addresses)], "load").cost == 1


def test_matrices_have_the_addresses_of_eight_lanes_each() -> None:
    rows = 64 * LANES  # of 16 bytes each, 64 bytes apart: every second one in the same banks
    assert figured("shared", 16, [(LANES, rows)], lanes=8).cost == 4
    assert figured("shared", 16, [(LANES, rows)], lanes=32).cost == 16


def test_lanes_of_one_address() -> None:
    found = figured("global", 4, [(LANES, LANES // 8 * 4096)], "atomic")
    assert (found.same_address, found.cost) == (8, 4)


def test_local_memory_is_interleaved_by_lane() -> None:
    assert figured("local", 4, [(LANES, np.full(32, 64))]).cost == 4
    assert figured("local", 4, [(LANES, 4 * LANES)]).cost == 32
    assert figured("local", 16, [(LANES, np.full(32, 64))]).cost == 16


def test_lanes_that_part_are_two_requests() -> None:
    even, odd = LANES[::2], LANES[1::2]
    found = figured("global", 4, [(even, 0x1000 + 4 * even), (odd, 0x8000 + 4 * odd)] * 2)
    assert (found.requests, found.active, found.cost) == (4, 16, 4)


def test_reuse_is_of_a_block_and_blocks_share() -> None:
    access = RecordedAccess("X", "", "", "global", "load", 4, 32, 0)
    rows = [(LANES, 0x1000 + 4 * LANES)] * 2
    other = [(LANES, 0x9000 + 4 * LANES)]
    data = np.concatenate([table(rows), table(rows), table(rows), table(other)]).tobytes()
    (found,) = figures(data, [access], 2, CAPACITY)  # two blocks of two warps
    assert found.reuse == round((16 + 12) / (4 + 8), 4)
    assert found.blocks_share == round((4 + 8) / 8, 4)


def test_a_request_of_which_a_lane_had_no_room_is_left_out() -> None:
    found = figured("global", 4, [(LANES, 0x1000 + 64 * LANES)] * 3, capacity=64 + 16)
    assert (found.requests, found.executed, found.dropped) == (2, 96, 16)
    assert figured("global", 4, []).requests == 0


def test_figures_come_back_from_their_text() -> None:
    each = figured("shared", 4, [(LANES, 128 * LANES)])
    nothing = AccessFigures("Y", "", "loop", "global", "store", 8, 0, 0, 0)
    made = AddressFigures(4, 100, 16, "equal", (("Z", "why"),), (each, nothing))
    assert read_addresses({f"{ADDRESSES}k": made.text()}, "k") == made
    assert read_addresses({f"{ADDRESSES}k": made.text()[:-9]}, "k") is None
    assert read_addresses({}, "k") is None
