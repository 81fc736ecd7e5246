"""Placement of the code at a kernel's entry, and of a warp's header store before each EXIT.

At the entry, clocks are read first; a warp finds its slot later, at a point that it passes once,
preferably at a wait. The header store takes registers, waits, and a skip around it for the threads
that an EXIT lets go on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from ikp.core.segment import Selection
from ikp.errors import PatchError
from ikp.probes.code import entry_code
from ikp.probes.code.header_code import (
    HeaderValues,
    leave,
    leave_by_words,
    leave_together,
    read_clocks,
)
from ikp.probes.code.reserved_registers import EntryRegisters, Frame, NearGround
from ikp.probes.code.selection_code import OTHERS, part
from ikp.probes.placement.register_choice import Lender, lent
from ikp.sass.assembly import forms
from ikp.sass.assembly.assembler import Step
from ikp.sass.dataflow.free_registers import FreeRegisters, Spare, aligned_pairs
from ikp.sass.dataflow.outstanding import load_waits
from ikp.sass.disassembly.effects import bit
from ikp.sass.disassembly.listing import SCOREBOARDS
from ikp.sass.disassembly.opcodes import Landmark, landmark
from ikp.sass.insertion.displacement import Insertion

_WORDS = 4


class NoRoomError(PatchError):
    """Entry or exit have too few free registers: with more registers a thread, they may do."""


def leaving(
    room: FreeRegisters, frame: Frame, at: int, alone: bool, lender: Lender | None
) -> tuple[int, int, list[Step]]:
    """Return the scoreboards to wait for before an EXIT, a free one, and the header's code.

    Args:
        room: the free registers.
        frame: the reserved registers.
        at: the EXIT.
        alone: whether all threads of every warp leave there.
        lender: finds a pair for the descriptor of global memory, where none is reserved.

    Raises:
        NoRoomError: no registers are free there.
    """
    waits, spare = _free(room, at)
    rows, words = rows_of(spare), words_of(spare)
    if not (rows or words):
        raise NoRoomError(
            f"no registers are free for records where the kernel ends, at instruction {at}: "
            "its last stores may still read them."
        )
    address, *quads = rows or words
    predicates = spare.predicates[-2:]
    if not rows:
        steps = leave_by_words(frame, quads, address, predicates[-1])
    elif alone and frame.entered and len(predicates) == 2:
        steps = leave_together(frame, quads[-1], address, predicates)
    else:
        steps = leave(frame, quads, address, predicates[-1])
    pair = lender.to_leave(at, spare) if lender else None
    return waits, spare.scoreboards[-1], lent(steps, pair)


def unless_staying(room: FreeRegisters, at: int, steps: int) -> list[Step]:
    """Return the code by which threads that an EXIT lets go on skip so many steps.

    An EXIT may have two predicates, ``@P0 EXIT P1``: threads that lack one of them go on.
    """
    conditions = room.liveness.flow.code.instructions[at].conditions
    held = room.flight.states[at][:SCOREBOARDS]
    made = list[Step]()
    for number, each in enumerate(conditions, 1):
        name = each.lstrip("!")
        if name[0] != "P":
            raise PatchError(f"an EXIT has the predicate {each}, which is not known here.")
        late = sum(1 << board for board, bits in enumerate(held) if bits >> bit(name) & 1)
        over = forms.skip(steps + len(conditions) - number)
        made.append(over.when(int(name[-1]), holds=each.startswith("!")).after(late))
    return made


def _free(room: FreeRegisters, at: int) -> tuple[int, Spare]:
    """Return the scoreboards to wait for before an EXIT, and the registers that are free then."""
    held = room.flight.held(at)
    ways = ((0, room.at), (held, room.waited), (held, room.left))
    made = [(waits, free(at)) for waits, free in ways]
    return next(
        (each for enough in (rows_of, words_of) for each in made if enough(each[1])), made[0]
    )


def words_of(spare: Spare) -> list[int]:
    """Return the first register of a pair for an address, and four others; or an empty list."""
    if not (spare.predicates and spare.scoreboards and spare.pairs):
        return []
    pair = spare.pairs[-1]
    others = [each for each in spare.registers if each // 2 * 2 != pair]
    return [pair, *others[-_WORDS:]] if len(others) >= _WORDS else []


def rows_of(spare: Spare) -> list[int]:
    """Return the first registers of an address's pair and of up to four rows of four; or none."""
    if not (spare.predicates and spare.scoreboards):
        return []
    quads = list(spare.quads[-5:])
    pair = next((each for each in spare.pairs[::-1] if each // 4 * 4 not in quads), None)
    if pair is None and quads:
        pair = quads.pop(0)
    return [pair, *quads[-4:]] if pair is not None and quads else []


_LOADS = {Landmark.LOAD, Landmark.COPY, Landmark.TMA_LOAD}
_MOST_QUADS = 3


@dataclass(frozen=True)
class Start:
    """The point where a warp finds its slot, and the registers that are free there."""

    index: int
    ground: EntryRegisters
    clocks: int  # four registers, into which both clocks are read at the entry
    pair: int | None = None  # uniform registers for the descriptor, where none are reserved


@dataclass(frozen=True)
class NearStart:
    """The same, where uniform registers hold addresses."""

    index: int
    ground: NearGround
    clocks: int
    held: bool  # whether these four are free until there


def start(
    room: FreeRegisters, first: int, known: bool, kept: bool, lender: Lender | None = None
) -> Start | None:
    """Return the point where a warp finds its slot; None where there are too few registers.

    Args:
        room: the free registers.
        first: the instruction before which the first record is made, or a start is kept.
        known: whether the code says how many threads a block has.
        kept: whether both clocks are kept in uniform registers: else they are stored at once.
        lender: finds a pair for the descriptor of global memory, where none is reserved.
    """
    clocks = next(iter(room.entering.quads), None)
    if clocks is None:
        return None
    for index in range(_latest(room, first) if kept else 0, -1, -1):
        spare = _spare(room, index) if kept else _without(_spare(room, index), clocks)
        pair = lender.pair(index, spare) if lender else None
        if lender and pair is None:
            continue
        if ground := _ground(spare, entry_code.FEW if known else entry_code.MANY):
            return Start(index, ground, clocks, pair)
    return None


def start_near(room: FreeRegisters, first: int, uniform: int) -> NearStart | None:
    """Return the point where a warp finds its slot, where uniform registers hold addresses.

    Args:
        room: the free registers.
        first: the instruction before which the first record is made, or a start is kept.
        uniform: the first of two uniform registers that no other code uses there.
    """
    for index in range(_latest(room, first), -1, -1):
        spare, through = _spare(room, index), room.through(range(index + 1))
        clocks = next(iter(through.quads or room.entering.quads), None)
        held = bool(through.quads)
        spare = _without(spare, clocks) if held and clocks is not None else spare
        quads = spare.quads[-_MOST_QUADS:]
        single = [each for each in spare.registers if each // 4 * 4 not in quads]
        flags = spare.uniform_predicates
        if clocks is None or not (quads and single and flags):
            continue
        if spare.predicates and spare.scoreboards:
            predicate, board = spare.predicates[-1], spare.scoreboards[-1]
            ground = NearGround(single[0], uniform, flags[-1], quads, predicate, board)
            return NearStart(index, ground, clocks, held)
    return None


def _spare(room: FreeRegisters, index: int) -> Spare:
    return room.at(index) if index else room.entering


def _without(spare: Spare, quad: int) -> Spare:
    return replace(
        spare,
        registers=tuple(each for each in spare.registers if each // 4 * 4 != quad),
        pairs=tuple(each for each in spare.pairs if each // 4 * 4 != quad),
        quads=tuple(each for each in spare.quads if each != quad),
    )


def _latest(room: FreeRegisters, first: int) -> int:
    """Return the instruction that waits for the first loads; else that behind the last load.

    Both are in the kernel's first basic block: all warps pass it once, with all their threads.
    """
    flow = room.liveness.flow
    block = flow.graph.blocks[0]
    if any(0 in body for body in flow.bodies.values()):
        return 0
    last = min(first, block.end - 1)
    awaited = [wait.at for wait in load_waits(flow) if wait.at <= last]
    code = flow.code.instructions[:last]
    issued = [at + 1 for at, each in enumerate(code) if landmark(each.opcode) in _LOADS]
    return min(awaited) if awaited else max(issued, default=0)


def _ground(spare: Spare, single: int) -> EntryRegisters | None:
    """Return registers that suffice; None if there are too few."""
    if not (spare.predicates and spare.scoreboards):
        return None
    for count in range(min(_MOST_QUADS, len(spare.quads)), 0, -1):
        quads = spare.quads[-count:]
        pairs = [each for each in spare.pairs if each // 4 * 4 not in quads][:2]
        taken = {each // 2 for each in pairs} | {(row + n) // 2 for row in quads for n in (0, 2)}
        rest = [each for each in spare.registers if each // 2 not in taken]
        if len(pairs) == 2 and len(rest) >= single:
            predicate, board = spare.predicates[-1], spare.scoreboards[-1]
            return EntryRegisters(pairs[0], pairs[1], tuple(rest[:single]), quads, predicate, board)
    return None


_SOON: Final = 8
"""How many instructions pass until both clocks can be read from their registers."""


@dataclass(frozen=True)
class Entrance:
    """Places the entry's code of one kernel.

    Args:
        room: the free registers.
        frame: the reserved registers.
        assembled: makes words of instructions, a scoreboard, and the register files to settle.
        lender: finds a pair for the descriptor of global memory, where none is reserved.
    """

    room: FreeRegisters
    frame: Frame
    assembled: Callable[..., tuple[int, ...]]
    lender: Lender | None = None

    def made(self, first: int, values: HeaderValues) -> list[Insertion] | None:
        """Return the insertions; None where there are too few registers.

        Args:
            first: the instruction before which the first record is made, or a start is kept.
            values: what the launch header says of the kernel.
        """
        entered = self._near if self.frame.near else self._own
        found, chosen = entered(first, values), self.frame.blocks
        parted = [] if chosen is None else self._parted(chosen)
        return None if found is None or parted is None else [*parted, *found]

    def _parted(self, chosen: Selection) -> list[Insertion] | None:
        """Return the code that branches in blocks that record; the others fall through."""
        spare = self.room.entering
        if not (spare.quads and spare.predicates and spare.scoreboards):
            return None
        quad, ok = spare.quads[-1], spare.predicates[-1]
        others = [each for each in spare.registers if each // 4 * 4 != quad]
        if len(others) < OTHERS:
            return None
        steps = part(chosen, quad, others, ok, flat=self.frame.flat)
        left = self.assembled(steps, board := spare.scoreboards[-1], "")
        rank = self.assembled([forms.to_uniform(self.frame.records, quad)], board)
        return [Insertion(0, left, skipped=True), Insertion(0, rank, skipped=True)]

    def _own(self, first: int, values: HeaderValues) -> list[Insertion] | None:
        kept = bool(self.frame.entered)
        begun = start(self.room, first, self.frame.warps is not None, kept, self.lender)
        if begun is None:
            return None
        ground, stored = begun.ground, None if kept else begun.clocks
        clocks = self.assembled(entry_code.entry(self.frame, begun.clocks), ground.scoreboard)
        steps = entry_code.locate(self.frame, ground, values, stored)
        steps = lent(steps, begun.pair)
        return _put(clocks, begun.index, self.assembled(steps, ground.scoreboard))

    def _near(self, first: int, values: HeaderValues) -> list[Insertion] | None:
        ours = {*self.frame.all, self.frame.room + 1}
        free = [each for each in self.room.unused_uniform if each not in ours]
        pair = aligned_pairs(free)[0]
        begun = start_near(self.room, first, pair)
        if begun is None:
            return None
        ground, held, clocks = begun.ground, begun.held, begun.clocks
        read = read_clocks(clocks) if held else entry_code.entry(self.frame, clocks)
        # No instruction reads the registers that the clocks are kept in before a warp leaves.
        settled = "" if held and begun.index >= _SOON else "R"
        made = self.assembled(read, ground.scoreboard, settled)
        kept = clocks if held else None
        steps = entry_code.locate_near(self.frame, ground, values, kept)
        return _put(made, begun.index, self.assembled(steps, ground.scoreboard))


def _put(clocks: tuple[int, ...], index: int, found: tuple[int, ...]) -> list[Insertion]:
    return [Insertion(0, clocks, skipped=True), Insertion(index, found, skipped=True)]
