"""Accesses to memory by their lanes' addresses: sectors, cycles of shared memory, distinct ones."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ikp.core.code_facts import AccessFacts
from ikp.inspection._work import Often
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
from ikp.sass.disassembly.opcodes import unit_of

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
_KEYS = 8
"""Addresses by which an access is known again."""
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

    def of(self, how_often: Mapping[int, Often]) -> tuple[AccessFacts, ...]:
        """Return the accesses among some instructions; those that are alike are one."""
        found: dict[tuple[object, ...], list[int]] = defaultdict(list)
        counts: dict[tuple[object, ...], float] = defaultdict(float)
        for at, often in how_often.items():
            each = self.flow.code.instructions[at]
            unit = unit_of(each)
            if unit.startswith(_KINDS) and "." in unit and unit != "copy.bulk":
                one, key = self._one(at, each, unit)
                found[one].append(key)
                counts[one] += often.expected
        order = sorted(found.items(), key=lambda item: (-counts[item[0]], -len(item[1])))[:_MOST]
        return tuple(
            replace(
                AccessFacts(str(unit), round(counts[unit, line, *rest], 3), str(line), *rest),  # type: ignore[arg-type]
                keys=tuple(sorted({*keys} - {0}))[:_KEYS],
            )
            for (unit, line, *rest), keys in order
        )

    def bulk_bytes(self, how_often: Mapping[int, Often]) -> float | None:
        """Return the bytes that bulk copies are announced with; None where that is not known."""
        total = 0.0
        for at, often in how_often.items():
            each = self.flow.code.instructions[at]
            parts = each.opcode.split(".")
            if parts[:2] == ["SYNCS", "ARRIVE"] and "TRANS64" in parts and "A1T0" not in parts:
                bits = self.values.operand(at).bits
                if bits is None or np.ptp(bits) or often.looped:
                    return None
                total += int(bits[0]) * often.expected
        return total

    def _one(self, at: int, each: Instruction, unit: str) -> tuple[tuple[object, ...], int]:
        """Return what is known of an access, and a key of its addresses."""
        value, active = self.values.address(at), self.values.active(at)
        loop = self.flow.loop_of(at)
        letters = "".join(letter for bit, letter in _LETTERS.items() if value.depends & bit)
        if loop is not None and self.values.moves(at, loop.header):
            letters += "i"
        cost, least, addresses, share, reused, key = None, None, None, None, None, 0
        lanes, span = _lanes(active), None
        if value.bits is not None:
            some = _SOME_BLOCKS * self.shape.warps * LANES
            cost, least, addresses = _of_warps(each, unit, value.bits[:some], active[:some])
            if ".global." in unit:
                every = range(len(self.shape.numbers))
                near, far = every[: self.shape.blocks], [0, *every[self.shape.blocks :]]
                share = _shared_by_blocks(value.bits, active, self.shape.warps, near)
                if len(far) > 1:
                    reused = _shared_by_blocks(value.bits, active, self.shape.warps, far)
                key = zlib.crc32(value.bits.tobytes())
                if active.any():
                    span = int(np.ptp(value.bits[active])) + int(unit.rsplit(".", 1)[1])
        line = f"{each.lines[-1].file}:{each.lines[-1].number}" if each.lines else ""
        return (
            unit,
            line,
            cost,
            least,
            addresses,
            letters,
            loop is not None,
            share,
            reused,
            lanes,
            span,
        ), key


def _lanes(active: NDArray[np.bool_]) -> float:
    """Return how many lanes of a warp are active, in those that have any; 32 where none has."""
    counts = active.reshape(-1, LANES).sum(axis=1)
    return round(float(counts[counts > 0].mean()), 1) if counts.any() else float(LANES)


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
    bits: NDArray[np.int64], active: NDArray[np.bool_], warps: int, blocks: Sequence[int]
) -> float | None:
    """Return the share of sectors that an earlier one of some blocks has, too."""
    by_block, on = (each.reshape(-1, warps * LANES) for each in (bits, active))
    sectors = [np.unique(by_block[block][on[block]] // _SECTOR) for block in blocks]
    total = sum(map(len, sectors))
    return round(1 - len(np.unique(np.concatenate(sectors))) / total, 3) if total else None
