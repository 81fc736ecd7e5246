"""Decoder of the instructions that a patch may insert: all other opcodes are refused.

A field is a register file and its first bit; ``+`` means a pair, ``*`` as many registers as the
instruction's size says.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ikp.verifier.original import FILES, P

FORMS = {
    0x805: "clock|R16*|", 0x919: "number|R16|", 0x9C3: "number|UR16|",
    0x82F: "other|P81|UR16 P87", 0xAB9: "load|UR16*|", 0x7AC: "load|UR16*|UR24",
    0xB82: "load|R16*|R24", 0xA02: "load|R16|", 0x202: "sum|R16|R32", 0x802: "sum|R16|",
    0xC02: "sum|R16|UR32", 0xC82: "sum|UR16|UR32", 0x2CA: "sum|UR16|R24", 0x3C2: "sum|UR16|R24",
    0xE25: "pair|R16+|R24 R64 UR32+", 0x224: "product|R16|R24 R32 R64",
    0x424: "mixed|R16|R24 R64", 0x824: "scaled|R16|R24 R64", 0xE24: "product|R16|R24 R64 UR32",
    0x2A4: "product|UR16|UR24 UR32 UR64", 0x8A4: "scaled|UR16|UR24 UR64", 0x836: "sum|R16|R24",
    0x835: "sum|R16|R24", 0x810: "sum|R16|R24 R64", 0xC36: "sum|R16|R24 UR32",
    0x890: "sum|UR16|UR24 UR64", 0x211: "shifted|R16|R24 R32 R64",
    0xC11: "shifted|R16|R24 UR32 R64", 0x291: "shifted|UR16|UR24 UR32 UR64",
    0x219: "mixed|R16|R24 R32 R64", 0x819: "mixed|R16|R24 R64", 0x216: "mixed|R16|R24 R32 R64",
    0x816: "mixed|R16|R24 R64", 0x212: "mixed|R16 P81|R24 R32 R64",
    0x812: "mixed|R16 P81|R24 R64", 0xC12: "mixed|R16 P81|R24 UR32 R64",
    0x892: "mixed|UR16 UP81|UR24 UR64", 0x807: "mixed|R16|R24 P87",
    0x287: "mixed|UR16|UR24 UR32 UP87", 0x806: "mixed|R16 P81|P87",
    0x20C: "test|P81 P84|R24 R32 P87", 0x80C: "test|P81 P84|R24 P87",
    0xC0C: "test|P81 P84|R24 UR32 P87", 0x28C: "test|UP81 UP84|UR24 UR32 UP87",
    0x803: "save|R16|R24", 0x986: "store||R24 R32* UR64+", 0x98E: "store||R24+ R32* UR64+",
    0x9A8: "atomic|R16|R24+ R32* UR64+", 0x947: "branch||P87", 0x918: "none||",
}  # fmt: skip
"""Opcode -> the kind of its result | the fields that it writes | the fields that it reads."""
LATE = frozenset((0x919, 0x9C3, 0x7AC, 0xB82, 0x3C2, 0x9A8))
"""Opcodes of variable latency: a scoreboard says when their results are there."""
STORES = ("store", "atomic")
"""Kinds of results of instructions that write memory."""
_BITS = {"R": 8, "UR": 8, "P": 3, "UP": 3}
_DESCRIBED, _EXTENDED = 1 << 90, 1 << 76


class Inserted(NamedTuple):
    """One inserted instruction, decoded."""

    opcode: int
    word: int
    kind: str
    targets: tuple[tuple[int, int], ...]  # (first bit in sets of ``original``, how many); -1: none
    sources: tuple[tuple[int, int], ...]
    guard: int  # the bit of its predicate, -1 for none
    holds: bool  # whether it runs where that is set
    reads: int
    writes: int


@cache
def decode(word: int, sm: int) -> Inserted:
    """Return a decoded instruction; ValueError: a patch may not insert it."""
    opcode = word & 0xFFF
    if opcode not in FORMS:
        raise ValueError(f"opcode {opcode:#x} is none that is inserted")
    kind, written, read = FORMS[opcode].split("|")
    targets = tuple([_field(each, word, opcode, sm) for each in written.split()])
    sources = tuple([_field(each, word, opcode, sm) for each in read.split()])
    guard = word >> 12 & 7
    reads = 0 if guard == 7 else 1 << P + guard
    if opcode == 0x803:
        reads |= (word >> 32 & 0x7F) << P
    return Inserted(
        *(
            opcode,
            word,
            kind,
            targets,
            sources,
            -1 if guard == 7 else P + guard,
            not word >> 15 & 1,
        ),
        *(reads | _bits(sources), _bits(targets)),
    )


def _bits(fields: tuple[tuple[int, int], ...]) -> int:
    return sum({1 << first + n for first, count in fields if first >= 0 for n in range(count)})


def _field(text: str, word: int, opcode: int, sm: int) -> tuple[int, int]:
    name = text.rstrip("+*")
    file = name.rstrip("0123456789")
    at, count = int(name[len(file) :]), 1
    number = word >> at & (1 << _BITS[file]) - 1
    if text[-1] == "+":
        count = 2
    elif text[-1] == "*" and opcode == 0x805:
        count = 1 + (word >> 80 & 1)
    elif text[-1] == "*":
        count = {4: 1, 5: 2, 6: 4}.get(word >> 73 & 7, 1)
    if opcode == 0x986 and text == "R24":  # with a uniform address, an offset of one register
        count = 2 if word & _DESCRIBED else 1
    if file == "UR":
        number = 255 if number == 63 and sm < 100 else number & (0xFF if sm >= 100 else 0x3F)
    none = number == (255 if file in ("R", "UR") else 7)
    return (-1 if none else FILES[file] + number), count


def near(each: Inserted) -> bool:
    """Whether a store's address is in uniform registers, with a thread's offset."""
    return each.opcode == 0x986 and not each.word & _DESCRIBED


def constant(word: int) -> tuple[int, int]:
    """Return the constant bank and the offset that an instruction loads from."""
    if word & 0xFFF == 0x7AC:
        return word >> 54 & 31, word >> 37 & 0xFFFF
    return word >> 54 & 31, word >> 38 & 0xFFFF
