"""``CheckedFlow``: follows all paths; yields inserted instructions that may change the kernel.

A state says of each register what inserted code has put there, and which registers are in flight,
for which scoreboard. Followed are inserted instructions, and original ones that change a state.

A value is the set of what it may be, a bit each. Where paths meet, it may be what it is on either.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import lru_cache
from heapq import heappop, heappush
from itertools import chain, zip_longest
from typing import Final, TypeVar

import numpy as np

from ikp.sass.disassembly.effects import BITS, UP, UR, P, R, members
from ikp.verifier.declared import Declared
from ikp.verifier.in_flight import STARTED, Flight, Waits, begin
from ikp.verifier.inserted_code import Inserted, decode
from ikp.verifier.matched_code import ENDS, NOTHING, MatchedCode, PatchedGraph, names

ZERO, NUMBER, SIZE, LOW, HIGH, ROOM, MEMORY, MORE, OTHER, LOST = (1 << n for n in range(10))
"""A number; the cell's size, or a half of its address; a predicate that there is room; the two
registers of global memory's descriptor; anything; what original code has left."""
SAVED: Final = 16
"""The first of bits that say which predicate was saved in a register."""
_NUMBERS, _CELL = ZERO | NUMBER | SIZE, (LOW, HIGH, SIZE)
_MEMORY_AT: Final = {0x160: 0x118, 0x210: 0x208, 0x380: 0x358}  # by where parameters are
Values = dict[int, int]


def result(own: Inserted, values: Values, declared: Declared, base: int) -> list[int]:
    """Return what an inserted instruction puts into its first target.

    Args:
        own: the instruction.
        values: of registers, before it.
        declared: where the cell is.
        base: where parameters begin in the constants.
    """
    if own.kind == "load":
        return constants(own, declared, base)
    read = [values.get(some[0], OTHER) if some else ZERO for some in own.sources]
    return [_made(own, read)]


def _made(own: Inserted, read: list[int]) -> int:
    made = OTHER
    if own.kind == "number":
        made = OTHER if 0x50 <= own.word >> 72 & 0xFF <= 0x53 else NUMBER  # those are clocks
    elif own.kind == "store":
        made = NUMBER
    elif own.kind == "save":
        made = _saved(own.word >> 32 & 0xFFFFFFFF)
    elif own.kind == "test":
        made = ROOM if _has_room(own.word, read) else OTHER
    elif own.kind == "mixed":
        made = _mixed(own, read)
    elif own.kind == "copy":
        made = _sum(read, whole=True)
    elif own.kind.isdigit():
        made = _multiplied(read[: int(own.kind)], read[int(own.kind) :])
    return made


def _saved(mask: int) -> int:
    """Return what a register holds that keeps a mask's predicates: one of them, or anything."""
    return mask << SAVED if mask.bit_count() == 1 and mask < 128 else OTHER


def _has_room(word: int, read: list[int]) -> bool:
    """Whether a test says that a number is below the cell's size, or another one that holds has."""
    below = word >> 76 & 7 == 1 and word & 0xFFF in (0x20C, 0xC0C) and read[-2] == SIZE
    sure = word >> 64 & 0xE00 == 0 and not word >> 90 & 1  # unsigned, both hold
    return sure and (below or read[-1] == ROOM)


def _mixed(own: Inserted, read: list[int]) -> int:
    """Return what arithmetic makes of some values: of numbers alone a number."""
    words = [e for e, some in zip(read, own.sources, strict=True) if not _is_one(some)]
    return OTHER if any(each & ~_NUMBERS for each in words) else _sum(words)


def _multiplied(factors: list[int], addends: list[int]) -> int:
    """Return the sum of a product of factors, and of other values."""
    if ZERO in factors:
        return _sum(addends, whole=True)
    if any(each & ~_NUMBERS for each in factors):
        return OTHER
    return _sum([NUMBER, *addends] if factors else addends)


def _is_one(some: tuple[int, ...]) -> bool:
    """Whether a source is a predicate."""
    return bool(some) and (some[0] >= UP.first or P.first <= some[0] < UR.first)


