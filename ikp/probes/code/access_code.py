"""Code of address probes: the lanes of sampled warps store their addresses before an access.

An address probe needs no cursor. Each access of each sampled warp has a table in the buffer::

    | lanes that made it u32 | unused 12 bytes | entry x capacity |
    entry: | lane u32 | address u64 | mask of the lanes that made the access together u32 |

A lane adds one to the number of lanes, atomically; the number before is its entry's place. What has
no room is counted, and not stored. A lane's address in an entry lacks the constant in the
instruction. The probe waits for all scoreboards first: then registers that are dead are free, and
those of the address are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ikp.probes.code.reserved_registers import PLACES, Cell
from ikp.probes.code.selection_code import NO_SLOT
from ikp.sass.assembly import forms, lane_forms
from ikp.sass.assembly.assembler import NOP, PT, Step
from ikp.sass.assembly.forms import RZ
from ikp.sass.disassembly.memory_operands import Access

ENTRY_BYTES: Final = 16
HEAD_BYTES: Final = 16
_ALL_SCOREBOARDS: Final = 0x3F
_SETTLED: Final = 15
"""Cycles until what the kernel has computed by fixed latency can be read."""


@dataclass(frozen=True, slots=True)
class WarpSample:
    """The warps that record: all warps of each block whose number is a multiple of a power of 2."""

    grid: tuple[int, int, int]  # blocks
    block: tuple[int, int, int]  # threads
    bits: int  # one block in 2 to the power of this

    @property
    def warps(self) -> int:
        """How many warps a block has."""
        x, y, z = self.block
        return -(-x * y * z // 32)

    @property
    def blocks(self) -> int:
        """How many blocks record."""
        x, y, z = self.grid
        return -(-x * y * z >> self.bits) if self.bits else x * y * z

    @property
    def slots(self) -> int:
        """How many warps record."""
        return self.blocks * self.warps


@dataclass(frozen=True, slots=True)
class Tables:
    """The layout of the buffer: one table for each access of each sampled warp."""

    accesses: int
    slots: int
    capacity: int  # entries of a table

    @property
    def table_bytes(self) -> int:
        """The size of one table."""
        return HEAD_BYTES + ENTRY_BYTES * self.capacity

    @property
    def slot_bytes(self) -> int:
        """The size of a warp's tables."""
        return self.accesses * self.table_bytes

    @property
    def nbytes(self) -> int:
        """The size of the buffer."""
        return self.slots * self.slot_bytes


@dataclass(frozen=True, slots=True)
class AccessRegisters:
    """The registers that a probe may use, and those that are reserved for probes."""

    slot: int  # uniform: the warp's number among those that record; NO_SLOT for others
    descriptor: int  # uniform, two
    quad: int  # four registers
    pair: int  # two
    place: int
    predicate: int
    saved: int | None = None  # the register that keeps the predicate, where the kernel needs it


def number(sample: WarpSample, slot: int, free: Sequence[int], ok: int) -> list[Step]:
    """Return the code at the entry that keeps a warp's number among those that record.

    Args:
        sample: the warps that record.
        slot: the uniform register for the number.
        free: six registers.
        ok: a predicate.
    """
    f, (x, y, z, tx, ty, tz) = forms, free
    (columns, rows, _), (wide, high, _) = sample.grid, sample.block
    axes = [(x, f.CTAID_X), (y, f.CTAID_X + 1), (z, f.CTAID_X + 2)]
    axes += [(tx, f.TID_X), (ty, f.TID_X + 1), (tz, f.TID_X + 2)]
    multiply = lane_forms.multiply_add
    return [
        *[f.special(into, which) for into, which in axes],
        multiply(y, z, rows, y),
        multiply(x, y, columns, x),
        multiply(ty, tz, high, ty),
        multiply(tx, ty, wide, tx),
        f.shift_right(tx, tx, 5),
        f.immediate(y, (1 << sample.bits) - 1),
        lane_forms.select(y, y, x, RZ),
        f.below_constant(ok, y, 1),
        f.shift_right(x, x, sample.bits),
        multiply(x, x, sample.warps, tx),
        f.choose(x, x, NO_SLOT, ok),
        f.to_uniform(slot, x),
    ]


def probe(
    access: Access, at: int, tables: Tables, ground: AccessRegisters, cell: Cell
) -> list[Step]:
    """Return the code before an access.

    Args:
        access: what is recorded.
        at: the access's number among those of the kernel.
        tables: the buffer's layout.
        ground: registers.
        cell: the constants with the buffer's address and the number of warps that record.
    """
    f, lanes, g = forms, lane_forms, ground
    lane, low, high, mask = range(g.quad, g.quad + 4)
    begin, ok, place = at * tables.table_bytes, g.predicate, g.place
    asked = [
        lanes.holds(ok, which, negated=negated).when(PT if not n else ok)
        for n, (which, negated) in enumerate(access.conditions)
    ]
    body = [
        f.constant(g.descriptor, 0, PLACES.descriptor, pair=True),
        f.load_constant(g.pair, *cell, pair=True),
        f.load_constant(low, *cell.beyond(8)),
        f.special(lane, f.LANE),
        *asked,
        f.below_other(ok, place, low, where=ok if asked else PT),
        lanes.ballot(mask, ok),
        lanes.multiply_add(g.pair, place, tables.slot_bytes, g.pair),
        f.immediate(low, 1),
        lanes.count(place, g.pair, begin, low, g.descriptor).when(ok),
        lanes.below_constant(ok, place, tables.capacity, ok),
        lanes.multiply_add(g.pair, place, ENTRY_BYTES, g.pair),
        *_address(access, low, high),
        f.store(g.pair, begin + HEAD_BYTES, g.quad, 4, g.descriptor).when(ok),
        NOP.after(_ALL_SCOREBOARDS),  # the store has read its registers
    ]
    saved = g.saved
    return [
        NOP._replace(stall=_SETTLED, waits=_ALL_SCOREBOARDS),
        *([] if saved is None else [f.save(saved, ok)]),
        f.from_uniform(place, g.slot),
        f.below_constant(ok, place, tables.slots),
        f.skip(len(body)).when(ok, holds=False),
        *body,
        *([] if saved is None else [f.restore(ok, saved)]),
    ]


def _address(access: Access, low: int, high: int) -> list[Step]:
    """Return the code that puts a lane's address into two registers."""
    f, own, uniform = forms, access.own, access.uniform
    if own is None:
        return [
            f.immediate(low, 0) if uniform is None else f.from_uniform(low, uniform),
            f.immediate(high, 0),
        ]
    return [
        f.copy(low, own) if uniform is None else lane_forms.add_uniform(low, own, uniform),
        f.copy(high, own + 1) if access.wide else f.immediate(high, 0),
    ]
