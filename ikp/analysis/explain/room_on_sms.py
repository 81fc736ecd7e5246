"""Occupancy: how many warps an SM held, how many it has room for, and what limits them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ikp.analysis.explain.peaks import peak_of
from ikp.analysis.explain.prepared import Prepared

_PARTS: Final = 4
_IN_A_PART: Final = 16384
"""Registers of each part of an SM: a warp's are all in one (all chips since sm_70)."""
_PORTION: Final = 8
_LANES: Final = 32
_SHARED: Final = 228 << 10
"""Bytes of an SM (sm_90, sm_100): other chips have less."""
_RESERVED: Final = 1 << 10
"""Bytes of each block that the system takes."""
_MOST_BLOCKS: Final = 32


@dataclass(frozen=True, slots=True)
class Room:
    """Warps on an SM at once, and their limit; None where unknown."""

    warps: float | None  # as they were, or as registers allow where not all blocks recorded
    possible: int | None  # by the device alone
    limited_by: (
        str | None
    )  # "registers" | "shared memory" | "CTA slots" | "warps" | "the grid" | "recording"
    registers: int | None  # of the kernel; of the copy with records, where its own are not known
    waves: int | None = None  # of blocks that an SM has one after another, as they were
    fewest: int | None = None  # the same, with as many at once as the device has room for
    counted: bool = False  # whether all blocks are known, so that ``warps`` and ``waves`` were seen
    plain: int | None = None  # warps that there is room for without recording, where that is more


def room_of(launch: Prepared) -> Room:
    """Return the occupancy of the median SM."""
    peak = peak_of(launch.launch.device)
    each = launch.launch.warps_per_block
    ran = launch.facts.registers if launch.facts else None
    registers = (launch.facts.plain_registers or ran) if launch.facts else None
    held = _held(launch)
    if peak is None:
        counted = None if held is None else held * each
        return Room(counted, None, None, registers, counted=held is not None)
    by_warps = peak.warps // each
    by_registers = _by_registers(ran, each) if ran else None
    by_grid = -(-int(np.prod(launch.launch.grid)) // peak.sms)
    blocks = held if held is not None else min(by_registers or by_warps, by_warps, by_grid)
    known = held is not None or by_registers is not None
    if not known:
        return Room(None, by_warps * each, None, registers)
    limit = _limit(blocks, by_warps, by_registers, by_grid)
    plain = None
    if limit == "registers" and registers:
        room = min(_by_registers(registers, each), by_warps, by_grid, _by_shared(launch))
        plain = room * each if room > blocks else None
        limit = "recording" if plain else limit
    waves, fewest = (-(-by_grid // max(at_once, 1)) for at_once in (blocks, by_warps))
    return Room(
        blocks * each, by_warps * each, limit, registers, waves, fewest, held is not None, plain
    )


def most_blocks(launch: Prepared) -> int | None:
    """Return how many blocks an SM has room for, by the device alone; None of an unknown one."""
    peak = peak_of(launch.launch.device)
    return min(peak.warps // launch.launch.warps_per_block, _MOST_BLOCKS) if peak else None


def _held(launch: Prepared) -> int | None:
    """Return how many blocks the median SM held at once; None where not all recorded."""
    if not launch.every_block:
        return None
    return int(np.median(launch.lanes.lanes))


def _by_registers(registers: int, warps: int) -> int:
    each = -(-registers // _PORTION) * _PORTION * _LANES
    return max(_IN_A_PART // each * _PARTS // warps, 1)


def _by_shared(launch: Prepared) -> int:
    """Return how many blocks shared memory has room for, at most."""
    shared = launch.facts.shared if launch.facts else None
    return _SHARED // (shared + _RESERVED) if shared else _MOST_BLOCKS


def _limit(blocks: int, by_warps: int, by_registers: int | None, by_grid: int) -> str | None:
    """Return what limits the number of blocks on an SM; None if unknown."""
    if blocks >= by_grid:
        return "the grid"
    if blocks >= by_warps:
        return "warps"
    if by_registers is None:
        return None
    if blocks >= by_registers:
        return "registers"
    return "CTA slots" if blocks >= _MOST_BLOCKS else "shared memory"
