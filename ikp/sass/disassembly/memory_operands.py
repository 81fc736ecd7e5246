"""Memory accesses of an instruction: space, width, and the operands that make its address."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from ikp.sass.disassembly.listing import Instruction

GLOBAL, SHARED, LOCAL, GENERIC = "global", "shared", "local", "generic"
LOAD, STORE, ATOMIC, COPY = "load", "store", "atomic", "copy"
ROW_BYTES: Final = 16
"""The bytes of a matrix row that a lane of LDSM or STSM names."""
_PLACE: Final = re.compile(
    r"(?:desc\[UR\d+\])?\[(?:(?P<own>R\d+|RZ)(?:\.(?P<how>64|U32))?)?"
    r"(?:\+?(?P<uniform>UR\d+|URZ))?(?:\+?(?P<beyond>-?0x[0-9a-f]+))?\]"
)
_OPS: Final = {
    **dict.fromkeys(("LDG", "LDGMC"), (GLOBAL, LOAD)),
    "STG": (GLOBAL, STORE),
    **dict.fromkeys(("ATOMG", "RED", "REDG"), (GLOBAL, ATOMIC)),
    **dict.fromkeys(("LDS", "LDSM"), (SHARED, LOAD)),
    **dict.fromkeys(("STS", "STSM"), (SHARED, STORE)),
    "ATOMS": (SHARED, ATOMIC),
    "LDL": (LOCAL, LOAD),
    "STL": (LOCAL, STORE),
    "LD": (GENERIC, LOAD),
    "ST": (GENERIC, STORE),
    "ATOM": (GENERIC, ATOMIC),
}
_EXTENDED: Final = ("LD", "LDG", "LDGMC", "ST", "STG", "ATOM", "ATOMG", "RED", "REDG", "LDGSTS")
_BITS: Final = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_CONDITION: Final = re.compile(r"(!?)P(\d)")


@dataclass(frozen=True, slots=True)
class Access:
    """One access of an instruction: LDGSTS has two, of global and of shared memory.

    A lane's address is the sum of ``own``, ``uniform`` and ``beyond``. ``conditions`` are the
    predicates that a lane needs to make the access, each with whether it is negated.
    """

    space: str  # "global", "shared", "local", "generic"
    kind: str  # "load", "store", "atomic", "copy"
    width: int  # bytes of a lane
    lanes: int  # the first so many lanes have an address that counts
    own: int | None  # the register of each thread, or the first of two
    wide: bool  # whether ``own`` is the first of two
    uniform: int | None
    beyond: int  # bytes
    conditions: tuple[tuple[int, bool], ...]


def accesses(instruction: Instruction) -> tuple[Access, ...] | str:
    """Return the accesses by lane of an instruction: none where it makes none.

    A string says why the addresses of an instruction that makes some can't be read.
    """
    op = instruction.op
    if instruction.never_runs or (op not in _OPS and op != "LDGSTS"):
        return ()
    guards = _conditions(instruction.guard)
    if guards is None:
        return f"its guard is {instruction.guard}"
    if op == "LDGSTS":
        return _copied(instruction, guards)
    space, kind = _OPS[op]
    places = [found for each in instruction.operands if (found := _PLACE.fullmatch(each))]
    if len(places) != 1:
        return f"its address has a form that is not known: {instruction.text}"
    lanes, width = 32, _width(instruction.opcode)
    if op in ("LDSM", "STSM"):
        lanes, width = 8 * _matrices(instruction.opcode), ROW_BYTES
    return (_access(instruction, places[0], space, kind, width, lanes, guards),)


def _copied(
    instruction: Instruction, guards: tuple[tuple[int, bool], ...]
) -> tuple[Access, ...] | str:
    """Return the accesses of LDGSTS. Where its predicate does not hold, it writes zeros only."""
    shared, source, *rest = instruction.operands
    into, found = _PLACE.fullmatch(shared), _PLACE.fullmatch(source)
    where = _conditions(rest[0]) if rest else ()
    if into is None or found is None or where is None:
        return f"its addresses have a form that is not known: {instruction.text}"
    width = _width(instruction.opcode)
    return (
        _access(instruction, found, GLOBAL, COPY, width, 32, (*guards, *where)),
        _access(instruction, into, SHARED, COPY, width, 32, guards),
    )


def _access(
    instruction: Instruction,
    place: re.Match[str],
    space: str,
    kind: str,
    width: int,
    lanes: int,
    conditions: tuple[tuple[int, bool], ...],
) -> Access:
    own, uniform = place["own"], place["uniform"]
    extended = instruction.op in _EXTENDED and ".E" in instruction.opcode and space != SHARED
    return Access(
        *(space, kind, width, lanes),
        int(own[1:]) if own and own != "RZ" else None,
        place["how"] == "64" or (extended and place["how"] is None),
        int(uniform[2:]) if uniform and uniform != "URZ" else None,
        int(place["beyond"] or "0", 16),
        conditions,
    )


def _conditions(text: str) -> tuple[tuple[int, bool], ...] | None:
    """Return the predicate of a guard: nothing for one that always holds; None: not known."""
    if text in ("", "PT"):
        return ()
    found = _CONDITION.fullmatch(text)
    return found and ((int(found[2]), bool(found[1])),)


@cache
def _width(opcode: str) -> int:
    """Return the bytes that a lane accesses."""
    parts = opcode.split(".")[1:]
    return next((_BITS[each] for each in parts if each in _BITS), 4)


@cache
def _matrices(opcode: str) -> int:
    parts = opcode.split(".")[1:]
    return 4 if "4" in parts else 2 if "2" in parts else 1
