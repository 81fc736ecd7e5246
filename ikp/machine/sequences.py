"""What a patched kernel runs beside its own instructions: entry, ranges, exit.

The *cell* says where to record: 16 bytes of the module's constant memory, which the host writes
before a launch. All zero, they say that nothing is recorded::

    | address of the segment u64 | bytes of a slot u32 | slots u32 |

Every warp keeps its cursor in two registers, for one thread: the others have one that is above
every limit. What a warp has once is in uniform registers, of which a kernel never has too few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ikp.core import abi
from ikp.core.abi import ClockKind, Kind, Language, OverflowMode, PayloadType, SlotState
from ikp.machine.assembler import NOP, Step
from ikp.machine.chips import HOPPER, Chip
from ikp.machine.forms import Forms
from ikp.machine.ordering import reordered

CELL: Final = "ikp_buffer"
"""The symbol of the cell."""
CELL_BYTES: Final = 16
UNIFORMS: Final = 18
"""How many uniform registers a frame takes; the entry needs more of them than the rest."""
SCRATCH: Final = 12
"""The entry also uses the kernel's first registers, in which there is nothing yet."""

_SLOT = abi.field_offsets(abi.SLOT_HEADER)
_NOBODY = 0xFFFFFFFF  # the cursor of a thread that does not record


@dataclass(frozen=True, slots=True)
class Frame:
    """The registers that a patched kernel keeps for its records from its entry on."""

    cursor: int  # two, the first even: the address of the next record
    uniform: int  # eighteen, the first even
    cell: int  # where the cell stands in the constant bank 3
    warps: int | None = None  # of each block, in one dimension; None where it is not fixed
    chip: Chip = HOPPER

    @property
    def descriptor(self) -> int:
        """The uniform registers that say what global memory is."""
        return self.uniform

    @property
    def limit(self) -> int:
        """The uniform register with the end of the slot."""
        return self.uniform + 2

    @property
    def slot(self) -> int:
        """The uniform register with the slot's address."""
        return self.uniform + 3

    @property
    def high(self) -> int:
        """The uniform register with the upper half of every address in the segment."""
        return self.uniform + 4

    @property
    def first(self) -> int:
        """The uniform register with the clock at the entry."""
        return self.uniform + 5

    @property
    def sm(self) -> int:
        """The uniform register with the number of the SM."""
        return self.uniform + 6

    @property
    def grid_id(self) -> int:
        """The uniform register that identifies the launch."""
        return self.uniform + 7


@dataclass(frozen=True, slots=True)
class Scratch:
    """What is free at one place, and used there alone.

    A record is stored at once if its words are in a row: ``first`` a multiple of four, ``last`` two
    behind it. Entries and exits need such a row, with a fourth register behind it.
    """

    first: int  # two registers, the first even: a record's tag and start
    last: int  # a record's end
    predicate: int
    scoreboard: int
    address: int = 0  # two registers, the first even: at entries and exits

    @property
    def in_a_row(self) -> bool:
        """Whether one store can take a whole record."""
        return self.first % 4 == 0 and self.last == self.first + 2

    @property
    def quad(self) -> int:
        """Four registers in a row, at entries and exits."""
        return self.first

    @property
    def busy(self) -> int:
        """The mask of the scoreboard, which is held until stores have read their registers."""
        return 1 << self.scoreboard


