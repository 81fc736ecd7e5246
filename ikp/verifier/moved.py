"""Match of patched code with the plain kernel's: each instruction is there, with the same targets.

Only the distances in branches may differ: each must lead to the same instruction, through inserted
ones at the most. A place is the number of an instruction in the patched code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ikp.verifier.original import Text, targets

BYTES = 16
Words = NDArray[np.uint64]
_BRA, _CALL, _RET, _MOVE = 0x947, 0x944, 0x950, 0x802
BSSY, BSYNC, EXIT = 0x945, 0x941, 0x94D
TABLED = (0x949, 0x958)
"""The opcodes of BRX and BRXU."""
_FAR, _NEAR_FAR = ((0, 16, 8), (0, 34, 30), (1, 0, 18)), ((0, 34, 30), (1, 0, 18))
_OWN = {BSSY: (((0, 32, 32),), 1), 0x94E: (((0, 24, 40), (1, 0, 18)), 1)}
"""Opcode -> the fields of a distance (half, first bit, width), and its unit, for BSSY and LEPC."""
_PLACED = {_BRA, 0x547, _CALL, _RET, *TABLED, *_OWN}
_BEFORE, _COLLECTIVES = 128, (0x348, 0x948)
_COLLECTIVE, _ABSOLUTE = 1 << 86, 1 << 85


def names_place(word: int) -> bool:
    """Whether an instruction holds the distance to another one."""
    opcode = word & 0xFFF
    if opcode in _COLLECTIVES:
        return bool(word & _COLLECTIVE)
    return opcode in _PLACED and not (opcode == _RET and word & _ABSOLUTE)


def _field(word: int, sm: int) -> tuple[tuple[tuple[int, int, int], ...], int]:
    return _OWN.get(word & 0xFFF, (_FAR if sm >= 90 else _NEAR_FAR, 4))


def led(word: int, at: int, sm: int) -> int:
    """Return the byte that an instruction at a place leads to."""
    parts, unit = _field(word, sm)
    value = bits = 0
    for half, first, count in parts:
        value |= (word >> 64 * half + first & (1 << count) - 1) << bits
        bits += count
    return (at + 1) * BYTES + (value - (value >> bits - 1 << bits)) * unit


def _without_place(word: int, sm: int) -> int:
    for half, first, count in _field(word, sm)[0]:
        word &= ~((1 << count) - 1 << 64 * half + first)
    return word


def numbers(words: Words) -> list[int]:
    """Return instructions as numbers of 128 bits."""
    return [low | high << 64 for low, high in words.tolist()]


@dataclass
class Moved:
    """A patched kernel's code, matched with the plain one's.

    ``origin`` has the original instruction of each place, -1 for inserted ones.
    """

    text: Text
    old: list[int]
    new: list[int]
    sm: int
    linked: frozenset[int]  # original instructions that the loader writes into
    functions: frozenset[int]  # the first instructions of functions
    origin: list[int]
    parts: list[tuple[int, list[int]]]  # copies of the plain code: first place, and all its places
    faults: list[str] = field(default_factory=list)

    @classmethod
    def match(
        cls,
        text: Text,
        old: Words,
        new: Words,
        sm: int,
        linked: frozenset[int],
        functions: frozenset[int],
        inserted: tuple[tuple[int, int], ...],
        beside: tuple[int, int] | None,
    ) -> Moved:
        """Find the original instructions: all that is not declared as inserted."""
        ours = np.zeros(len(new), bool)
        for first, end in inserted:
            ours[first // BYTES : -(-end // BYTES)] = True
        made = cls(text, numbers(old), numbers(new), sm, linked, functions, [-1] * len(new), [])
        made._take(0, np.flatnonzero(~ours).tolist()[: len(old)])  # padding lies behind
        if beside is not None:
            made._take(beside[0] // BYTES, made._beside(beside[0] // BYTES, beside[1] // BYTES))
        return made

    def _beside(self, first: int, end: int) -> list[int]:
        """Return the places of the second copy of the original instructions, the earliest ones."""
        found, at = [], first
        for word in self.old:
            bare = _without_place(word, self.sm) if names_place(word) else word
            while at < end and not self._same(word, bare, self.new[at]):
                at += 1
            found.append(at)
            at += 1
        return [each for each in found if each < end]

    def _same(self, word: int, bare: int, new: int) -> bool:
        if names_place(word) and names_place(new):
            return _without_place(new, self.sm) == bare
        moved = word & 0xFFF == _MOVE and word >> 32 & 0xFFFFFFFF in self.returns
        return (new ^ word) & (~(0xFFFFFFFF << 32) if moved else -1) == 0

    def _take(self, start: int, places: list[int]) -> None:
        """Take these places for those of all original instructions, in their order."""
        if len(places) != len(self.old):
            self.faults.append(f"{len(places)} of {len(self.old)} original instructions are there")
        self.parts.append((start, places))
        for number, place in enumerate(places[: len(self.old)]):
            self.origin[place] = number
            old, new = self.old[number], self.new[place]
            if old == new or (self.linked_to(number) and names_place(old)):
                continue
            if not self._same(old, _without_place(old, self.sm) if names_place(old) else old, new):
                self.faults.append(f"{self.said(number)} is not as it was")

    def linked_to(self, number: int) -> bool:
        """Whether the loader writes into an original instruction."""
        return number in self.linked

    def said(self, number: int) -> str:
        """Return an original instruction in words."""
        return f"instruction {number}, {self.text.lines[number]!r},"

    @cached_property
    def calls(self) -> list[int]:
        """The original instructions that call a function of the same code."""
        return [at for at, word in enumerate(self.old) if word & 0xFFF == _CALL]

    @cached_property
    def returns(self) -> frozenset[int]:
        """The return addresses of calls, in bytes."""
        return frozenset((at + 1) * BYTES for at in self.calls)

    def reached(self, place: int) -> frozenset[tuple[int, int]]:
        """Return the original instructions reached first from a place, with their parts' starts."""
        found, seen, work = set(), set(), [place]
        while work:
            at = work.pop()
            if at in seen:
                continue
            seen.add(at)
            if not 0 <= at < len(self.new):
                found.add((-1, -1))
            elif self.origin[at] >= 0:
                found.add((self._start(at), self.origin[at]))
            else:
                work += self.after_inserted(at)
        return frozenset(found)

    def after_inserted(self, at: int) -> list[int]:
        """Return the successors of an inserted instruction."""
        word = self.new[at]
        if word & 0xFFF != _BRA:
            return [at + 1]
        to = led(word, at, self.sm) // BYTES
        return [to] if word >> 12 & 15 == 7 and word >> 87 & 15 == 7 else [to, at + 1]

    def _start(self, place: int) -> int:
        start, places = self.parts[-1]
        return start if len(self.parts) > 1 and places and places[0] <= place <= places[-1] else 0

    def leads(self, byte: int, start: int, number: int) -> bool:
        """Whether control at a byte of the code leads to an original instruction of a part."""
        return byte % BYTES == 0 and self.reached(byte // BYTES) == {(start, number)}

    def _returns(self, call: int, start: int, places: list[int]) -> bool:
        """Whether an instruction sets a call's return address to the instruction behind it.

        It is before the call, or in the function if that has a single call.
        """
        target = led(self.old[call], call, self.sm) // BYTES
        if target not in self.functions:
            return True  # a jump
        value = (call + 1) * BYTES << 32
        moves = [
            at
            for at in (*range(max(call - _BEFORE, 0), call), *range(target, len(self.old)))
            if self.old[at] & 0xFFF == _MOVE and (self.old[at] ^ value) >> 32 & 0xFFFFFFFF == 0
        ]
        new = [(self.new[places[at]] >> 32 & 0xFFFFFFFF) + start * BYTES for at in moves]
        return any(self.leads(each, start, call + 1) for each in new)

    def check(self) -> Iterator[str]:
        """Yield the instructions that are missing, changed, or lead to other instructions."""
        yield from self.faults
        if len(self.text.words) != len(self.old) or numbers(self.text.words) != self.old:
            yield "the disassembly is not that of the plain kernel's code"
            return
        if self.faults:
            return
        first = {(start, 0) for start, _ in self.parts}
        if self.reached(0) != first:
            yield "its entry does not lead to its first instruction"
        for number, line in enumerate(self.text.lines):
            yield from self._check(number, line)

    def _check(self, number: int, line: str) -> Iterator[str]:
        word = self.old[number]
        placed = names_place(word)
        named = [self.text.labels[each] for each in targets(line) if each in self.text.labels]
        if named and not placed and not self.linked_to(number):
            yield f"{self.said(number)} names a place in a way that is not known"
        if (
            placed
            and named
            and not self.linked_to(number)
            and led(word, number, self.sm) // BYTES not in named
        ):
            yield f"{self.said(number)} does not hold the place where this reads it"
        for start, places in self.parts:
            at = places[number]
            if word & 0xFFF == _CALL and not self._returns(number, start, places):
                yield f"{self.said(number)} has no address to return to"
            last = number + 1 == len(self.old)
            if (
                not last
                and places[number + 1] > at + 1
                and not self.leads((at + 1) * BYTES, start, number + 1)
            ):
                yield f"{self.said(number)} is not followed by the next one"
            if placed and not self.linked_to(number):
                yield from self._led(number, word, start, places)

    def _led(self, number: int, word: int, start: int, places: list[int]) -> Iterator[str]:
        """Yield an instruction with a distance that leads to another target in a part."""
        at = places[number]
        old, new = led(word, number, self.sm), led(self.new[at], at, self.sm)
        to = old // BYTES
        if word & 0xFFF in (_RET, *TABLED):
            if old or new != start * BYTES:
                yield f"{self.said(number)} does not count from the code's start"
        elif old % BYTES or not self.leads(new, start, to):
            yield f"{self.said(number)} leads elsewhere"
        elif word & 0xFFF in _COLLECTIVES and places[to - 1] - at != to - 1 - number:
            yield f"{self.said(number)} has inserted code in what threads run together"
