"""Data classes for registers of probe code: reserved ones, and those that are free at one point.

Where uniform registers run out, part of a frame is in per-thread registers. Values that never
change may lie there: all threads of a warp have them alike, converged or diverged. The cursor is
the warp's, if one uniform register is left. If none is, each thread counts, and all alike: records
are made only where all threads of a warp come. If some came later than others, theirs would
overwrite the same record.

Probe code is made as if all registers were uniform; ``fitted_to_threads`` replaces the instructions
of which a register is a thread's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ikp.core.segment import Selection
from ikp.errors import PatchError
from ikp.sass.assembly.assembler import Resource, Step
from ikp.sass.assembly.forms import add, copy, immediate
from ikp.sass.disassembly.effects import P, R, span


@dataclass(frozen=True, slots=True)
class ConstantOffsets:
    """The constants that probes read: offsets in bank 0 of sm_90's launch parameters."""

    block: int = 0x0  # threads of a block: x, y, z
    grid: int = 0xC  # blocks: x, y, z
    grid_id: int = 0x30
    descriptor: int = 0x208  # of global memory


PLACES: Final = ConstantOffsets()


class Cell(NamedTuple):
    """The constants that hold where a launch records: address, slot size, number of slots."""

    bank: int  # 3: of the module; 0: the kernel's last argument
    offset: int  # as sm_90 has it

    def beyond(self, nbytes: int) -> Cell:
        """Return the constants so many bytes behind it."""
        return Cell(self.bank, self.offset + nbytes)


_BEGIN: Final = Cell(3, 0)
LENT: Final = 126
"""A frame's ``descriptor`` where it keeps no pair for it: see ``register_choice``."""
NEAR: Final = 124
"""A frame's ``descriptor`` where it needs none: uniform registers hold addresses. See ``near``."""
_MOST = 3
"""The most ``row_bits``: eight records are a line of the cache."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The uniform registers that a patched kernel reserves for probes from its entry on."""

    descriptor: int  # two, the first even: the descriptor of global memory; or LENT, or NEAR
    records: int  # the address of the warp's first record; of two with its upper half, if NEAR
    high: int  # the upper half of every address in the segment
    room: int  # how many records there is room for, 0 where it records nothing; even, if NEAR
    count: int  # how many it has made, those without room among them
    header: int  # the address of the warp's header; of two, if NEAR
    entered: tuple[int, ...] = ()  # both clocks at the entry, SM and grid id; none: stored then
    cell: Cell = _BEGIN
    warps: int | None = None  # of each block, in one dimension; None where it is not fixed
    own: tuple[int, ...] = ()  # threads' registers that it has, too: see ``fitted_to_threads``
    flat: bool = False  # whether each launch's blocks are in one dimension
    sure: bool = False  # whether each launch has slots for all its warps, or room for no record
    gathers: bool = False  # whether a warp stores several records at once
    threads: tuple[int, ...] = ()  # a thread's number in its warp, and the masks of ``Gathered``
    selection: Cell | None = None  # the constants that say which warps record; None: all do
    blocks: Selection | None = None  # those that record, each with its number in ``records``
    behind: int | None = None  # if these have no slot: the bytes of one beside its records

    @property
    def lends(self) -> bool:
        """Whether each probe loads the descriptor into a scavenged pair of its own."""
        return self.descriptor == LENT

    @property
    def near(self) -> bool:
        """Whether stores take their addresses from its uniform pairs."""
        return self.descriptor == NEAR

    @property
    def row_bits(self) -> int:
        """How many warps' records lie in a row, as a power of two; rows divide a block."""
        if self.warps is None or self.selection is not None or self.gathers:
            return 0
        return min((self.warps & -self.warps).bit_length() - 1, _MOST)

    @property
    def all(self) -> frozenset[int]:
        """All its uniform registers."""
        own = (self.records, self.high, self.room, self.count, self.header, *self.entered)
        pair = (self.descriptor, self.descriptor + 1)
        return frozenset((*own, self.records + 1) if self.near else (*own, *pair))


@dataclass(frozen=True, slots=True)
class EntryRegisters:
    """The registers that are free where a warp finds its slot."""

    cell: int  # two, the first even
    sizes: int  # two, the first even
    single: tuple[int, ...]
    quads: tuple[int, ...]  # rows of four; with three, no store waits for another
    predicate: int
    scoreboard: int


@dataclass(frozen=True, slots=True)
class NearGround:
    """The registers that are free there, where stores take addresses from uniform registers."""

    thread: int
    pair: int  # two uniform registers, the first even, beside that of the frame's room
    flag: int  # a uniform predicate
    quads: tuple[int, ...]  # as above
    predicate: int
    scoreboard: int


def address_at(first: int, *, near: bool) -> int:
    """Return the registers of an address, as bits: one, where uniform ones hold the rest."""
    return (1 if near else 3) << first


