"""``definitions``: the value that an instruction gives a register: clock, constant, copy, or other.

This suffices to follow the words of records, which come straight from clock reads and constants.
ptxas may copy them between registers, through uniform registers or the stack, and select between
two, but it computes nothing with them. So a few opcodes are all that must be understood. Any other
instruction makes its target unknown. Words that ikp itself selects by masks are followed in
``inspection``.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache

from ikp.sass.disassembly.listing import Instruction, once
from ikp.sass.disassembly.widths import shape


class ValueOrigin(Enum):
    """How an instruction makes a value."""

    CLOCK = auto()  # the low word of a clock
    CONSTANT = auto()
    COPY = auto()  # one of the sources, as it is
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class Definition:
    """The value that an instruction gives one register, or one word of the stack."""

    origin: ValueOrigin
    sources: tuple[str, ...] = ()  # of a copy: registers, words of the stack, or constants as text
    value: int = 0  # of a constant


OTHER = Definition(ValueOrigin.OTHER)
CLOCK = Definition(ValueOrigin.CLOCK)
_CLOCKS = ("SR_CLOCKLO", "SR_GLOBALTIMERLO")

_REGISTER = re.compile(r"^-?(U?R)(\d+)$")
_STACK = re.compile(r"^\[(R1|UR\d+)(?:\+(-?0x[0-9a-f]+))?\]$")
_PREDICATE = re.compile(r"^!?(U?P(?:\d|T)|PR|UPR)$")
_READ = ("S2R", "S2UR", "CS2R", "CS2UR")
_NO_TARGET = ("BAR", "BMOV", "BPT", "BRX", "CALL", "DEPBAR", "JMX", "NANOSLEEP", "R2P", "RED",
              "REDG", "RET", "ST", "STAS", "STG", "STS", "STSM", "STTM", "SYNCS", "USETMAXREG",
              "WARPSYNC")  # fmt: skip
"""Instructions that may name a register first and don't write it."""


@once
def definitions(instruction: Instruction) -> dict[str, Definition]:
    """Return what an instruction defines: location -> value.

    A location is a register ("R7", "UR4") or a word of the stack ("[R1+0x10]"). Callers don't
    change the answer: the next one gets the same.
    """
    operands = [o for o in instruction.operands if not _PREDICATE.match(o)]
    op = instruction.op
    if instruction.never_runs or not operands or op in _NO_TARGET or op.endswith("SETP"):
        return {}
    if op in ("STL", "LDL") and len(operands) > 1:
        return _copies(instruction, operands[0], operands[1])
    if not _REGISTER.match(operands[0]):
        return {}
    return dict(
        zip(
            words(operands[0], _width(instruction.opcode)),
            _made(instruction, operands),
            strict=False,
        )
    )


def words(place: str, count: int) -> list[str]:
    """Return the locations of ``count`` consecutive words: R8 -> R8, R9, ..."""
    if found := _REGISTER.match(place):
        return [f"{found[1]}{int(found[2]) + n}" for n in range(count)]
    if found := _STACK.match(place):
        offset = int(found[2] or "0", 16)
        return [f"[{found[1]}+{offset + 4 * n:#x}]" for n in range(count)]
    return [place] * count


def constant(text: str) -> int | None:
    """Return the 32 bits of an operand that is a number."""
    if text in ("RZ", "URZ", "SRZ"):
        return 0
    try:
        return int(text, 16) & 0xFFFFFFFF if "0x" in text else None
    except ValueError:
        return None


def _made(instruction: Instruction, operands: list[str]) -> list[Definition]:
    """Return the value of each word of an instruction's target."""
    op, width = instruction.op, _width(instruction.opcode)
    if op in _READ:
        return _of_special(operands, width)
    if op in ("MOV", "UMOV", "R2UR") and len(operands) == 2:
        return [_copy((source,)) for source in words(operands[1], width)]
    if op == "IMAD" and operands[1:3] == ["RZ", "RZ"] and len(operands) == 4:
        return _of_product_with_zero(operands[3], width)
    if op in ("SEL", "USEL") and len(operands) == 3:
        return [_copy((operands[1], operands[2]))]
    if op in ("HFMA2", "UHFMA2") and operands[1:3] == ["-RZ", "RZ"] and len(operands) == 5:
        return [_halves(operands[3], operands[4])]
    return [OTHER] * width


def _of_special(operands: list[str], width: int) -> list[Definition]:
    """Return what a read of a special register gives each word: a clock, zero, or another value."""
    rest = Definition(ValueOrigin.CONSTANT) if "SRZ" in operands else OTHER
    low = CLOCK if any(name in operands for name in _CLOCKS) else rest
    return [low] + [rest] * (width - 1)


def _of_product_with_zero(added: str, width: int) -> list[Definition]:
    """Return what ``IMAD`` of zeros gives each word: a copy of what it adds."""
    known = width == 1 or _REGISTER.match(added)
    return [_copy((source,)) if known else OTHER for source in words(added, width)]


def _copy(sources: tuple[str, ...]) -> Definition:
    if len(sources) == 1 and (value := constant(sources[0])) is not None:
        return Definition(ValueOrigin.CONSTANT, value=value)
    known = all(_REGISTER.match(s) or constant(s) is not None for s in sources)
    return Definition(ValueOrigin.COPY, sources) if known else OTHER


def _copies(instruction: Instruction, target: str, source: str) -> dict[str, Definition]:
    width = _width(instruction.opcode)
    pairs = zip(words(target, width), words(source, width), strict=True)
    return {to: Definition(ValueOrigin.COPY, (of,)) for to, of in pairs}


def _halves(high: str, low: str) -> Definition:
    """Return the constant that ptxas makes of two half-precision numbers."""
    try:
        packed = struct.pack("<2e", float(low), float(high))
    except (ValueError, OverflowError):
        return OTHER
    return Definition(ValueOrigin.CONSTANT, value=int.from_bytes(packed, "little"))


@cache
def _width(opcode: str) -> int:
    """Return how many words an instruction writes, at least, by its opcode."""
    op, *parts = opcode.split(".")
    if op in ("CS2R", "CS2UR"):
        least = 1 if "32" in parts else 2
    else:
        least = 4 if "128" in parts else 2 if "64" in parts or "WIDE" in parts else 1
    return max(least, shape(opcode).target)
