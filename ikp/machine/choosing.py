"""What a record is made with where it stands: registers, a predicate and a scoreboard.

Of all that is free there, what the kernel leaves alone for longest: the wait for the record's store
then stands far behind it. Where little is free, the words of a record are stored one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from ikp.machine.control import SCOREBOARDS
from ikp.machine.keeping import Scratch
from ikp.machine.lent_pair import Lender
from ikp.machine.resources import UR, P, R, span
from ikp.machine.room import Room, Spare

_NO_BOARD = -1
_FEWEST = 3
"""The registers that the smallest record needs, two of them in a row."""
_WORDS = 4
_T = TypeVar("_T", int, tuple[int, int])


@dataclass(frozen=True)
class Chooser:
    """Chooses for one kernel.

    Args:
        room: what is free where.
        ours: the instructions before which other code is put.
        late: whether keeping a start, and choosing a thread, takes a scoreboard.
        lender: finds a pair for global memory, where none is kept.
    """

    room: Room
    ours: frozenset[int]
    late: bool = False
    lender: Lender | None = None

    def for_start(self, index: int) -> Scratch | str:
        """Return what reads a clock before an instruction, or what it lacks.

        It is the lowest register: records take high ones, which their stores may still read.
        """
        spare = self._spare(index)
        if not spare.registers:
            return "no register is"
        if self.late and not spare.scoreboards:
            return "no scoreboard is"
        one = spare.registers[0]
        return Scratch(one, one, 0, 0, min(spare.scoreboards, default=0))

    def for_record(self, index: int, alone: bool) -> Scratch | str:
        """Return what makes a record before an instruction, or what it lacks.

        Args:
            index: the instruction.
            alone: whether nothing else is put before that instruction behind the record.
        """
        spare = self._spare(index)
        pair = self.lender.pair(index, spare) if self.lender else None
        if self.lender and pair is None:
            return "no pair of uniform registers is"
        choose = self._made if spare.predicates else self._saving
        made = choose(index, spare, alone)
        return made if isinstance(made, str) else replace(made, pair=pair)

    def _made(self, index: int, spare: Spare, alone: bool) -> Scratch | str:
        choices = next(filter(None, _layouts(spare)), [])
        if not choices:
            return _few(spare)
        first, last = self._longest(index, choices, lambda each: _words(*each))
        taken = _words(first, last)
        pairs = [each for each in spare.pairs if not taken & span(each, 2)]
        address = self._longest(index, pairs, lambda each: span(each, 2))
        board = self._board(index, spare, Scratch(first, last, address, 0, 0), alone)
        if board is None:
            return "no scoreboard is"
        return Scratch(first, last, address, spare.predicates[-1], board)

    def _saving(self, index: int, spare: Spare, alone: bool) -> Scratch | str:
        """Return what makes a record with a predicate that the kernel needs: it is saved meanwhile.

        None whose value is only just on its way; of the others, what is used again latest.
        """
        late = self.room.flight.table[min(index, len(self.room.free) - 1)][P.columns]
        there = [number for number, soon in enumerate(late) if not soon]
        if not there or not spare.registers:
            return "no predicate is"
        singles = [each for each in spare.registers if each ^ 1 not in spare.registers]
        saved = (singles or list(spare.registers))[0]
        rest = replace(
            spare,
            registers=tuple(each for each in spare.registers if each != saved),
            pairs=tuple(each for each in spare.pairs if each // 2 != saved // 2),
            predicates=(max(there, key=lambda each: (self._untouched(index, each), each)),),
        )
        made = self._made(index, rest, alone)
        if isinstance(made, str):
            return "no predicate is"
        return replace(made, saved=saved)

    def _untouched(self, index: int, predicate: int) -> int:
        """Return how many instructions pass until one of a block names a predicate."""
        effects, named = self.room.liveness.effects, 1 << P.first + predicate
        ahead = range(index, self.end(index))
        found = (at for at in ahead if (effects[at].reads | effects[at].writes) & named)
        return next(found, ahead.stop) - index

    def end(self, index: int) -> int:
        """Return where the block of an instruction ends."""
        graph = self.room.liveness.flow.graph
        return graph.blocks[graph.block(index)].end

    def needs(self, at: int, registers: int, board: int = _NO_BOARD) -> bool:
        """Return whether an instruction of the kernel writes these, or takes a scoreboard."""
        writes, reads, _ = self._controls
        taken = board in (writes[at], reads[at])
        return taken or bool(self.room.liveness.effects[at].writes & registers)

    def waits(self, at: int, board: int) -> bool:
        """Return whether an instruction of the kernel waits for a scoreboard."""
        return bool(self._controls[2][at] >> board & 1)

    @cached_property
    def _controls(self) -> tuple[list[int], list[int], list[int]]:
        controls = self.room.liveness.flow.code.controls
        return controls.writes.tolist(), controls.reads.tolist(), controls.waits.tolist()

    def _spare(self, index: int) -> Spare:
        return self.room.at(min(index, len(self.room.free) - 1))

    def _longest(self, index: int, choices: Iterable[_T], members: Callable[[_T], int]) -> _T:
        return max(choices, key=lambda each: (self._reach(index, members(each)), each))

    def _reach(self, index: int, registers: int, board: int = _NO_BOARD) -> int:
        """Return how many instructions pass until the kernel needs one of these."""
        if index not in self._known:
            self._known[index] = self._ahead(index)
        writes, boards = self._known[index]
        first = boards.get(board, self.end(index))
        while registers:
            one = registers & -registers
            registers ^= one
            first = min(first, writes.get(one, first))
        return first - index

    @cached_property
    def _known(self) -> dict[int, tuple[dict[int, int], dict[int, int]]]:
        return {}

    def _ahead(self, index: int) -> tuple[dict[int, int], dict[int, int]]:
        """Return which instruction of a block is the first to write each of a thread's registers,
        a bit each, and to take each scoreboard, from one on.
        """
        effects, (takes, keeps, _) = self.room.liveness.effects, self._controls
        writes: dict[int, int] = {}
        boards: dict[int, int] = {}
        unseen = R.all
        for at in range(index, self.end(index)):
            boards.setdefault(takes[at], at)
            boards.setdefault(keeps[at], at)
            new = effects[at].writes & unseen
            unseen ^= new
            while new:
                writes[new & -new] = at
                new &= new - 1
        return writes, boards

    def _board(self, index: int, spare: Spare, scratch: Scratch, alone: bool) -> int | None:
        """Return a scoreboard; if need be, one that the kernel holds and soon waits for itself."""
        if spare.scoreboards:
            return max(spare.scoreboards, key=lambda each: (self._reach(index, 0, each), -each))
        # We would wait, and for what the kernel does, too.
        if scratch.piecemeal or self.late or not alone:
            return None
        boards = set(range(SCOREBOARDS)) - self.room.flight.counted
        return next((b for b in sorted(boards) if self._awaited(index, used(scratch), b)), None)

    def _awaited(self, index: int, registers: int, board: int) -> bool:
        """Return whether the kernel waits for a scoreboard before anybody needs these registers."""
        for at in range(index, self.end(index)):
            if at > index and at in self.ours:
                return False
            if self.waits(at, board):
                return True
            if self.needs(at, registers):
                return False
        return False


def _few(spare: Spare) -> str:
    registers = len(spare.registers)
    if not registers:
        return "no register is"
    if registers >= _FEWEST and not spare.pairs:  # every other one
        return "no two registers in a row are"
    return f"only {registers} register{'s are' if registers > 1 else ' is'}"


def _words(first: int, last: int) -> int:
    """Return the registers that a record's words are in, as bits."""
    if first % 4 == 0 and last == first + 2:  # stored at once, with what stands behind it
        return span(first, 4)
    return span(first, min(2, last - first + 1) if last >= first else 2) | span(last, 1)