@dataclass(frozen=True, slots=True)
class Shared:
    """The registers that the records of a batch share: address and predicate."""

    address: int  # two registers, the first even; one if ``near``
    predicate: int
    saved: int | None = None  # the register that the predicate is saved in, if the kernel needs it
    near: bool = False  # whether uniform registers hold the rest of the address

    @property
    def where(self) -> int:
        """The registers of the address, as bits."""
        return address_at(self.address, near=self.near)

    @property
    def bits(self) -> int:
        """All these registers, as bits."""
        own = 0 if self.saved is None else 1 << R.first + self.saved
        return 1 << P.first + self.predicate | self.where | own


@dataclass(frozen=True, slots=True)
class Gathered:
    """The registers of records that one store takes, each from a thread that holds its words."""

    words: int  # a multiple of four: tag, start, end
    masks: tuple[int, int]  # the byte with the highest bit set is the thread's; the 2nd may be RZ
    number: int  # of a thread's record, and then the address that it is stored at
    board: int | None  # the scoreboard of reading lane ids; None: the frame has masks and number
    early: bool = True  # whether lane ids are read where the first record is made

    @property
    def bits(self) -> int:
        """The registers in use from the first record to the last, as bits."""
        made = () if self.board is None else (self.number, *self.masks)
        own = sum(1 << R.first + each for each in made if each < R.count)
        return span(R.first + self.words, 3) | own

    @property
    def stored(self) -> int:
        """The registers that the store reads, as bits."""
        return span(R.first + self.words, 4) | 1 << R.first + self.number


@dataclass(frozen=True, slots=True)
class Scratch:
    """The registers of one probe, free at its probe point and used there alone.

    A record is stored at once if its words are in a row: ``first`` a multiple of four, ``last`` two
    behind it. Else it is stored in pieces: tag and start, if they are side by side, and the end; or
    each for itself. Where two words share a register, one is stored before the other is made.
    """

    first: int  # a record's tag
    last: int  # a record's end; where the clock is read
    address: int  # two registers, the first even; one if ``near``
    predicate: int
    scoreboard: int
    saved: int | None = None  # the register that the predicate is saved in, if the kernel needs it
    pair: int | None = None  # two uniform registers for the descriptor, where none are reserved
    apart: int | None = None  # a record's start, where it is not behind an even ``first``
    near: bool = False  # whether uniform registers hold the rest of the address
    gathered: Gathered | None = None  # those it is gathered in, if it is; ``first``: a mask

    @property
    def start(self) -> int:
        """The register of a record's start."""
        return self.first + 1 if self.apart is None else self.apart

    @property
    def in_a_row(self) -> bool:
        """Whether one store can take a whole record."""
        return self.apart is None and self.first % 4 == 0 and self.last == self.first + 2

    @property
    def piecemeal(self) -> bool:
        """Whether one word must be read by its store before another is made."""
        return self.last in (self.first, self.start)

    @property
    def busy(self) -> int:
        """The mask of the scoreboard that is held until stores have read their registers."""
        return 1 << self.scoreboard


FIRST: Final = 64
"""A frame's register numbers from here on are no uniform registers: they index ``Frame.own``."""

_TO_UNIFORM, _FROM_UNIFORM = 0x2CA, 0xE24
_ZERO, _ADD = 0xC82, 0x890
"""The opcodes that set the cursor to zero, and add to it."""
_OPERAND: Final = 0xE00
"""The bits of an opcode that differ where its second operand is uniform, not a thread's."""
_UNIFORM: Final = 0x08000000
"""The bits that differ in the upper half."""
_OTHERS: Final = (0xC0C, 0xC11)


def fitted_to_threads(steps: Sequence[Step], own: Sequence[int]) -> list[Step]:
    """Return instructions with a frame's per-thread registers in place of uniform numbers.

    Raises:
        PatchError: an instruction has no form with a per-thread register.
    """
    return [_fit(step, own) if own else step for step in steps]


def _fit(step: Step, own: Sequence[int]) -> Step:
    named = [n for file, n in step.reads | step.writes if file == "U" and n >= FIRST]
    if not named:
        return step
    (number,), opcode = named, step.low & 0xFFF
    register, field = own[number - FIRST], step.low >> 16 & 0xFF
    if opcode == _TO_UNIFORM:
        made = copy(register, step.low >> 24 & 0xFF)
    elif opcode == _FROM_UNIFORM:
        made = copy(field, register)
    elif opcode == _ZERO:
        made = immediate(register, 0)
    elif opcode == _ADD:
        made = add(register, register, step.low >> 32)
    elif opcode in _OTHERS:
        low = step.low & ~(0xFF << 32) ^ _OPERAND | register << 32
        return step._replace(low=low, high=step.high ^ _UNIFORM, reads=_swapped(step, register))
    else:
        raise PatchError(f"what is kept is read by opcode {opcode:#x}, in no thread's register.")
    guarded = made.reads | {each for each in step.reads if each[0] == "P"}
    return made._replace(reads=guarded, guard=step.guard, inverted=step.inverted, waits=step.waits)


def _swapped(step: Step, register: int) -> frozenset[Resource]:
    kept = {(file, n) for file, n in step.reads if file != "U" or n < FIRST}
    return frozenset(kept | {("R", register)})
