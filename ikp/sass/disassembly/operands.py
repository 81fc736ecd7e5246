"""Parser of one SASS operand: its kind (register, predicate, address, constant) and registers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache

from ikp.sass.disassembly.resources import FILES, UP, P, span


class Kind(Enum):
    """What an operand is."""

    REGISTER = auto()
    PREDICATE = auto()
    PREDICATES = auto()  # all of them at once
    ADDRESS = auto()  # any other operand that is no number: it may have registers in it
    CONSTANT = auto()


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """The form of an operand, without its register's number. There is one object of each form."""

    kind: Kind
    width: int = 1  # registers, as far as the operand's own text says
    negated: bool = False
    uniform: bool = False


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand: its form, and the registers."""

    form: Form
    first: int = -1  # the bit of its register; -1 for RZ and PT, and where it names several
    reads: int = 0  # the registers that an address reads, as bits
    bare: int = 0  # those of them whose width is not in the text


_REGISTER = re.compile(r"([-~|!]*)(U?)R(\d+|Z)\|?((?:\.\w+)*)")
_PREDICATE = re.compile(r"(!?)(U?)P(\d|T)")
_INSIDE = re.compile(r"(?<![\w.])(U?[RP])(\d+)((?:\.\w+)*)")
_BARRIER = re.compile(r"(gsb|SB|B)\d+")
_WIDE = re.compile(r"\.64\b|\.F32x2")
_DESCRIPTOR = re.compile(r"(g|i|t)?(?:desc|mem)\[")


@cache
def operand(text: str) -> Operand:
    """Parse an operand; equal texts are parsed once."""
    if found := _REGISTER.fullmatch(text):
        uniform, number = bool(found[2]), found[3]
        first = -1 if number == "Z" else FILES["UR" if uniform else "R"].first + int(number)
        width = 2 if _WIDE.search(found[4]) else 1
        return Operand(_form(Kind.REGISTER, width, bool(found[1]), uniform), first)
    if found := _PREDICATE.fullmatch(text):
        first = -1 if found[3] == "T" else FILES["UP" if found[2] else "P"].first + int(found[3])
        return Operand(_form(Kind.PREDICATE, 1, bool(found[1]), bool(found[2])), first)
    if text in ("PR", "UPR"):
        file = UP if text == "UPR" else P
        return Operand(_form(Kind.PREDICATES, file.count), file.first)
    reads, bare = _inside(text)
    number = not reads and not _BARRIER.fullmatch(text)
    return Operand(_form(Kind.CONSTANT if number else Kind.ADDRESS), reads=reads, bare=bare)


@cache
def _form(kind: Kind, width: int = 1, negated: bool = False, uniform: bool = False) -> Form:
    """Return the form's one object: it is a key in thousands of look-ups, by identity."""
    return Form(kind, width, negated, uniform)


def _inside(text: str) -> tuple[int, int]:
    """Return the registers in an address, a constant or a descriptor, and those with no width.

    Uniform registers in it may be taken as pairs, and descriptors as fours: nvdisasm writes no
    width there.
    """
    reads = bare = 0
    descriptor = _DESCRIPTOR.search(text)
    for file, number, modifiers in _INSIDE.findall(text):
        first, width = FILES[file].first + int(number), 1
        if file == "UR":
            width = 4 if descriptor and descriptor[1] == "g" else 2
            width = width if "[" in text else 1
        elif file == "R" and _WIDE.search(modifiers):
            width = 2
        elif file == "R" and ".U32" not in modifiers:  # beside a pair of uniform registers
            bare |= 1 << first
        reads |= span(first, width)
    return reads, bare