def used(scratch: Scratch) -> int:
    """Return the registers that a record's stores read, as bits."""
    pair = 0 if scratch.pair is None else span(UR.first + scratch.pair, 2)
    return _words(scratch.first, scratch.last) | span(scratch.address, 2) | pair


def _layouts(spare: Spare) -> Iterable[list[tuple[int, int]]]:
    """Yield where a record's words can be and leave a pair for their address, the best way first.

    Each is given by the first word's register and the one that the clock is read into.
    """
    free, pairs = spare.registers, spare.pairs
    ways = (
        [(pair, pair + 2) for pair in pairs if pair % 4 == 0 and pair + 2 in free],
        [(pair, each) for pair in pairs[:1] for each in free if each // 2 != pair // 2],
        [(pair, pair + 1) for pair in pairs],
        [(each, each) for each in free],
    )
    for way in ways:
        yield [each for each in way if any(not _words(*each) & span(pair, 2) for pair in pairs)]


def words_of(spare: Spare) -> list[int]:
    """Return a pair for an address, its first, and four other registers; or nothing."""
    if not (spare.predicates and spare.scoreboards and spare.pairs):
        return []
    pair = spare.pairs[-1]
    others = [each for each in spare.registers if each // 2 * 2 != pair]
    return [pair, *others[-_WORDS:]] if len(others) >= _WORDS else []


def rows_of(spare: Spare) -> list[int]:
    """Return a pair for an address and up to four rows of four, each its first; or nothing."""
    if not (spare.predicates and spare.scoreboards):
        return []
    quads = list(spare.quads[-5:])
    pair = next((each for each in spare.pairs[::-1] if each // 4 * 4 not in quads), None)
    if pair is None and quads:
        pair = quads.pop(0)
    return [pair, *quads[-4:]] if pair is not None and quads else []
