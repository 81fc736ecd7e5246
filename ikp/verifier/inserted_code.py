"""The instructions that a patch may insert: a table of their forms, and one decoded."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final, NamedTuple

from ikp.sass.disassembly.effects import FILES, P, members

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


class Inserted(NamedTuple):
    """One inserted instruction, decoded; registers as (first bit, how many), -1 for none.

    ``asked`` are bits that it reads as values, ``sets`` those it writes, each with its place in the
    first target; another target's have ``BESIDE``.
    """

    opcode: int
    word: int
    kind: str
    targets: tuple[tuple[int, int], ...]
    sources: tuple[tuple[int, int], ...]
    guard: int
    reads: int
    writes: int
    asked: tuple[int, ...]
    sets: tuple[tuple[int, int], ...]


BESIDE: Final = 99
_Field = tuple[int, int, int, str]  # first bit, number of none, the file's first bit, size


@cache
def decode(word: int, sm: int) -> Inserted:
    """Return a decoded instruction; ValueError: a patch may not insert it."""
    opcode, number = word & 0xFFF, word >> 12 & 7
    kind, *fields = _fields(opcode, sm)
    targets, sources = (tuple([_named(each, word) for each in some]) for some in fields)
    guard = P.first + number if number != 7 else -1
    reads = _registers([*sources, (guard, 1)])
    if kind == "save":
        reads |= (word >> 32 & 0x7F) << P.first
    asked = reads if kind not in ("branch", "save") else 0
    if kind == "store" and sources[1][1] == 4 and sources[1][0] >= 0:
        asked &= ~(1 << sources[1][0] + 3)  # a record's last word is anything
    sets = [
        (first + n, BESIDE if second else n)
        for second, (first, count) in enumerate(targets)
        for n in range(count if first >= 0 else 0)
    ]
    return Inserted(
        *(opcode, word, kind, targets, sources, guard, reads, _registers(targets)),
        *(tuple(members(asked)), tuple(sets)),
    )


def _registers(fields: Iterable[tuple[int, int]]) -> int:
    found = 0
    for first, count in fields:
        found |= ((1 << count) - 1) << first if first >= 0 else 0
    return found


@cache
def _fields(opcode: int, sm: int) -> tuple[str, list[_Field], list[_Field]]:
    """Return the kind of an opcode's result, and the fields that it writes and reads."""
    if opcode not in FORMS:
        raise ValueError(f"opcode {opcode:#x} is none that is inserted")
    kind, *texts = FORMS[opcode].split("|")
    targets, sources = ([_field(each, sm) for each in text.split()] for text in texts)
    return kind, targets, sources


def _field(text: str, sm: int) -> _Field:
    name = text.rstrip("+*")
    file = name.rstrip("0123456789")
    none = 7 if "P" in file else 0x3F if file == "UR" and sm < 100 else 0xFF
    return int(name[len(file) :]), none, FILES[file].first, text[len(name) :]


def _named(field: _Field, word: int) -> tuple[int, int]:
    """Return the first register that a field names, and how many it does."""
    at, none, first, size = field
    number = word >> at & (7 if none == 7 else 0xFF)  # a field of 6 bits: those beyond it, too
    return (-1 if number == none else first + (number & none)), _count(size, at, word)


def _count(size: str, at: int, word: int) -> int:
    """Return how many registers a field at a bit names."""
    opcode = word & 0xFFF
    if size == "+" or (opcode == 0x986 and at == 24 and word >> 90 & 1):
        return 2  # of 0x986, an offset of one register without a descriptor
    if size != "*":
        return 1
    return 1 + (word >> 80 & 1) if opcode == 0x805 else {5: 2, 6: 4}.get(word >> 73 & 7, 1)
