"""Accesses to memory by their lanes' addresses: sectors, cycles of shared memory, distinct ones."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ikp.core.work_facts import AccessFacts
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.lane_state import (
    ASSUMED,
    BLOCK,
    DATA,
    LANE,
    LANES,
    WARP,
    Launched,
    Shape,
)
from ikp.sass.dataflow.lane_values import LaneValues
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.units import unit_of

_SECTOR = 32
_BANKS = 32
_WORD = 4
_ROW = 128
"""Bytes of shared memory in one cycle."""
_ROWS = 8
"""Lanes that give the addresses of one matrix of LDSM and STSM."""
_LETTERS = {LANE: "l", WARP: "w", BLOCK: "b", DATA: "d", ASSUMED: "p"}
_KINDS = ("load", "store", "atomic", "copy")
_SOME_BLOCKS = 2
"""Blocks of which requests are looked at one by one."""
_MOST = 24
"""Accesses that are kept of one range, those of most instructions."""


@dataclass(frozen=True)
class Accesses:
    """The accesses of one kernel.

    Args:
        flow: the kernel.
        shape: how it was launched.
        first_parameter: where parameters begin in the constant bank.
        parameters: their 32-bit values, by their offset in it, as far as they are known.
    """

    flow: Flow
    shape: Shape
    first_parameter: int
    parameters: Mapping[int, int] = field(default_factory=dict)

    @cached_property
    def values(self) -> LaneValues:
        """The values of its registers."""
        return LaneValues(self.flow, Launched(self.shape, self.parameters, self.first_parameter))

    def of(self, instructions: Iterable[int]) -> tuple[AccessFacts, ...]:
        """Return the accesses among some instructions; those that are alike are one."""
        found: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for at in instructions:
            each = self.flow.code.instructions[at]
            unit = unit_of(each)
            if unit.startswith(_KINDS) and "." in unit and unit != "copy.bulk":
                one, key = self._one(at, each, unit)
                found[one].append(key)
        order = sorted(found.items(), key=lambda item: -len(item[1]))[:_MOST]
        return tuple(
            replace(AccessFacts(str(unit), len(keys), str(line), *rest), key=_joined(keys))  # type: ignore[arg-type]
            for (unit, line, *rest), keys in order
        )

    def bulk_bytes(self, instructions: Iterable[int]) -> int | None:
        """Return the bytes that bulk copies are announced with; None where that is not known."""
        total = 0
        for at in instructions:
            each = self.flow.code.instructions[at]
            parts = each.opcode.split(".")
            if parts[:2] == ["SYNCS", "ARRIVE"] and "TRANS64" in parts and "A1T0" not in parts:
                bits = self.values.operand(at).bits
                if bits is None or np.ptp(bits):
                    return None
                total += int(bits[0])
        return total

    def _one(self, at: int, each: Instruction, unit: str) -> tuple[tuple[object, ...], int]:
        """Return what is known of an access, and a key of its addresses."""
        value, guard = self.values.address(at), self.values.active(at)
        loop = self.flow.loop_of(at)
        letters = "".join(letter for bit, letter in _LETTERS.items() if value.depends & bit)
        if loop is not None and self.values.depends_on_loop(value.depends, loop.header):
            letters += "i"
        cost, least, addresses, share, reused, key = None, None, None, None, None, 0
        if value.bits is not None:
            active = np.ones(len(value.bits), bool) if guard.bits is None else guard.bits != 0
            some = _SOME_BLOCKS * self.shape.warps * LANES
            cost, least, addresses = _of_warps(each, unit, value.bits[:some], active[:some])
            if ".global." in unit:
                share = _shared_by_blocks(value.bits, active, self.shape.warps, self.shape.blocks)
                reused = _shared_by_blocks(value.bits, active, self.shape.warps, None)
                key = zlib.crc32(value.bits.tobytes())
        line = f"{each.lines[-1].file}:{each.lines[-1].number}" if each.lines else ""
        return (unit, line, cost, least, addresses, letters, loop is not None, share, reused), key


def _joined(keys: list[int]) -> int:
    """Return the key of a set of accesses; 0 where one has none."""
    return zlib.crc32(str(sorted({*keys})).encode()) if all(keys) else 0


def _of_warps(
    each: Instruction, unit: str, bits: NDArray[np.int64], active: NDArray[np.bool_]
) -> tuple[float | None, float | None, int | None]:
    """Return the cost of a warp's request, its least cost, and its distinct addresses: medians."""
    size = int(unit.rsplit(".", 1)[1])
    found = []
    for lanes, on in zip(bits.reshape(-1, LANES), active.reshape(-1, LANES), strict=True):
        some = lanes[on]
        if not len(some):
            continue
        if each.op in ("LDSM", "STSM"):
            cost, least = _matrices(some, size // _WORD), size // _WORD
        elif ".shared." in unit:
            cost, least = _cycles(some, size), max(-(-len(some) * size // _ROW), 1)
        else:
            cost = _sectors(some, size)
            least = max(-(-len(np.unique(some)) * size // _SECTOR), 1)
        found.append((cost, least, len(np.unique(some))))
    if not found:
        return None, None, None
    cost, least, addresses = np.median(np.array(found), axis=0).tolist()
    return float(cost), float(least), int(addresses)


def _sectors(addresses: NDArray[np.int64], size: int) -> int:
    first, last = addresses // _SECTOR, (addresses + size - 1) // _SECTOR
    return len(np.unique(np.concatenate([first, last])))


def _cycles(addresses: NDArray[np.int64], size: int) -> int:
    """Return the cycles of an access: lanes of at most 128 bytes at once, a row for each bank."""
    at_once = min(_ROW // max(size, _WORD), LANES)
    total = 0
    for first in range(0, len(addresses), at_once):
        some = addresses[first : first + at_once]
        words = np.unique((some[:, None] + np.arange(0, size, _WORD)) // _WORD)
        total += int(np.bincount(words % _BANKS).max())
    return total


def _matrices(addresses: NDArray[np.int64], count: int) -> int:
    total = 0
    for first in range(0, _ROWS * count, _ROWS):
        rows = addresses[first : first + _ROWS]
        if len(rows):
            words = np.unique((rows[:, None] + np.arange(0, 16, _WORD)) // _WORD)
            total += int(np.bincount(words % _BANKS).max())
    return total


def _shared_by_blocks(
    bits: NDArray[np.int64], active: NDArray[np.bool_], warps: int, most: int | None
) -> float | None:
    """Return the share of sectors that an earlier one of the first ``most`` blocks has, too."""
    each = warps * LANES
    sectors = [
        np.unique(some[on] // _SECTOR)
        for some, on in zip(
            bits.reshape(-1, each)[:most], active.reshape(-1, each)[:most], strict=True
        )
    ]
    total = sum(map(len, sectors))
    return round(1 - len(np.unique(np.concatenate(sectors))) / total, 3) if total else None
