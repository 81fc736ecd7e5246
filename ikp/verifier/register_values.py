"""``Rules``: values that inserted code puts into registers, and its unsafe reads and stores.

Values are numbers, the cell's size and address, and a guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from ikp.sass.disassembly.effects import UP, UR, P, members
from ikp.verifier.declared import Declared
from ikp.verifier.inserted_code import Inserted, decode
from ikp.verifier.matched_code import names
from ikp.verifier.patched_graph import LOADS, PatchedGraph

ZERO, NUMBER, SIZE, LOW, HIGH, ROOM, OTHER, LOST, MEMORY, MORE = range(10)
"""What inserted code has put into a register: a number; the cell's size or address; a predicate
that there is room; anything; LOST, if original code has written it since; global memory's
descriptor. A number below 0: the predicate of that number was saved."""
_NUMBERS, _CELL = (ZERO, NUMBER, SIZE), (LOW, HIGH, SIZE)
_MEMORY_AT: Final = {0x160: 0x118, 0x210: 0x208, 0x380: 0x358}  # by where parameters are
_PREDICATES: Final = P.all
Values = dict[int, int]


class Rules:
    """How instructions change what registers hold, and which registers they may read or store to.

    Args:
        graph: the patched code.
        declared: the differences that the patch declares.
        base: where parameters begin in the constants.
    """

    def __init__(self, graph: PatchedGraph, declared: Declared, base: int) -> None:
        self.graph, self.code, self.effects = graph, graph.code, graph.effects
        self.declared, self.base = declared, base
        self._loaded: dict[int, list[int]] = {}

    def overwrite(self, number: int, values: Values) -> None:
        """Change values by an original instruction."""
        writes, word = self.effects[number].writes, self.code.old[number]
        values |= _lost(writes)
        if writes & _PREDICATES and min(values.values()) < 0:
            saved = [bit for bit, value in values.items() if value < 0 and writes >> -value & 1]
            values |= dict.fromkeys(saved, OTHER)
        if writes and word & 0xFFF in LOADS and word >> 12 & 15 == 7:
            own = decode(word, self.code.sm)
            if (made := self._constants(own)) == [MEMORY, MORE] and own.targets[0][0] >= 0:
                values |= {own.targets[0][0] + n: each for n, each in enumerate(made)}

    def unsafe(self, own: Inserted, at: int, values: Values) -> Iterator[str]:
        """Yield what an inserted instruction reads or stores to and may not."""
        unknown = sum([1 << bit for bit in own.asked if values.get(bit, LOST) == LOST])
        if unknown and self.declared.watches:
            number = self.code.origin[self.code.behind[at]]
            unknown &= ~(self.effects[number].reads if number >= 0 else 0)
        if unknown:
            yield f"reads {names(unknown)}, which no inserted one has set"
        if own.kind == "store":
            yield from _astray(own, values)

    def insert(self, own: Inserted, values: Values, *, restored: bool) -> None:
        """Change values by an inserted instruction, which may set a predicate again."""
        if restored:
            values |= {own.sources[0][0]: OTHER, own.targets[0][0]: LOST}
            return
        made = self._made(own, values) if own.sets else []
        for bit, n in own.sets:
            value = made[n] if n < len(made) and made[n] != LOST else OTHER
            same = own.guard < 0 or values.get(bit) == value
            values[bit] = value if same else OTHER

    def _made(self, own: Inserted, values: Values) -> list[int]:
        """Return what an inserted instruction's first target holds."""
        if own.kind == "load":
            return self._constants(own)
        if own.kind not in _RESULTS:
            return [OTHER]
        read = [_of(values, first) for first, _ in own.sources]
        return [_RESULTS[own.kind](own, read)]

    def _constants(self, own: Inserted) -> list[int]:
        """Return what is in the constants that an instruction loads."""
        if (known := self._loaded.get(own.word)) is not None:
            return known
        bank, at = own.word >> 54 & 31, own.word >> (37 if own.opcode == 0x7AC else 38) & 0xFFFF
        cell, memory = self.declared.cell, _MEMORY_AT.get(self.base)
        found = []
        for here in range(at, at + 4 * own.targets[0][1], 4):
            if bank == self.declared.bank and 0 <= here - cell < self.declared.nbytes:
                found.append(_CELL[(here - cell) // 4] if here - cell < 12 else NUMBER)
            elif bank or here >= self.base or memory is None:
                found.append(OTHER)
            else:
                found.append({memory: MEMORY, memory + 4: MORE}.get(here & ~3, NUMBER))
        return self._loaded.setdefault(own.word, found)


@lru_cache(1 << 12)
def _lost(writes: int) -> Values:
    return dict.fromkeys(members(writes), LOST)


def restores(own: Inserted, values: Values) -> bool:
    """Whether an instruction sets a predicate again from a register that it was saved in."""
    if own.opcode != 0x80C or own.word >> 76 & 7 != 5 or own.word >> 32 & 0xFFFFFFFF:
        return False
    plain = own.guard < 0 and own.word >> 87 & 15 == 7 and own.targets[0][0] >= 0
    return plain and values.get(own.sources[0][0]) == -own.targets[0][0]


def _astray(own: Inserted, values: Values) -> Iterator[str]:
    """Yield what shows that an inserted store does not surely go to the cell's records."""
    (address, _), _, (pair, _) = own.sources
    near = own.opcode == 0x986 and not own.word >> 90 & 1
    place, number = (pair, address) if near else (address, -1)
    if values.get(own.guard) != ROOM or own.word >> 15 & 1:
        yield "stores where no guard says that there is room"
    if _pair(values, place) != [LOW, HIGH]:
        yield "stores at an address that is not made of the cell's"
    if _of(values, number) not in _NUMBERS:
        yield "stores at an offset that is no number"
    if not near and _pair(values, pair) != [MEMORY, MORE]:
        yield "does not name global memory"


def _pair(values: Values, first: int) -> list[int | None]:
    return [values.get(first), values.get(first + 1)]


def _is_one(bit: int) -> bool:
    """Whether a register is a predicate, or none."""
    return bit >= UP.first or P.first <= bit < UR.first


def _of(values: Values, bit: int) -> int:
    return ZERO if bit < 0 else values.get(bit, OTHER)


def _saved(own: Inserted, _: list[int]) -> int:
    """Return which predicate a register has, if just one was saved in it."""
    mask = own.word >> 32 & 0xFFFFFFFF
    one = mask.bit_count() == 1 and mask < 1 << 7
    return -(P.first + mask.bit_length() - 1) if one else OTHER


def _tested(own: Inserted, read: list[int]) -> int:
    """Return whether a predicate says that there is room: a number is below a size."""
    below = own.word >> 76 & 7 == 1 and own.opcode in (0x20C, 0xC0C) and read[-2] == SIZE
    sure = own.word >> 64 & 0xE00 == 0 and not own.word >> 90 & 1  # unsigned, both hold
    return ROOM if sure and (below or read[-1] == ROOM) else OTHER


def _mixed(own: Inserted, read: list[int]) -> int:
    """Return what is made of several registers in another way than as a sum."""
    words = [each for each, (bit, _) in zip(read, own.sources, strict=True) if not _is_one(bit)]
    return _sum(words) if all(each in _NUMBERS for each in words) else OTHER


def _number(own: Inserted, _: list[int]) -> int:
    return OTHER if 0x50 <= own.word >> 72 & 0xFF <= 0x53 else NUMBER  # those are clocks


def _sum(addends: list[int], *, whole: bool = False) -> int:
    """Return the sum of values, and of a constant where it is not ``whole``."""
    some = [each for each in addends if each != ZERO]
    if len(some) == 1 and (whole or some[0] in (LOW, SIZE)):
        return some[0]
    others = [each for each in some if each not in _NUMBERS]
    if not others:
        return NUMBER
    return LOW if others == [LOW] else OTHER


def _multiplied(factors: list[int], addends: list[int]) -> int:
    """Return the sum of a product and of other values."""
    if ZERO in factors:
        return _sum(addends, whole=True)
    if any(each not in _NUMBERS for each in factors):
        return OTHER
    return _sum([NUMBER, *addends])


_RESULTS: Final[dict[str, Callable[[Inserted, list[int]], int]]] = {
    "save": _saved,
    "test": _tested,
    "mixed": _mixed,
    "number": _number,
    "store": lambda _own, _read: NUMBER,
    "copy": lambda _, read: _sum(read, whole=True),
    "0": lambda _, read: _sum(read),
    "1": lambda _, read: _multiplied(read[:1], read[1:]),
    "2": lambda _, read: _multiplied(read[:2], read[2:]),
}
"""What the first target of each kind of instruction holds, by what it reads; others: anything."""