def entry(frame: Frame, scratch: Scratch, language: Language = Language.OTHER) -> list[Step]:
    """Return what stands before a kernel's first instruction."""
    f, u, p = frame.chip.forms, frame.uniform + 8, frame.chip.places
    thread, block, base, slot = 0, 4, 2, 6
    lane, ok = 0, 1  # predicates, all of which are free here
    grid, cell, sizes = u, u + 2, u + 4
    steps = [
        f.wide(scratch.quad, f.GLOBAL_TIMER),
        f.wide(scratch.quad + 2, f.CLOCK),
        *[f.special(block + axis, f.CTAID_X + axis) for axis in range(3)],
        f.special(8, f.SM),
        f.constant(frame.descriptor, 0, p.descriptor, pair=True),
        f.constant(grid, 0, p.grid),
        f.constant(grid + 1, 0, p.grid + 4),
        f.constant(cell, 3, frame.cell, pair=True),
        f.constant(sizes, 3, frame.cell + 8, pair=True),
        f.constant(frame.grid_id, 0, p.grid_id),
        *_warp(frame, thread, u + 6),
        f.multiply_add(block + 1, block + 2, grid + 1, block + 1),
        f.multiply_add(block, block + 1, grid, block),
        f.any_bit(lane, thread, 31),
        f.shift_right(slot, thread, 5),
        f.multiply_add(slot, block, u + 6, slot),
        f.below(ok, slot, sizes + 1, unless=lane),
        f.from_uniform(base, cell),
        f.add(base, base, abi.LAUNCH_HEADER_BYTES),
        f.multiply_add(scratch.address, slot, sizes, base),
        f.from_uniform(scratch.address + 1, cell + 1),
        f.from_uniform(frame.cursor + 1, cell + 1),
        f.add(7, slot, 1),
        f.multiply_add(7, 7, sizes, base),
        f.to_uniform(frame.limit, 7),
        f.to_uniform(frame.slot, scratch.address),
        f.to_uniform(frame.first, scratch.quad + 2),
        f.add(7, scratch.address, abi.SLOT_HEADER_BYTES),
        f.choose(frame.cursor, 7, _NOBODY, ok),
        _put(frame, scratch.address, _SLOT["init_ns"], scratch.quad).when(ok),
        f.to_uniform(frame.high, frame.cursor + 1),
        f.to_uniform(frame.sm, 8),
    ]
    return [*reordered(steps), *_launch_header(frame, scratch, language, u, base, slot, ok)]


def start(frame: Frame, register: int) -> list[Step]:
    """Return what begins a range: the clock is read into a register, to be kept or stored."""
    return [frame.chip.forms.clock(register)]


def keep(frame: Frame, uniform: int, register: int) -> list[Step]:
    """Return what keeps a start in a uniform register."""
    return [frame.chip.forms.to_uniform(uniform, register)]


def end(frame: Frame, scratch: Scratch, tag: int, kept: int | None = None) -> list[Step]:
    """Return what ends a range.

    Args:
        frame: what the kernel keeps.
        scratch: what is free here.
        tag: the record's.
        kept: the uniform register with the range's start; None where it is in place.
    """
    return [frame.chip.forms.clock(scratch.last), *_record(frame, scratch, tag, kept)]


def leave(frame: Frame, scratch: Scratch, tag: int | None = None) -> list[Step]:
    """Return what stands before an EXIT; ``tag``: of the range that lasts since the entry."""
    f, ok, quad = frame.chip.forms, scratch.predicate, scratch.quad
    here = (scratch.address, scratch.address + 1)
    steps = [
        f.wide(quad, f.GLOBAL_TIMER),
        f.wide(quad + 2, f.CLOCK),
        f.from_uniform(here[0], frame.slot),
        f.from_uniform(here[1], frame.high),
        f.differs(ok, frame.cursor, _NOBODY),
        _put(frame, here[0], _SLOT["finish_ns"], quad).when(ok),
    ]
    if tag is not None:
        steps += _record(frame, scratch, tag, frame.first)
    count = frame.cursor
    last = [
        f.differs(ok, frame.cursor, _NOBODY),
        f.subtract_uniform(count, frame.cursor, frame.slot).after(scratch.busy),
        f.add(count, count, -abi.SLOT_HEADER_BYTES),
        f.shift_right(count, count, abi.RECORD_BYTES.bit_length() - 1),
        f.subtract_uniform(count + 1, frame.cursor + 1, frame.high),
        f.sum_of(count, count, count + 1),
        f.from_uniform(quad, frame.sm),
        f.from_uniform(quad + 1, frame.grid_id),
        f.immediate(quad + 2, SlotState.FINISHED),
        f.immediate(quad + 3, 0),
        _put(frame, here[0], _SLOT["attempted"], count, 1).when(ok),
        _put(frame, here[0], _SLOT["sm"], quad).when(ok),
    ]
    return [*reordered(steps), *reordered(last)]


def range_tag(region: int) -> int:
    """Return the tag of a range."""
    return abi.tag(Kind.RANGE, PayloadType.NONE, region)


