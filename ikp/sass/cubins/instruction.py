"""Instruction words of 128 bits: opcodes, guards, and the code addresses that they encode.

An array of instructions has the shape (n, 2) and the type ``uint64``: low and high halves. Tables
have the opcodes that encode code addresses, such as branches, and those that do not; unknown
opcodes are refused.
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
class DistanceField:
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


def distances(words: Words, field: DistanceField) -> Numbers:
    """Return each instruction's distance from its end to its target, in bytes."""
    found, at = np.zeros(len(words), np.uint64), 0
    for half, first, bits in field.parts:
        part = (words[:, half] >> np.uint64(first)) & np.uint64((1 << bits) - 1)
        found |= part << np.uint64(at)
        at += bits
    sign = np.uint64(64 - field.bits)
    return ((found << sign).astype(np.int64) >> sign.astype(np.int64)) * field.unit


def set_distances(words: Words, field: DistanceField, new: Numbers) -> None:
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


def branch(field: DistanceField, distance: int) -> int:
    """Return a branch that is always taken, over so many bytes from its end."""
    made = rows([_BRANCH])
    set_distances(made, field, np.array([distance], np.int64))
    return number(made[0])


NARROW = DistanceField(((0, 34, 30), (1, 0, 18)), 4)
"""A branch's distance, up to sm_89."""

WIDE = DistanceField(((0, 16, 8), (0, 34, 30), (1, 0, 18)), 4)
"""A branch's distance, from sm_90 on."""

HALF = DistanceField(((0, 32, 32),), 1)

AFTER_REGISTER = DistanceField(((0, 24, 40), (1, 0, 18)), 1)

CALL_REL, BSSY, BRA, BRA_UNIFORM, LEPC = 0x944, 0x945, 0x947, 0x547, 0x94E
RET, BRX, BRX_UNIFORM = 0x950, 0x949, 0x958
WARPSYNC = (0x348, 0x948)
"""Of the threads in a mask, and of all."""
MOVE = 0x802  # of an immediate

_COLLECTIVE = np.uint64(1 << 22)  # of WARPSYNC's upper half, in both forms: it has a target
_ABSOLUTE = np.uint64(1 << 21)  # of RET's upper half

_CONTROL_WITHOUT_PLACES = {
    0x343: "CALL.ABS of a register",
    0x943: "CALL.ABS: the loader writes the address",
    0x540: "CCTL",
    0x941: "BSYNC",
    0x942: "BREAK",
    0x946: "YIELD",
    0x94D: "EXIT",
    0x955: "BMOV",
    0x355: "BMOV",
    0x356: "BMOV",
    0x956: "BMOV",
    0x95B: "KILL",
    0x95C: "BPT",
    0x35D: "NANOSLEEP",
    0x95D: "NANOSLEEP",
}

_STRAIGHT = (
    (0x002, 0x00C),
    (0x00F, 0x017),
    (0x019, 0x02B),
    (0x02D, 0x040),
    (0x043, 0x04C),
    (0x051, 0x051),
    (0x053, 0x053),
    (0x056, 0x056),
    (0x05A, 0x05C),
    (0x076, 0x076),
    (0x082, 0x083),
    (0x085, 0x087),
    (0x08C, 0x08C),
    (0x090, 0x092),
    (0x096, 0x097),
    (0x099, 0x09C),
    (0x0A4, 0x0A6),
    (0x0B9, 0x0B9),
    (0x0BB, 0x0BB),
    (0x0BD, 0x0BF),
    (0x0CA, 0x0CA),
    (0x0CC, 0x0CC),
    (0x100, 0x102),
    (0x104, 0x109),
    (0x110, 0x113),
    (0x118, 0x11D),
    (0x166, 0x166),
    (0x17E, 0x18F),
    (0x192, 0x192),
    (0x1A1, 0x1AC),
    (0x1AE, 0x1B2),
    (0x1B4, 0x1BE),
    (0x1C2, 0x1CA),
    (0x1E3, 0x1E3),
    (0x1E7, 0x1E7),
    (0x1E9, 0x1EA),
    (0x1ED, 0x1EE),
    (0x1F0, 0x1F1),
    (0x1F3, 0x1F3),
)
"""Ranges of opcodes, without the forms of their operands, that encode no code address.

Those of 1,521 cubins of libraries for sm_80 to sm_120, and seven more of 2,436 for sm_90, four that
reduce or prefetch in bulk, and what no library had: VABSDIFF, VABSDIFF4, FSWZADD, I2I, BMMA, and
PLOP3 of registers' signs. NVIDIA's disassembler prints each the same at any address.
"""

