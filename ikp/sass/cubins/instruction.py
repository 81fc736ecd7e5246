"""128-bit instruction words in numpy arrays: opcodes, guards, and the distances of branches.

An array of instructions has the shape (n, 2) and the type ``uint64``: low and high halves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ikp.errors import PatchError

BYTES = 16
"""Bytes of an instruction, on every chip from sm_70 on."""

LINE = 8
"""Instructions of which a kernel's code is a multiple: 128 bytes."""

Words = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Field:
    """The bits of an instruction that hold the distance from its end to its target."""

    parts: tuple[tuple[int, int, int], ...]  # half, first bit, number of bits; the lowest first
    unit: int  # bytes

    @property
    def bits(self) -> int:
        """The number of bits."""
        return sum(part[2] for part in self.parts)


def opcodes(words: Words) -> Numbers:
    """Return the opcode of each instruction: 12 bits, the forms of its operands among them."""
    return (words[:, 0] & np.uint64(0xFFF)).astype(np.int64)


def distances(words: Words, field: Field) -> Numbers:
    """Return each instruction's distance from its end to its target, in bytes."""
    found, at = np.zeros(len(words), np.uint64), 0
    for half, first, bits in field.parts:
        part = (words[:, half] >> np.uint64(first)) & np.uint64((1 << bits) - 1)
        found |= part << np.uint64(at)
        at += bits
    sign = np.uint64(64 - field.bits)
    return ((found << sign).astype(np.int64) >> sign.astype(np.int64)) * field.unit


def set_distances(words: Words, field: Field, new: Numbers) -> None:
    """Write distances in bytes into instructions, in place.

    Raises:
        PatchError: one is too long for the field.
    """
    units, at = new // field.unit, 0
    if len(units) and int(np.abs(units).max()) >> (field.bits - 1):
        raise PatchError(
            "A branch would reach farther than its instruction can say. Add fewer instructions."
        )
    for half, first, bits in field.parts:
        mask = np.uint64((1 << bits) - 1)
        part = ((units >> at).astype(np.uint64) & mask) << np.uint64(first)
        words[:, half] = (words[:, half] & ~(mask << np.uint64(first))) | part
        at += bits


def guard(instruction: int) -> tuple[int, bool]:
    """Return the predicate that guards an instruction, 7 for none, and whether it is negated."""
    return instruction >> 12 & 7, bool(instruction >> 15 & 1)


def rows(instructions: list[int] | tuple[int, ...]) -> Words:
    """Return instructions of 128 bits as an array."""
    data = b"".join(each.to_bytes(BYTES, "little") for each in instructions)
    return np.frombuffer(data, np.uint64).reshape(-1, 2).copy()


def number(row: Words) -> int:
    """Return one instruction of an array as a number of 128 bits."""
    return int(row[0]) | int(row[1]) << 64


PADDING = 0x000FC000000000000000000000007918
"""The NOP with which ptxas fills up the code's last 128 bytes."""

PASSED = 0x000FE200000000000000000000007918
"""A NOP that is run, and takes one cycle."""

_BRANCH = 0x000FEA00038000000000000000007947
"""A BRA that is always taken."""


def branch(field: Field, distance: int) -> int:
    """Return a branch that is always taken, over so many bytes from its end."""
    made = rows([_BRANCH])
    set_distances(made, field, np.array([distance], np.int64))
    return number(made[0])
