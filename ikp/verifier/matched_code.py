"""``MatchedCode``: finds original instructions in patched code; ``PatchedGraph``: the flow between
its places.

Original instructions that are lost or changed are yielded. A place is the number of an instruction
of the patched code. Sets of registers are bits of an integer, as in
``ikp.sass.disassembly.effects``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise, product
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from ikp.sass.cubins import instruction as enc
from ikp.sass.cubins.instruction import DistanceField, Words
from ikp.sass.disassembly.effects import EVERYTHING, FILES, Effects, P, effects_of, members
from ikp.sass.disassembly.listing import Code as Text
from ikp.sass.disassembly.listing import Instruction
from ikp.verifier.declared import Declared
from ikp.verifier.inserted_code import decode

TABLED = (enc.BRX, enc.BRX_UNIFORM)
_RETURNED, _BEFORE = DistanceField(((0, 32, 32),), 1), 128  # a MOV of an address, before its call
_BRANCHES = {enc.BRA, enc.BRA_UNIFORM, enc.CALL_REL, enc.RET, *TABLED, *enc.WARPSYNC}
_FIELDS = {enc.BSSY: enc.HALF, enc.LEPC: enc.AFTER_REGISTER}


def conditions(word: int) -> set[int]:
    """Return the predicates of a branch or EXIT, each plus 8 where it is negated."""
    return {each for each in (word >> 12 & 15, word >> 87 & 15) if each != 7}


def names(some: int) -> str:
    """Return registers in words."""
    files = [(file, each) for file in FILES.values() for each in members(some & file.all)]
    return ", ".join(f"{file.prefix}{each - file.first}" for file, each in files)


def led(word: int, at: int, field: DistanceField) -> int:
    """Return the byte that a branch at a place leads to, or the value of another field."""
    value = bits = 0
    for half, first, count in field.parts:
        value |= (word >> 64 * half + first & (1 << count) - 1) << bits
        bits += count
    if field is _RETURNED:
        return value
    return (at + 1) * 16 + (value - (value >> bits - 1 << bits)) * field.unit


def _bare(word: int, field: DistanceField) -> int:
    for half, first, count in field.parts:
        word &= ~((1 << count) - 1 << 64 * half + first)
    return word


class _Words(list[bytes]):
    """Instructions, compared as bytes; a call returns one as a number of 128 bits."""

    def __init__(self, rows: Words) -> None:
        super().__init__(np.ascontiguousarray(rows).view("V16").ravel().tolist())

    def __call__(self, at: int) -> int:
        return int.from_bytes(self[at], "little")


class MatchedCode:
    """A patched kernel's code, and the original instruction at each place; -1: inserted.

    Args:
        text: the plain code, as the disassembler prints it.
        old: its instructions, a row each: the low 64 bits, the high ones.
        new: those of the patched code.
        sm: the chip's number.
        linked: instructions that the loader writes into.
        functions: the first instructions of functions.
        declared: the differences that the patch declares.
    """

    def __init__(
        self, text: Text, old: Words, new: Words, sm: int,
        linked: set[int], functions: set[int], declared: Declared,
    ) -> None:  # fmt: skip
        self.text, self.listed, self.labels = text, text.instructions, text.labels
        self.linked, self.functions, self.far = linked, functions, enc.branches(sm)
        self.sm, self.rows, self.old, self.new = sm, old, _Words(old), _Words(new)
        self._opcodes, self._reached = enc.opcodes(old), dict[int, set[tuple[int, int]]]()
        self.calls = self.having(enc.CALL_REL)
        moves = (enc.MOVE,) if self.calls else ()  # of addresses to return to
        found = ((n, self._field(self.old(n))) for n in self.having(*_BRANCHES, *_FIELDS, *moves))
        self.fields = {n: field for n, field in found if field is not None}
        inserted = np.zeros(len(new), bool)
        for first, end in declared.inserted:
            inserted[first // 16 : -(-end // 16)] = True
        self.parts = [(0, self._places(new, np.flatnonzero(~inserted)[: len(old)]))]
        if declared.beside is not None:  # the plain code again, for blocks that do not record
            first, end = (each // 16 for each in declared.beside)
            self.parts.append((first, self._places(new, np.arange(first, min(end, len(new))))))
        origin, starts = np.full(len(new) + 1, -1), np.zeros(len(new), int)
        for start, places in self.parts:
            origin[places], starts[places] = range(len(places)), start
        at_originals = np.where(origin < 0, len(new), np.arange(len(new) + 1))
        behind = np.minimum.accumulate(at_originals[::-1])[::-1]
        self.origin, self.starts = origin.tolist(), starts.tolist()
        self.behind = behind.tolist()  # where the original instruction at or behind it is

    def having(self, *opcodes: int) -> list[int]:
        """Return the original instructions of some opcodes."""
        wanted = np.zeros(1 << 12, bool)
        wanted[[*opcodes]] = True
        return np.flatnonzero(wanted[self._opcodes]).tolist()

    def _field(self, word: int) -> DistanceField | None:
        """Return the field of an instruction that holds where it leads; None where none does."""
        opcode = word & 0xFFF
        if opcode == enc.MOVE:
            returns = (word >> 32 & 0xFFFFFFFF) // 16 - 1 in self.calls
            return _RETURNED if returns and not word >> 32 & 15 else None
        if opcode in enc.WARPSYNC and not word >> 86 & 1:
            return None
        return None if opcode == enc.RET and word >> 85 & 1 else _FIELDS.get(opcode, self.far)

    def _places(self, new: Words, candidates: NDArray[np.intp]) -> list[int]:
        """Return the places of the original instructions, in their order, as far as they match."""
        places: list[int] = candidates.tolist()
        if len(places) == len(self.rows):  # all are compared at once
            other = np.flatnonzero((self.rows != new[candidates]).any(axis=1)).tolist()
            if all(self._matches(number, places[number]) for number in other):
                return places
        found = list[int]()
        for at in places:
            if len(found) < len(self.old) and self._matches(len(found), at):
                found.append(at)
        return found

    def _matches(self, number: int, at: int) -> bool:
        """Whether an original instruction is at a place, but for where it leads."""
        if self.old[number] == self.new[at]:
            return True
        field = self.fields.get(number)
        return field is not None and _bare(self.old(number), field) == _bare(self.new(at), field)

    def said(self, number: int) -> str:
        """Return an original instruction in words."""
        return f"instruction {number}, {self.listed[number].text!r},"

    def reached(self, place: int) -> set[tuple[int, int]]:
        """Return the original instructions reached first from a place, with their parts' starts."""
        if (known := self._reached.get(place)) is not None:
            return known
        found, seen, work = set[tuple[int, int]](), set[int](), [place]
        while work:
            at = work.pop()
            if not 0 <= at < len(self.new):
                found.add((-1, -1))
            elif self.origin[at] >= 0:
                found.add((self.starts[at], self.origin[at]))
            elif at not in seen:
                seen.add(at)
                work += self.after_inserted(at)
        return self._reached.setdefault(place, found)

    def after_inserted(self, at: int) -> list[int]:
        """Return the successors of an inserted instruction."""
        word = self.new(at)
        if word & 0xFFF != enc.BRA:
            return [at + 1]
        to = led(word, at, self.far)
        return [to // 16 if to % 16 == 0 else -1, *([at + 1] if conditions(word) else [])]

    def check(self) -> Iterator[str]:
        """Yield the instructions that are missing, changed, or lead to other instructions."""
        places = [*map(attrgetter("address"), self.listed)]
        same = np.array_equal(self.text.controls.words, self.rows)
        if not same or places != [*range(0, 16 * len(self.old), 16)]:
            yield "the disassembly is not that of the plain kernel's code"
            return
        missing = [len(places) for _, places in self.parts if len(places) < len(self.old)]
        if missing:
            yield from (f"{self.said(number)} is not there as it was" for number in missing)
            return
        if self.reached(0) != {(start, 0) for start, _ in self.parts}:
            yield "its entry does not lead to its first instruction"
        named = self.text.naming
        ends = {n for _, at in self.parts for n in np.flatnonzero(np.diff(at) != 1).tolist()}
        looked_at = sorted(ends | self.fields.keys() | named.keys())
        for number, (start, places) in product(looked_at, self.parts):
            to = [self.labels[e] for e in named.get(number, ()) if e in self.labels]
            wrong = self._wrong(number, start, places, to)
            yield from (f"{self.said(number)} {each}" for each in wrong)

    def _wrong(self, number: int, start: int, places: list[int], named: list[int]) -> Iterator[str]:
        """Yield what is wrong with an original instruction in a part that has all of them.

        Args:
            number: the instruction.
            start: where its part begins.
            places: of the part's instructions.
            named: the original instructions that its text names.
        """
        at, follows = places[number], places[number + 1 : number + 2]
        field = self.fields.get(number)
        if follows not in ([], [at + 1]) and self.reached(at + 1) != {(start, number + 1)}:
            yield "is not followed by the next one"
        if number in self.calls and not self._returns(number, start, places):
            yield "has no address to return to"
        if field is not None and number not in self.linked:
            yield from self._led_wrong(number, field, start, places, named)
        elif named and number not in self.linked:
            yield "names a place in a way that is not known"

    def _led_wrong(
        self, number: int, field: DistanceField, start: int, places: list[int], named: list[int]
    ) -> Iterator[str]:
        at, word = places[number], self.old(number)
        old, new, opcode = led(word, number, field), led(self.new(at), at, field), word & 0xFFF
        if opcode in (enc.RET, *TABLED):
            if (old, new) != (0, 16 * start):
                yield "does not count from the code's start"
        elif named and old // 16 not in named:
            yield "does not hold the place where its text reads it"
        elif field is _RETURNED and word == self.new(at):
            return  # another number, by chance; see the call
        elif self._elsewhere(old, new + 16 * start * (field is _RETURNED), start):
            yield "leads elsewhere"
        elif opcode in enc.WARPSYNC and places[old // 16 - 1] - at != old // 16 - 1 - number:
            yield "has inserted code in what threads run together"

    def _elsewhere(self, old: int, new: int, start: int) -> bool:
        return bool(old % 16 or new % 16) or self.reached(new // 16) != {(start, old // 16)}

    def _returns(self, call: int, start: int, places: list[int]) -> bool:
        """Whether a MOV before a call, or in its function, has the address to return to."""
        target, value = led(self.old(call), call, self.far) // 16, (call + 1) * 16
        moves = [
            led(self.new(places[at]), 0, field) + 16 * start
            for at, field in self.fields.items()
            if field is _RETURNED and led(self.old(at), 0, field) == value
            if call - _BEFORE <= at < call or at >= target
        ]
        jumps = target not in self.functions
        return jumps or any(not self._elsewhere(value, each, start) for each in moves)


_EXIT, _BSYNC, _BARRIERS_MOVE = 0x94D, 0x941, (0x355, 0x356, 0x955, 0x956)
_CALLS, ENDS = (0x343, 0x943), (0x95B, 0x95C)
_JUMPS = (enc.BRA, enc.BRA_UNIFORM, enc.CALL_REL)
_TURNS = (*_JUMPS, _EXIT, enc.RET, *ENDS, *TABLED, _BSYNC)
NOTHING = Effects(0, 0, 0)


class PatchedGraph:
    """The patched code as a graph: basic blocks, by their first places.

    Args:
        code: the patched code, matched with the plain one's.
        tables: of each original indirect branch, the places that it may lead to.
        asserts: original calls that never return.
    """

    def __init__(self, code: MatchedCode, tables: dict[int, list[int]], asserts: set[int]) -> None:
        self.code, self.count = code, len(code.new)
        self.ours = {
            at: decode(code.new(at), code.sm) for at, n in enumerate(code.origin[:-1]) if n < 0
        }
        self.named = 0
        """The registers that inserted instructions name, as bits."""
        for own in self.ours.values():
            self.named |= own.reads | own.writes
        self.effects = self._effects(asserts)
        self.ways = self._all_ways(tables, asserts)
        self.stay: dict[int, int] = {}
        self._part()
        ends = (at + 1 for at in self.ways)
        heads = sorted({0, *chain(*self.ways.values()), *ends} - {self.count})
        self.blocks = {head: range(head, end) for head, end in pairwise([*heads, self.count])}

    def after(self, at: int) -> list[int]:
        """Return the successors of an instruction."""
        return self.ways.get(at, [at + 1] if at + 1 < self.count else [])

    def _effects(self, asserts: set[int]) -> dict[int, Effects]:
        """Return the effects of original instructions that name registers of inserted ones."""
        found, named, written = [*effects_of(self.code.text)], self.named, 0
        if leaves := self.code.having(*_CALLS):  # these may read arguments
            for each in found:
                written |= each.writes if each.writes != EVERYTHING else 0
        for n in leaves:
            reads = found[n].reads | (1 << 32) - 1 & written
            found[n] = Effects(reads, 0 if n in asserts else EVERYTHING, 0)
        return {n: each for n, each in enumerate(found) if (each[0] | each[1]) & named}

    def _all_ways(self, tables: dict[int, list[int]], asserts: set[int]) -> dict[int, list[int]]:
        """Return the successors of all instructions, where not the next one alone."""
        branches = (at for at, own in self.ours.items() if own.kind == "branch")
        ways = {at: self.code.after_inserted(at) for at in branches}
        for start, places in self.code.parts:
            ways |= self._ways(places, {} if start else tables, asserts)
        return {at: [to for to in tos if 0 <= to < self.count] for at, tos in ways.items()}

    def _ways(
        self, places: list[int], tables: dict[int, list[int]], asserts: set[int]
    ) -> dict[int, list[int]]:
        """Return the successors of a part's original instructions, where not the next one alone."""
        code, found = self.code, dict[int, list[int]]()
        # Where BMOV copies barriers to registers and back, each may be that of any BSSY.
        which = 0 if code.having(*_BARRIERS_MOVE) else 15
        met = self._meetings(places, which)
        for number in {*code.having(*_TURNS), *asserts}:
            at = places[number]
            word = code.new(at)
            if word & 0xFFF != _BSYNC:
                found[at] = self._turns(number, places, tables)
            elif all(
                old != number + 1 for old, _ in met.get(word >> 16 & which, [(number + 1, 0)])
            ):
                tos = [] if which else [at + 1]
                found[at] = [*(new for _, new in met[word >> 16 & which]), *tos]
        return found

    def _meetings(self, places: list[int], which: int) -> dict[int, list[tuple[int, int]]]:
        """Return where threads meet, in the plain and the patched code, by barrier: BSSY says it.

        Args:
            places: of a part's original instructions.
            which: the bits of a barrier's number in which barriers differ.
        """
        met = dict[int, list[tuple[int, int]]]()
        for number in self.code.having(enc.BSSY):
            at, word = places[number], self.code.old(number)
            meets = led(word, number, enc.HALF) // 16, led(self.code.new(at), at, enc.HALF) // 16
            met.setdefault(word >> 16 & which, []).append(meets)
        return met

    def _turns(self, number: int, places: list[int], tables: dict[int, list[int]]) -> list[int]:
        """Return the successors of an original instruction that turns, and is no BSYNC."""
        at, each = places[number], self.code.listed[number]
        word, skips = self.code.new(at), [at + 1] if each.guard else []
        opcode = word & 0xFFF
        if opcode in _JUMPS:
            tos = skips if opcode == enc.CALL_REL or _has_no_predicate(each) else [at + 1]
            return [led(word, at, self.code.far) // 16, *tos]
        if opcode == _EXIT:
            return [at + 1] if conditions(word) else []
        if opcode == enc.RET:
            return [*(places[call] + 1 for call in self.code.calls), *skips]
        return tables.get(number, []) if opcode in TABLED else skips

    def _part(self) -> None:
        """Lead threads that surely leave at an EXIT past the branches in front of it.

        Others take these branches, by the predicates that the EXIT has, negated. So code between
        them and the EXIT is run by leaving threads alone.
        """
        sources = self._sources()
        for leave in [places[n] for n in self.code.having(_EXIT) for _, places in self.code.parts]:
            skips = self._skips(leave)
            inside = {*range(skips[0] + 1, leave)} - {*skips} if skips else set[int]()
            into = [(source, to) for to in inside for source in sources.get(to, ())]
            if _is_closed(inside, skips, into):
                for at in inside:
                    self._leave(at, skips, leave)

    def _sources(self) -> dict[int, list[int]]:
        """Return the instructions in ``ways`` that lead to each one."""
        found: dict[int, list[int]] = {}
        for at, tos in self.ways.items():
            for to in tos:
                found.setdefault(to, []).append(at)
        return found

    def _skips(self, leave: int) -> list[int]:
        """Return the branches in front of an EXIT that all threads take which stay."""
        asked, first, known = conditions(self.code.new(leave)), leave, set[int]()
        while first - 1 in self.ours:
            first -= 1
        own, skips = sum({1 << P.first + (each & 7) for each in asked}), list[int]()
        if any(self.ours[at].writes & own for at in range(first, leave)):
            return []
        for at in range(first, leave):
            some = conditions(self.code.new(at)) if self.ours[at].kind == "branch" else set()
            if len(some) == 1 and (negated := some.pop() ^ 8) in asked:
                known.add(negated)
                skips += [at] * (known == asked)
        return skips

    def _leave(self, at: int, skips: list[int], leave: int) -> None:
        """Change where control goes on from an instruction that leaving threads alone run."""
        tos = self.ways.get(at, [at + 1])
        for skip in skips:
            tos = [to + (to == skip) for to in tos]
        if leave in tos:
            self.stay[at] = leave + 1  # what threads that stay go on with
        if (tos := [to for to in tos if to != leave]) != [at + 1]:
            self.ways[at] = tos


def _has_no_predicate(each: Instruction) -> bool:
    """Whether an instruction is a branch with no predicate in it; one may guard it."""
    return each.opcode == "BRA" and len(each.operands) == 1


def _is_closed(inside: set[int], skips: list[int], into: list[tuple[int, int]]) -> bool:
    """Whether ways into some code come out of it, or past a branch in front of its next part."""
    return all(at in inside or (at in skips and to == at + 1) for at, to in into)
