"""Choice of a probe's scratch registers at its site, with a predicate and a scoreboard.

Of all free registers, it is those that the kernel next writes latest: the wait for the record's
store is then far behind it. Where few are free, the words of a record are stored one by one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TypeVar

import numpy as np

from ikp.probes.code.reserved_registers import Scratch, Shared, address_at
from ikp.probes.placement.register_choice import (
    Lender,
    RecordWords,
    kinds_of_layouts,
    record_layouts,
    word_bits,
    word_registers,
)
from ikp.sass.assembly.assembler import PT
from ikp.sass.dataflow.free_registers import FreeRegisters, Spare, lone
from ikp.sass.dataflow.register_handover import given_back
from ikp.sass.disassembly.effects import UR, P, R, members, span
from ikp.sass.disassembly.listing import SCOREBOARDS

_NO_BOARD = -1
_FAR = 16
"""After so many instructions, a store has read its registers."""
_FEWEST = 3
"""How many registers the smallest record needs, two of them in a row."""
_T = TypeVar("_T", int, RecordWords)


@dataclass(frozen=True)
class ScratchChooser:
    """Chooses the scratch registers of one kernel's probes.

    Args:
        room: the free registers.
        ours: the instructions before which other probes are inserted.
        late: whether keeping a start, and electing a thread, takes a scoreboard.
        lender: finds a pair for the descriptor of global memory, where none is reserved.
        near: whether uniform registers hold all of an address but an offset.
    """

    room: FreeRegisters
    ours: frozenset[int]
    late: bool = False
    lender: Lender | None = None
    near: bool = False
    _ahead: dict[int, _Ahead] = field(default_factory=dict)  # of each instruction, if asked

    def for_start(self, index: int) -> Scratch | str:
        """Return the scratch register of a clock read before an instruction, or what is missing.

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
        """Return the scratch registers of a record before an instruction, or what is missing.

        Args:
            index: the instruction.
            alone: whether no other probe comes between the record and that instruction.
        """
        spare = self._spare(index)
        pair = self.lender.pair(index, spare) if self.lender else None
        if self.lender and pair is None:
            return "no pair of uniform registers is"
        choose = self._made if spare.predicates else self._saving
        made = choose(index, spare, alone)
        return made if isinstance(made, str) else replace(made, pair=pair)

    def for_member(self, index: int, shared: Shared, before: Latest) -> Scratch | None:
        """Return the scratch registers of a record in a batch; None if it costs more than alone.

        Args:
            index: the instruction before which the record is made.
            shared: the registers that the batch shares.
            before: the registers of the records before it. Those of the latest are taken last:
                their stores would be waited for.
        """
        spare = self._spare(index)
        pair = self.lender.pair(index, spare) if self.lender else None
        if not spare.scoreboards or (self.lender and pair is None):
            return None
        late = self._late(index)
        ways = enumerate(record_layouts(spare, self.near, late))
        best = next((n for n, each in ways if each), None)
        mine = {*members(shared.bits)}
        free = tuple([each for each in spare.registers if R.first + each not in mine])
        pairs = tuple([each for each in spare.pairs if mine.isdisjoint(_pair(each))])
        enough = islice(kinds_of_layouts(free, pairs, late), None if best is None else best + 1)
        found = next(filter(None, enough), [])
        if not found:
            return None
        ahead = self._from(index)

        def far(reach: int) -> int:
            return min(reach, _FAR)

        def by_words(each: RecordWords) -> tuple[int, int, int, RecordWords]:
            reach = ahead.of(word_registers(*each)) - index
            return far(reach), before.age(word_registers(*each)), reach, each

        def by_board(each: int) -> tuple[int, int, int, int]:
            reach = self.reach(index, (), each)
            return far(reach), before.age_of_board(each), reach, -each

        words, board = max(found, key=by_words), max(spare.scoreboards, key=by_board)
        return replace(_scratch(words, shared), pair=pair, scoreboard=board)

    def others(self, index: int, taken: int, count: int) -> list[int]:
        """Return up to so many registers that are free before an instruction, and not ``taken``:
        those that the kernel leaves alone for longest, last the best.
        """
        free = [each for each in self._spare(index).registers if not taken >> R.first + each & 1]
        ahead = self._from(index)
        far = (each for each in reversed(free) if ahead[each] - index >= _FAR)
        if len(best := [*islice(far, count)]) == count:
            return best[::-1]
        return sorted(free, key=lambda each: (min(ahead[each] - index, _FAR), each))[-count:]

    def board(self, index: int) -> int | None:
        """Return a scoreboard for a store before an instruction; None if there is none."""
        spare = self._spare(index)
        return max(
            spare.scoreboards, key=lambda one: (self.reach(index, (), one), -one), default=None
        )

    def guard(self, index: int) -> tuple[int, bool] | None:
        """Return a predicate for a store before an instruction, and whether it must be saved; None
        if there is none.
        """
        spare = self._spare(index)
        if spare.predicates:
            return spare.predicates[-1], False
        needed = self._needed(index)
        return None if needed is None else (needed, True)

    def _needed(self, index: int) -> int | None:
        """Return a predicate that the kernel needs, the one that it names again latest; none that
        an instruction under way has yet to write.
        """
        late = self.room.flight.table[min(index, len(self.room.free) - 1)][P.columns]
        there = [number for number, soon in enumerate(late) if not soon]
        return max(there, key=lambda each: (self._untouched(index, each), each), default=None)

    def _made(self, index: int, spare: Spare, alone: bool) -> Scratch | str:
        layouts = record_layouts(spare, self.near, self._late(index))
        choices = next(filter(None, layouts), [])
        if not choices:
            return _few(spare)
        words = self._longest(index, choices, lambda each: word_registers(*each))
        taken = {*word_registers(*words)}
        where, every = (_one, spare.registers) if self.near else (_pair, spare.pairs)
        free = [each for each in every if taken.isdisjoint(where(each))]
        address = self._longest(index, free, where)
        made = _scratch(words, Shared(address, spare.predicates[-1], near=self.near))
        board = self._board(index, spare, made, alone)
        return "no scoreboard is" if board is None else replace(made, scoreboard=board)

    def _saving(self, index: int, spare: Spare, alone: bool) -> Scratch | str:
        """Return the scratch registers of a record whose predicate is saved, for the kernel."""
        needed = self._needed(index)
        if needed is None or not spare.registers:
            return "no predicate is"
        saved = lone(spare.registers)
        rest = replace(
            spare,
            registers=tuple(each for each in spare.registers if each != saved),
            pairs=tuple(each for each in spare.pairs if each // 2 != saved // 2),
            predicates=(needed,),
        )
        made = self._made(index, rest, alone)
        if isinstance(made, str):
            return made if "scoreboard" in made else "no predicate is"
        return replace(made, saved=saved)

    def _untouched(self, index: int, predicate: int) -> int:
        """Return how many instructions pass until one in the block names a predicate."""
        effects, named = self.room.liveness.effects, 1 << P.first + predicate
        ahead = range(index, self.end(index))
        found = (at for at in ahead if (effects[at].reads | effects[at].writes) & named)
        return next(found, ahead.stop) - index

    def end(self, index: int) -> int:
        """Return where the block of an instruction ends."""
        graph = self.room.liveness.flow.graph
        return graph.blocks[graph.block(index)].end

    def needs(self, at: int, registers: int, board: int = _NO_BOARD) -> bool:
        """Return whether an instruction of the kernel writes these registers, lets products or
        other warps write them, or takes a scoreboard.
        """
        writes, reads, _ = self._controls
        taken = board in (writes[at], reads[at])
        return taken or bool(self._written[at] & registers)

    def waits(self, at: int, board: int) -> bool:
        """Return whether an instruction of the kernel waits for a scoreboard."""
        return bool(self._controls[2][at] >> board & 1)

    def waited(self, index: int, board: int) -> int:
        """Return the first instruction of a block, from one on, that waits for a scoreboard; the
        block's end if none does.
        """
        return _next(self._waiting[board], index, self.end(index))

    @cached_property
    def _waiting(self) -> list[list[int]]:
        """The instructions that wait for each scoreboard."""
        masks = self.room.liveness.flow.code.controls.waits
        return [np.flatnonzero(masks >> board & 1).tolist() for board in range(SCOREBOARDS)]

    @cached_property
    def _controls(self) -> tuple[list[int], list[int], list[int]]:
        controls = self.room.liveness.flow.code.controls
        return controls.writes.tolist(), controls.reads.tolist(), controls.waits.tolist()

    def _spare(self, index: int) -> Spare:
        return self.room.at(min(index, len(self.room.free) - 1))

    def _late(self, index: int) -> int:
        return self.room.flight.late(min(index, len(self.room.free) - 1))

    def _longest(
        self, index: int, choices: Iterable[_T], registers: Callable[[_T], Iterable[int]]
    ) -> _T:
        ahead = self._from(index)
        return max(choices, key=lambda each: (ahead.of(registers(each)), each))

    def reach(self, index: int, registers: Iterable[int], board: int = _NO_BOARD) -> int:
        """Return how many instructions pass until one writes a register or takes a scoreboard.

        Args:
            index: the first of them.
            registers: by the numbers of their bits.
            board: a scoreboard, if one is asked for.
        """
        first = self._from(index).of(registers)
        if board != _NO_BOARD:
            first = _next(self._takers[board], index, first)
        return first - index

    def _from(self, index: int) -> _Ahead:
        if index not in self._ahead:
            self._ahead[index] = _Ahead(self._writers, index, self.end(index))
        return self._ahead[index]

    @cached_property
    def _written(self) -> list[int]:
        """The registers that each instruction writes, or products or other warps from it on."""
        found = [each.writes for each in self.room.liveness.effects]
        for at, each in self.room.flight.given.items():
            found[at] |= each.writes
        for at, registers in given_back(self.room.liveness.flow).items():
            found[at] |= registers
        return found

    @cached_property
    def _writers(self) -> dict[int, list[int]]:
        """The instructions that write each register, by the number of its bit."""
        found: dict[int, list[int]] = {}
        for at, written in enumerate(self._written):
            for register in members(written) if written else ():
                found.setdefault(register, []).append(at)
        return found

    @cached_property
    def _takers(self) -> dict[int, list[int]]:
        """The instructions that take each scoreboard."""
        controls = self.room.liveness.flow.code.controls
        return {
            board: np.flatnonzero((controls.writes == board) | (controls.reads == board)).tolist()
            for board in range(SCOREBOARDS)
        }

    def _board(self, index: int, spare: Spare, scratch: Scratch, alone: bool) -> int | None:
        """Return a scoreboard; if need be, one that the kernel holds and soon waits for itself."""
        if spare.scoreboards:
            return self.board(index)
        # The probe would wait, and for the kernel's operations, too.
        if scratch.piecemeal or self.late or not alone:
            return None
        boards = set(range(SCOREBOARDS)) - self.room.flight.counted
        return next((b for b in sorted(boards) if self._awaited(index, used(scratch), b)), None)

    def _awaited(self, index: int, registers: int, board: int) -> bool:
        """Return whether the kernel waits for a scoreboard before it or a probe needs registers."""
        for at in range(index, self.end(index)):
            if at > index and at in self.ours:
                return False
            if self.waits(at, board):
                return True
            if self.needs(at, registers):
                return False
        return False


@dataclass(slots=True)
class Latest:
    """How many records ago a register or a scoreboard was used: all there are, if it never was.

    A block may have thousands of records, and each one asks.
    """

    count: int = 0
    registers: dict[int, int] = field(default_factory=dict)  # the latest record that uses each
    boards: dict[int, int] = field(default_factory=dict)

    def followed_by(self, records: Iterable[Scratch]) -> Latest:
        """Return the ages behind some more records, given by their scratch registers."""
        made = Latest(self.count, self.registers.copy(), self.boards.copy())
        for each in records:
            made.add(each)
        return made

    def add(self, record: Scratch) -> None:
        """Add the next record, by its scratch registers."""
        self.count += 1
        words = word_registers(record.first, record.start, record.last)
        self.registers |= dict.fromkeys(words, self.count)
        self.boards[record.scoreboard] = self.count

    def age(self, registers: Iterable[int]) -> int:
        """Return the age of the latest use of one of some registers."""
        return self.count - max([self.registers.get(each, 0) for each in registers])

    def age_of_board(self, board: int) -> int:
        """Return the age of a scoreboard's latest use."""
        return self.count - self.boards.get(board, 0)


class _Ahead(dict[int, int]):
    """Register -> the first instruction of a block, from one on, that writes it; the block's end
    if none does.
    """

    def __init__(self, writers: Mapping[int, Sequence[int]], index: int, end: int) -> None:
        super().__init__()
        self.end = end
        self._writers, self._index = writers, index

    def __missing__(self, register: int) -> int:
        found = self[register] = _next(self._writers.get(register, ()), self._index, self.end)
        return found

    def of(self, registers: Iterable[int]) -> int:
        """Return the first instruction that writes one of these registers."""
        return min(map(self.__getitem__, registers), default=self.end)


def _next(indices: Sequence[int], index: int, end: int) -> int:
    """Return the first of sorted indices from one on; the end if none is before that."""
    at = bisect_left(indices, index)
    return min(indices[at], end) if at < len(indices) else end


def _few(spare: Spare) -> str:
    registers = len(spare.registers)
    if not registers:
        return "no register is"
    if registers >= _FEWEST and not spare.pairs:  # every other one
        return "no two registers in a row are"
    return f"only {registers} register{'s are' if registers > 1 else ' is'}"


def _one(first: int) -> range:
    return range(first, first + 1)


def _pair(first: int) -> range:
    return range(first, first + 2)


def _scratch(words: RecordWords, shared: Shared) -> Scratch:
    """Return a record's scratch registers; the scoreboard is set later."""
    tag, start, end = words
    apart = None if tag % 2 == 0 and start == tag + 1 else start
    return Scratch(
        *(tag, end, shared.address, shared.predicate, 0, shared.saved),
        apart=apart,
        near=shared.near,
    )


def used(scratch: Scratch) -> int:
    """Return the registers that a record's stores read, as bits; of a gathered one, all it uses."""
    if (gathered := scratch.gathered) is not None:
        own = word_bits(scratch.first, scratch.start, scratch.last)
        number = 0 if scratch.predicate == PT else 1 << R.first + gathered.number
        return own | number | gathered.bits
    pair = 0 if scratch.pair is None else span(UR.first + scratch.pair, 2)
    words = word_bits(scratch.first, scratch.start, scratch.last)
    return words | address_at(scratch.address, near=scratch.near) | pair