def _sum(addends: list[int], *, whole: bool = False) -> int:
    """Return the sum of values, and of a constant where it is not ``whole``."""
    some = [each for each in addends if each != ZERO]
    if len(some) == 1 and (whole or some[0] in (LOW, SIZE)):
        return some[0]
    others = [each for each in some if each & ~_NUMBERS]
    return NUMBER if not others else LOW if others == [LOW] else OTHER


def constants(own: Inserted, declared: Declared, base: int) -> list[int]:
    """Return what is in the constants that an instruction loads."""
    bank, at = own.word >> 54 & 31, own.word >> (37 if own.word & 0xFFF == 0x7AC else 38) & 0xFFFF
    memory, found = _MEMORY_AT.get(base), list[int]()
    for here in range(at, at + 4 * len(own.targets[0]), 4):
        if bank == declared.bank and 0 <= here - declared.cell < declared.nbytes:
            within = (here - declared.cell) // 4
            found.append(_CELL[within] if within < 3 else NUMBER)
        elif bank or here >= base or memory is None:
            found.append(OTHER)
        else:
            found.append({memory: MEMORY, memory + 4: MORE}.get(here & ~3, NUMBER))
    return found


def restores(own: Inserted, values: Values) -> bool:
    """Whether an instruction sets a predicate again from a register that it was saved in."""
    if own.word & 0xFFF != 0x80C or own.word >> 76 & 7 != 5 or own.word >> 32 & 0xFFFFFFFF:
        return False
    (target, _), (source, _) = own.targets, own.sources
    plain = own.guard < 0 and own.word >> 87 & 15 == 7 and target and source
    return bool(plain) and values.get(source[0]) == 1 << SAVED + target[0] - P.first


def astray(own: Inserted, values: Values) -> Iterator[str]:
    """Yield what shows that an inserted store does not surely go to the cell's records."""
    address, _, pair = own.sources
    near = own.word & 0xFFF == 0x986 and not own.word >> 90 & 1
    place, number = (pair, address) if near else (address, ())
    if values.get(own.guard) != ROOM or own.word >> 15 & 1:
        yield "stores where no guard says that there is room"
    if _held(values, place) != [LOW, HIGH]:
        yield "stores at an address that is not made of the cell's"
    if any(values.get(each, OTHER) & ~_NUMBERS for each in number):
        yield "stores at an offset that is no number"
    if not near and _held(values, pair) != [MEMORY, MORE]:
        yield "does not name global memory"


def _held(values: Values, registers: Iterable[int]) -> list[int | None]:
    """Return what some registers hold; None of those that nothing has set."""
    return [values.get(each) for each in registers]


_EVERYTHING = (1 << BITS) - 1
_STAYS = UR.all | UP.all | _EVERYTHING << BITS  # what threads read where others leave
_ADDRESS, _DESCRIPTOR = {LOW, HIGH}, [MEMORY, MORE]
_LOADS = (0xAB9, 0x7AC)  # of uniform registers, from constants
State = tuple[Values, Flight, Flight]
Key = TypeVar("Key")


