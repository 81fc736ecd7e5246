"""Which instructions name places in the code, and how: known by table, or refused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ikp.errors import PatchError
from ikp.machine.instruction import Field, Numbers, Words, opcodes

NARROW = Field(((0, 34, 30), (1, 0, 18)), 4)
"""Up to sm_89."""

WIDE = Field(((0, 16, 8), (0, 34, 30), (1, 0, 18)), 4)
"""From sm_90 on."""

HALF = Field(((0, 32, 32),), 1)

AFTER_REGISTER = Field(((0, 24, 40), (1, 0, 18)), 1)

CALL_REL, BSSY, BRA, BRA_UNIFORM, LEPC = 0x944, 0x945, 0x947, 0x547, 0x94E
WARPSYNC, RET, BRX, BRX_UNIFORM = 0x348, 0x950, 0x949, 0x958
MOVE = 0x802  # of an immediate

_COLLECTIVE = np.uint64(1 << 22)  # of WARPSYNC's upper half: it has a target
_ABSOLUTE = np.uint64(1 << 21)  # of RET's upper half

_CONTROL = frozenset(range(0x140, 0x160))
"""The opcodes, without the forms of their operands, that steer what is run."""

_CONTROL_WITHOUT_PLACES = {
    0x343: "CALL.ABS of a register",
    0x943: "CALL.ABS: the loader writes the address",
    0x348: "WARPSYNC",
    0x948: "WARPSYNC.ALL",
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

_KNOWN = {CALL_REL, BSSY, BRA, BRA_UNIFORM, LEPC, RET, BRX, BRX_UNIFORM, *_CONTROL_WITHOUT_PLACES}

REFUSED = {
    0x34E: "puts its own address into a register, to which an offset is added somewhere",
    0x344: "calls what a register names, counted from its own place",
    0x94A: "jumps to an address that is written into it",
    0x94C: "jumps to an address in a register",
    0x352: "sets the address to return to from a register",
    0x952: "sets the address to return to",
}


@dataclass(frozen=True)
class Places:
    """The instructions of a kernel that name a place, and where they hold it."""

    jumps: tuple[tuple[Field, Numbers], ...]  # to the place where branches land
    joins: tuple[tuple[Field, Numbers], ...]  # to where threads that fall through come
    bases: tuple[tuple[Field, Numbers], ...]  # to the code's start: a register holds the rest
    calls: Numbers
    returns: Numbers


def branches(sm: int) -> Field:
    """Return where branches of a chip hold their distance."""
    return WIDE if sm >= 90 else NARROW


def places(words: Words, sm: int, kernel: str) -> Places:
    """Find the instructions that name places.

    Raises:
        PatchError: one is not known.
    """
    found, far = opcodes(words), branches(sm)
    _refuse_unknown(found, sm, kernel)
    collective = (found == WARPSYNC) & ((words[:, 1] & _COLLECTIVE) != 0)
    relative = (found == RET) & ((words[:, 1] & _ABSOLUTE) == 0)
    calls = np.flatnonzero(found == CALL_REL)
    jumps = np.flatnonzero((found == BRA) | (found == BRA_UNIFORM) | (found == CALL_REL))
    based = np.flatnonzero((found == BRX) | (found == BRX_UNIFORM) | relative)
    return Places(
        jumps=((far, jumps), (AFTER_REGISTER, np.flatnonzero(found == LEPC))),
        joins=((HALF, np.flatnonzero(found == BSSY)), (far, np.flatnonzero(collective))),
        bases=((far, based),),
        calls=calls,
        returns=np.flatnonzero(relative),
    )


def _refuse_unknown(found: Numbers, sm: int, kernel: str) -> None:
    for opcode in np.unique(found).tolist():
        if opcode & 0x1FF in _CONTROL and opcode not in _KNOWN:
            why = REFUSED.get(opcode, "steers what is run in a way that is not known here")
            raise PatchError(
                f"{kernel} has an instruction with the opcode {opcode:#x}, which {why} (sm_{sm}). "
                "Reach the added code by trampolines, which move nothing, or leave this kernel out."
            )