_NEVER = frozenset(opcode for first, last in _STRAIGHT for opcode in range(first, last + 1))

_KNOWN_PLACES = {CALL_REL, BSSY, BRA, BRA_UNIFORM, LEPC, *WARPSYNC, RET, BRX, BRX_UNIFORM}

_REFUSED = {
    0x34E: "puts its own address into a register, to which an offset is added somewhere",
    0x344: "calls what a register names, counted from its own place",
    0x94A: "jumps to an address that is written into it",
    0x94C: "jumps to an address in a register",
    0x352: "sets the address to return to from a register",
    0x952: "sets the address to return to",
}


@dataclass(frozen=True)
class AddressFields:
    """The instructions of a kernel that encode code addresses, by index, with the fields."""

    jumps: tuple[tuple[DistanceField, Numbers], ...]  # branches and calls
    joins: tuple[tuple[DistanceField, Numbers], ...]  # BSSY, WARPSYNC.COLLECTIVE and LEPC
    bases: tuple[tuple[DistanceField, Numbers], ...]  # to the code's start; a register has the rest
    calls: Numbers
    indirect: Numbers  # branches to an address in a register
    collectives: Numbers  # WARPSYNC.COLLECTIVE: the body ends at its target


def branches(sm: int) -> DistanceField:
    """Return the field of a branch's distance on a chip."""
    return WIDE if sm >= 90 else NARROW


def places(words: Words, sm: int, kernel: str) -> AddressFields:
    """Return the instructions of a kernel that encode code addresses.

    Raises:
        PatchError: an opcode is not known.
    """
    found, far = opcodes(words), branches(sm)
    _refuse_unknown(found, sm, kernel)
    collective = np.flatnonzero(np.isin(found, WARPSYNC) & ((words[:, 1] & _COLLECTIVE) != 0))
    relative = (found == RET) & ((words[:, 1] & _ABSOLUTE) == 0)
    calls = np.flatnonzero(found == CALL_REL)
    jumps = np.flatnonzero((found == BRA) | (found == BRA_UNIFORM) | (found == CALL_REL))
    indirect = (found == BRX) | (found == BRX_UNIFORM)
    return AddressFields(
        jumps=((far, jumps),),
        joins=(
            (HALF, np.flatnonzero(found == BSSY)),
            (far, collective),
            (AFTER_REGISTER, np.flatnonzero(found == LEPC)),
        ),
        bases=((far, np.flatnonzero(indirect | relative)),),
        calls=calls,
        indirect=np.flatnonzero(indirect),
        collectives=collective,
    )


def names_place(opcode: int) -> bool:
    """Whether an opcode may encode a code address: it is not in the tables of those that don't."""
    return opcode & 0x1FF not in _NEVER and opcode not in _CONTROL_WITHOUT_PLACES


def _refuse_unknown(found: Numbers, sm: int, kernel: str) -> None:
    for opcode in np.unique(found).tolist():
        if names_place(opcode) and opcode not in _KNOWN_PLACES:
            why = _REFUSED.get(opcode, "is not known here: it may name a place in the code")
            raise PatchError(
                f"{kernel} has an instruction with the opcode {opcode:#x} (sm_{sm}), which {why}. "
                "Leave this kernel out."
            )
