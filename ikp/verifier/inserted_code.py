"""The instructions that a patch may insert: a table of their forms, and one decoded."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, reduce
from itertools import chain
from operator import or_
from typing import Final, NamedTuple

from ikp.sass.disassembly.effects import FILES, P

FORMS: Final = {
    0x805: "clock|R16*|", 0x919: "number|R16|", 0x9C3: "number|UR16|",
    0x82F: "other|P81|UR16 P87", 0xAB9: "load|UR16*|", 0x7AC: "load|UR16*|UR24",
    0xB82: "load|R16*|R24", 0xA02: "load|R16|", 0x202: "copy|R16|R32", 0x802: "0|R16|",
    0xC02: "copy|R16|UR32", 0xC82: "copy|UR16|UR32", 0x2CA: "copy|UR16|R24", 0x3C2: "copy|UR16|R24",
    0xE25: "other|R16+|R24 R64 UR32+", 0x224: "2|R16|R24 R32 R64",
    0x424: "mixed|R16|R24 R64", 0x824: "1|R16|R24 R64", 0xE24: "2|R16|R24 R64 UR32",
    0x2A4: "2|UR16|UR24 UR32 UR64", 0x8A4: "1|UR16|UR24 UR64", 0x836: "0|R16|R24",
    0x835: "0|R16|R24", 0x810: "0|R16|R24 R64", 0xC36: "0|R16|R24 UR32",
    0x890: "0|UR16|UR24 UR64", 0x211: "1|R16|R24 R32 R64",
    0xC11: "1|R16|R24 UR32 R64", 0x291: "1|UR16|UR24 UR32 UR64",
    0x219: "mixed|R16|R24 R32 R64", 0x819: "mixed|R16|R24 R64", 0x216: "mixed|R16|R24 R32 R64",
    0x816: "mixed|R16|R24 R64", 0x212: "mixed|R16 P81|R24 R32 R64",
    0x812: "mixed|R16 P81|R24 R64", 0xC12: "mixed|R16 P81|R24 UR32 R64",
    0x892: "mixed|UR16 UP81|UR24 UR64", 0x807: "mixed|R16|R24 P87",
    0x287: "mixed|UR16|UR24 UR32 UP87", 0x806: "mixed|R16 P81|P87",
    0x20C: "test|P81 P84|R24 R32 P87", 0x80C: "test|P81 P84|R24 P87",
    0xC0C: "test|P81 P84|R24 UR32 P87", 0x28C: "test|UP81 UP84|UR24 UR32 UP87",
    0x803: "save|R16|R24", 0x986: "store||R24 R32* UR64+", 0x98E: "store||R24+ R32* UR64+",
    0x9A8: "store|R16|R24+ R32* UR64+", 0x947: "branch||P87", 0x918: "none||",
}  # fmt: skip
"""Opcode -> the kind of its result | the fields that it writes | those that it reads. A field is a
file and a first bit; ``+``: a pair, ``*``: as many as its size says. A digit: so many factors are
multiplied, and all others added."""
_FIELD: Final = re.compile(r"(U?[RP])(\d+)([+*]?)")
Registers = tuple[int, ...]
"""Bits of registers, as in ``ikp.sass.disassembly.effects``; none of RZ and PT."""


class Inserted(NamedTuple):
    """One inserted instruction, decoded."""

    word: int
    kind: str
    targets: tuple[Registers, ...]
    sources: tuple[Registers, ...]
    guard: int  # its predicate's bit; -1: none
    written: Registers  # of all targets
    reads: int
    writes: int
    asked: Registers  # what it reads as values


@cache
def decode(word: int, sm: int) -> Inserted:
    """Return a decoded instruction; ValueError: a patch may not insert it."""
    kind, *fields = _fields(word & 0xFFF, sm)
    targets, sources = (tuple(_registers(each, word) for each in some) for some in fields)
    guard = P.first + (word >> 12 & 7) if word >> 12 & 7 != 7 else -1
    asked = [each for some in sources for each in some] + [guard] * (guard >= 0)
    reads = _bits(asked) | (word >> 32 & 0x7F) << P.first if kind == "save" else _bits(asked)
    if kind == "store" and len(sources[1]) == 4:
        asked.remove(sources[1][3])  # a record's last word is anything
    values = () if kind in ("branch", "save") else tuple(asked)
    written = tuple(chain.from_iterable(targets))
    return Inserted(word, kind, targets, sources, guard, written, reads, _bits(written), values)


def _bits(some: Iterable[int]) -> int:
    return reduce(or_, [1 << each for each in some], 0)


_Field = tuple[int, int, int, str]  # first bit, number of none, the file's first bit, size


@cache
def _fields(opcode: int, sm: int) -> tuple[str, list[_Field], list[_Field]]:
    """Return the kind of an opcode's result, and the fields that it writes and reads."""
    if opcode not in FORMS:
        raise ValueError(f"opcode {opcode:#x} is none that is inserted")
    kind, *texts = FORMS[opcode].split("|")
    none = {"P": 7, "UP": 7, "R": 0xFF, "UR": 0x3F if sm < 100 else 0xFF}
    targets, sources = (
        [(int(at), none[file], FILES[file].first, size) for file, at, size in _FIELD.findall(text)]
        for text in texts
    )
    return kind, targets, sources


def _registers(field: _Field, word: int) -> Registers:
    """Return the registers that a field names."""
    at, none, first, size = field
    number = word >> at & (7 if none == 7 else 0xFF)  # a field of 6 bits: those beyond it, too
    if number == none:
        return ()
    first, opcode = first + (number & none), word & 0xFFF
    count = 1 + (size == "+" or (opcode == 0x986 and at == 24 and word >> 90 & 1))
    if size == "*":
        wide = {5: 2, 6: 4}.get(word >> 73 & 7, 1)
        count = 1 + (word >> 80 & 1) if opcode == 0x805 else wide
    return tuple(range(first, first + count))
