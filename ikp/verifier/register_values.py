"""What inserted code has put into registers: numbers, the cell's size and address, a guard.

A value is the set of what it may be, a bit each. Where paths meet, it may be what it is on either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ikp.sass.disassembly.effects import UP, UR, P
from ikp.verifier.declared import Declared
from ikp.verifier.inserted_code import Inserted

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
    word, opcode, made = own.word, own.word & 0xFFF, OTHER
    if own.kind == "number":
        made = OTHER if 0x50 <= word >> 72 & 0xFF <= 0x53 else NUMBER  # those are clocks
    elif own.kind == "store":
        made = NUMBER
    elif own.kind == "save":
        mask = word >> 32 & 0xFFFFFFFF
        made = mask << SAVED if mask.bit_count() == 1 and mask < 128 else OTHER
    elif own.kind == "test":  # whether a number is below a size
        below = word >> 76 & 7 == 1 and opcode in (0x20C, 0xC0C) and read[-2] == SIZE
        sure = word >> 64 & 0xE00 == 0 and not word >> 90 & 1  # unsigned, both hold
        made = ROOM if sure and (below or read[-1] == ROOM) else OTHER
    elif own.kind == "mixed":
        words = [e for e, some in zip(read, own.sources, strict=True) if not _is_one(some)]
        made = OTHER if any(each & ~_NUMBERS for each in words) else _sum(words)
    elif own.kind == "copy":
        made = _sum(read, whole=True)
    elif own.kind.isdigit():
        made = _multiplied(read[: int(own.kind)], read[int(own.kind) :])
    return made


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
    if [values.get(each) for each in place] != [LOW, HIGH]:
        yield "stores at an address that is not made of the cell's"
    if any(values.get(each, OTHER) & ~_NUMBERS for each in number):
        yield "stores at an offset that is no number"
    if not near and [values.get(each) for each in pair] != [MEMORY, MORE]:
        yield "does not name global memory"