def _record(frame: Frame, scratch: Scratch, tag: int, kept: int | None) -> list[Step]:
    """Store the record if there is room.

    The cursor moves first: behind the store, it would have to wait until that has read it. Where
    the slot is full, no address is needed any more: its upper half counts what is dropped. What is
    kept is read last: a range may be so short that its start is only just on its way.
    """
    f, first, room = frame.chip.forms, scratch.first, scratch.predicate
    back = -abi.RECORD_BYTES
    if scratch.in_a_row:  # nobody reads what is stored as the payload
        stores = [_put(frame, frame.cursor, back, first)]
    else:
        stores = [
            _put(frame, frame.cursor, back, first, 2),
            _put(frame, frame.cursor, back + 8, scratch.last, 1),
        ]
    return [
        f.below(room, frame.cursor, frame.limit),
        f.immediate(first, tag),
        f.add(frame.cursor, frame.cursor, abi.RECORD_BYTES).when(room),
        f.add(frame.cursor + 1, frame.cursor + 1, 1).when(room, holds=False),
        *([] if kept is None else [f.from_uniform(first + 1, kept)]),
        *[store.when(room) for store in stores],
    ]


def _warp(frame: Frame, thread: int, warps: int) -> list[Step]:
    """Get a thread's number in its block, and, uniform, how many warps that has."""
    f, u, p = frame.chip.forms, warps + 1, frame.chip.places
    if frame.warps is not None:
        fixed = [f.immediate(7, frame.warps), f.to_uniform(warps, 7)]
        return [f.special(thread, f.TID_X), *fixed]
    y, z = 9, 10
    return [
        *[f.special(into, f.TID_X + axis) for axis, into in enumerate((thread, y, z))],
        *[f.constant(into, 0, p.block + 4 * axis) for axis, into in enumerate((u, u + 1, warps))],
        f.multiply_add(y, z, u + 1, y),
        f.multiply_add(thread, y, u, thread),
        f.multiply_uniform(warps, warps, u),
        f.multiply_uniform(warps, warps, u + 1),
        f.from_uniform(7, warps),
        f.add(7, 7, 31),
        f.shift_right(7, 7, 5),
        f.to_uniform(warps, 7),
    ]


def _launch_header(
    frame: Frame, scratch: Scratch, language: Language, u: int, base: int, slot: int, ok: int
) -> list[Step]:
    """Let the launch's first warp write what the launch is."""
    f, p, row = frame.chip.forms, frame.chip.places, 8
    sizes, warps = u + 4, u + 6
    header = abi.field_offsets(abi.LAUNCH_HEADER)
    here = {name: offset - abi.LAUNCH_HEADER_BYTES for name, offset in header.items()}

    def put(name: str, words: int = 4) -> Step:
        return _put(frame, base, here[name], row, words).when(ok)

    body = [
        f.from_uniform(base + 1, u + 3),
        f.immediate(row, abi.MAGIC),
        f.immediate(row + 1, abi.ABI_VERSION),
        *_constants(f, row + 2, u, p.grid, 2),
        put("magic"),
        *_constants(f, row, u, p.grid + 8, 1),
        *_constants(f, row + 1, u, p.block, 3),
        put("grid_z"),
        f.from_uniform(row, warps),
        f.from_uniform(row + 1, sizes),
        f.immediate(row + 2, ClockKind.CYCLES),
        f.immediate(row + 3, OverflowMode.STOP),
        put("warps_per_block"),
        f.from_uniform(row, frame.grid_id),
        put("grid_id", 1),
        f.immediate(row + 1, 1),
        f.count_up(base, here["launches"], row + 1, frame.descriptor).when(ok),
        f.immediate(row, language),
        f.immediate(row + 1, 0),
        put("language", 2),
        NOP.after(scratch.busy),  # the kernel may use these registers at once
    ]
    other, room = 2, 3
    return [
        f.differs(other, slot, 0),
        f.below(room, slot, sizes + 1),
        f.skip(len(body) + 1).when(other),
        f.skip(len(body)).when(room, holds=False),
        *body,
    ]


def _constants(f: Forms, into: int, uniform: int, offset: int, count: int) -> list[Step]:
    """Copy words of the constant bank 0 to registers."""
    steps = []
    for number in range(count):
        steps += [
            f.constant(uniform, 0, offset + 4 * number),
            f.from_uniform(into + number, uniform),
        ]
    return steps


def _put(frame: Frame, address: int, offset: int, value: int, words: int = 4) -> Step:
    return frame.chip.forms.store(address, offset, value, words, frame.descriptor)
