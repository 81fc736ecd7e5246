"""Sets of registers and predicates as bits of one integer, and as rows of a boolean table.

R0 is bit 0. RZ, PT, URZ and UPT hold no value, so they have no bit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class File:
    """One register file: ``count`` registers, from bit ``first`` on."""

    prefix: str
    first: int
    count: int

    @property
    def all(self) -> int:
        """The set of all of them."""
        return ((1 << self.count) - 1) << self.first

    @property
    def columns(self) -> slice:
        """Their columns in a table."""
        return slice(self.first, self.first + self.count)


R = File("R", 0, 255)
P = File("P", 256, 7)
UR = File("UR", 264, 255)  # 63 before sm_100
UP = File("UP", 520, 7)
FILES = {file.prefix: file for file in (R, P, UR, UP)}
BITS = 528
"""How many bits a set takes; a multiple of 8."""

EVERYTHING = R.all | P.all | UR.all | UP.all
_NAME = re.compile(r"(U?[RP])(\d+)")


def bit(name: str) -> int:
    """Return the bit of a name like ``"UR4"``."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is no register")
    return FILES[found[1]].first + int(found[2])


def span(first: int, count: int) -> int:
    """Return the set of ``count`` registers from a bit on."""
    return ((1 << count) - 1) << first


def members(some: int) -> list[int]:
    """Return the bits of a set, by their numbers."""
    found = []
    while some:
        found.append((some & -some).bit_length() - 1)
        some &= some - 1
    return found


def table(sets: Iterable[int]) -> NDArray[np.bool_]:
    """Return sets as rows of an array, a column for each bit."""
    data = b"".join([each.to_bytes(BITS // 8, "little") for each in sets])
    packed = np.frombuffer(data, dtype=np.uint8).reshape(-1, BITS // 8)
    return np.unpackbits(packed, axis=1, bitorder="little").view(np.bool_)