class CheckedFlow:
    """What the patched code does.

    Args:
        code: the patched code, matched with the plain one's.
        tables: of each original indirect branch, the places that it may lead to.
        asserts: original calls that never return.
        declared: the differences that the patch declares.
        base: where parameters begin in the constants.
    """

    def __init__(
        self,
        code: MatchedCode,
        tables: dict[int, list[int]],
        asserts: set[int],
        declared: Declared,
        base: int,
    ) -> None:
        self.graph = graph = PatchedGraph(code, tables, asserts)
        self.code, self.ours, self.effects = code, graph.ours, graph.effects
        self.declared, self.base, self.waits = declared, base, Waits(graph)
        self.saves = any(own.kind == "save" for own in self.ours.values())
        self.loads, self.ends = {*code.having(*_LOADS)}, {*code.having(*ENDS)}
        waiting = np.flatnonzero(code.text.controls.waits & self.waits.boards).tolist()
        some = (
            self.effects.keys() | {*waiting} | self.waits.starting | self.waits.special | self.ends
        )
        acting = sorted({*self.ours, *(places[n] for n in some for _, places in code.parts)})
        self.nodes = {
            head: acting[bisect_left(acting, block[0]) : bisect_left(acting, block[-1] + 1)]
            for head, block in graph.blocks.items()
        }
        self.entered: dict[int, State] = {}  # by block
        self.wrong: dict[int, list[str]] = {}  # of places
        self.seen: dict[int, tuple[bool, bool, bool]] = {}  # of inserted ones; see ``_insert``

    def check(self) -> Iterator[str]:
        """Yield inserted instructions that may do something to the kernel or to its memory."""
        self.entered[0], work = ({}, begin(self.declared.registers), {}), [0]
        while work:  # until each block is entered in no further state
            head = heappop(work)
            values, flight, mine = self.entered[head]
            state = self._through(head, {**values}, {**flight}, {**mine})
            for to in self.graph.after(self.graph.blocks[head][-1]):
                known = self.entered.get(to)
                both = state if known is None else _merged(known, state)
                if both != known:
                    self.entered[to] = both
                    if to not in work:
                        heappush(work, to)
        yield from chain.from_iterable(self.wrong[at] for at in sorted(self.wrong))
        yield from self._needed()

    def _through(self, head: int, values: Values, flight: Flight, mine: Flight) -> State:
        """Follow a block from a state, which is changed; return that in which it is left."""
        block, begins = self.graph.blocks[head], self.code.behind[head]
        named = self.graph.named
        for at in self.nodes[head]:
            if (own := self.ours.get(at)) is not None:
                early = at < begins and STARTED not in flight
                wrong = self._insert(own, at, early, values, flight, mine)
                self.wrong[at] = [f"{self._said(at)} {each}" for each in wrong] if wrong else wrong
                continue
            number = self.code.origin[at]
            if (wrong := self.waits.issue(at, number, flight, mine)) or at in self.wrong:
                self.wrong[at] = wrong
            if number in self.effects and (writes := self.effects[number].writes & named):
                self._overwrite(number, writes, values)
        if begins in block:
            flight[STARTED] = 1
        if (stay := self.graph.stay.get(block[-1])) and mine:
            left = self.code.said(self.code.origin[stay - 1])
            self.wrong[head] = [f"{left} is left by threads whose store is in flight"]
        return values, flight, mine

    def _overwrite(self, number: int, writes: int, values: Values) -> None:
        """Change values by an original instruction."""
        values |= _lost(writes)
        if self.saves and (saved := (writes & P.all) >> P.first << SAVED):
            values |= {each: OTHER for each, value in values.items() if value & saved}
        word = self.code.old(number) if number in self.loads else 0
        if word and word >> 12 & 15 == 7:
            own = decode(word, self.code.sm)
            if (made := constants(own, self.declared, self.base)) == _DESCRIPTOR:
                values |= dict(zip(own.targets[0], made, strict=True))

    def _insert(
        self, own: Inserted, at: int, early: bool, values: Values, flight: Flight, mine: Flight
    ) -> list[str]:
        """Return what an inserted instruction may not do; change the state by it.

        What is seen of it is that of the last state: whether it is before all original code
        (``early``), whether it leaves what that has set, and whether it makes an address.
        """
        unknown, found = 0, list[str]()
        for bit in own.asked:
            unknown |= 1 << bit if values.get(bit, LOST) & LOST else 0
        if unknown and self.declared.watches:
            number = self.code.origin[self.code.behind[at]]
            unknown &= ~self.effects.get(number, NOTHING).reads
        if unknown:
            found.append(f"reads {names(unknown)}, which no inserted one has set")
        if own.kind == "store":
            found += astray(own, values)
        targets = own.targets[0] if own.targets else ()
        made = result(own, values, self.declared, self.base) if targets else []
        keeps = made == _DESCRIPTOR and made == [values.get(bit) for bit in targets]
        found += self.waits.insert(own, flight, mine, same=keeps)
        restored = own.kind == "test" and restores(own, values)
        for bit, value in zip_longest(own.written, made[: len(targets)], fillvalue=OTHER):
            both = value | values.get(bit, LOST) if own.guard >= 0 else value
            values[bit] = OTHER if both & LOST else both
        if restored:
            values |= {own.sources[0][0]: OTHER, targets[0]: LOST}
        self.seen[at] = early, keeps or restored, not _ADDRESS.isdisjoint(made)
        return found

    def _needed(self) -> Iterator[str]:
        """Yield inserted instructions that overwrite a live original value, or that nothing reads.

        Of a set of live registers, the lower half is for original code, the upper for inserted.
        """
        used, ours = dict.fromkeys(self.seen, 0), self.ours
        does = {head: [*self._does(head)] for head in self.entered}
        for head, live in self._live(does).items():
            now = live
            for at, reads, kills in does[head]:
                if at >= 0:
                    own = ours[at]
                    early, keeps, address = self.seen[at]
                    # Where nothing is recorded, no store reads some parts of an address.
                    used[at] = own.writes if keeps or address else now >> BITS
                    # Before all original code, threads' registers have no values.
                    lost = own.writes & now & (~R.all if early else -1)
                    if lost and not keeps:
                        said = f"overwrites {names(lost)}, which original code needs"
                        yield f"{self._said(at)} {said}"
                now = now & ~kills | reads
        for at in sorted(used):
            if (writes := self.ours[at].writes) and not writes & used[at]:
                yield f"{self._said(at)} sets {names(writes)}, which nothing reads"

    def _does(self, head: int) -> Iterator[tuple[int, int, int]]:
        """Yield what a block reads and overwrites, the last one first: each inserted instruction,
        by its place, and the original ones between two of these at once, by -1.
        """
        reads = kills = 0
        for at in reversed(self.nodes[head]):
            number = self.code.origin[at]
            if (own := self.ours.get(at)) is not None:
                yield -1, reads, kills | kills << BITS
                lost = own.writes << BITS if own.guard < 0 else 0
                yield at, own.reads << BITS, lost | own.writes * self.seen[at][1]
                reads = kills = 0
            elif number in self.ends:  # behind it, all counts as read
                yield -1, reads, kills | kills << BITS
                yield -1, self.effects.get(number, NOTHING).reads | _EVERYTHING << BITS, 0
                reads = kills = 0
            elif (each := self.effects.get(number)) is not None:
                reads, kills = reads & ~each.kills | each.reads, kills | each.kills
        yield -1, reads, kills | kills << BITS

    def _live(self, does: dict[int, list[tuple[int, int, int]]]) -> dict[int, int]:
        """Return the live registers behind each block, by backward dataflow."""
        live, behind, whole = dict.fromkeys(does, 0), dict[int, int](), {}
        for head, some in does.items():
            reads = kills = 0
            for _, read, killed in some:
                reads, kills = reads & ~killed | read, kills | killed
            whole[head] = reads, kills
        changed, order = True, sorted(does, reverse=True)
        while changed:
            changed = False
            for head in order:
                last = self.graph.blocks[head][-1]
                now = live.get(self.graph.stay.get(last, -1), 0) & _STAYS
                for to in self.graph.after(last):
                    now |= live[to]
                behind[head], (reads, kills) = now, whole[head]
                now = now & ~kills | reads
                changed |= now != live[head]
                live[head] = now
        return behind

    def _said(self, at: int) -> str:
        """Return an inserted instruction's place, in words."""
        number = self.code.origin[self.code.behind[at]]
        before = "the end" if number < 0 else self.code.said(number).rstrip(",")
        return f"inserted instruction {at} ({self.code.new(at):#034x}, before {before})"


def _merged(one: State, other: State) -> State:
    """Return what holds where two paths meet; what neither has set may be anything."""
    (values, flight, mine), (others, *more) = one, other
    return _either(values, others, OTHER), _either(flight, more[0]), _either(mine, more[1])


def _either(one: dict[Key, int], other: dict[Key, int], missing: int = 0) -> dict[Key, int]:
    keys = [key for key, _ in one.items() ^ other.items()]
    both = {key: one.get(key, missing) | other.get(key, missing) for key in keys}
    return one | both if keys else one


@lru_cache(1 << 12)
def _lost(writes: int) -> Values:
    return dict.fromkeys(members(writes), LOST)
