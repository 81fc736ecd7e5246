"""The registers that an instruction reads, may write, and always defines; sets of registers as
bits.

Each operand is parsed: its kind (register, predicate, address, constant) and registers. A set of
registers and predicates is the bits of one integer, or a row of a boolean table. R0 is bit 0. RZ,
PT, URZ and UPT hold no value, so they have no bit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ikp.sass.disassembly.listing import Code, Instruction, once
from ikp.sass.disassembly.widths import OperandWidths, known, shape


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


def bits_of(numbers: Iterable[int]) -> int:
    """Return a set of numbers as bits."""
    found = bytearray(1)
    for at in numbers:
        if at >> 3 >= len(found):
            found.extend(bytes((at >> 3) - len(found) + 1))
        found[at >> 3] |= 1 << (at & 7)
    return int.from_bytes(found, "little")


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


class OperandKind(Enum):
    """What an operand is."""

    REGISTER = auto()
    PREDICATE = auto()
    PREDICATES = auto()  # all of them at once
    ADDRESS = auto()  # any other operand that is no number: it may have registers in it
    CONSTANT = auto()


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """The form of an operand, without its register's number. There is one object of each form."""

    kind: OperandKind
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
        width = 2 if _WIDE.search(found[4]) else 1
        form = _form(OperandKind.REGISTER, width, bool(found[1]), bool(found[2]))
        return Operand(form, _bit(f"{found[2]}R", found[3]))
    if found := _PREDICATE.fullmatch(text):
        form = _form(OperandKind.PREDICATE, 1, bool(found[1]), bool(found[2]))
        return Operand(form, _bit(f"{found[2]}P", found[3]))
    if text in ("PR", "UPR"):
        file = UP if text == "UPR" else P
        return Operand(_form(OperandKind.PREDICATES, file.count), file.first)
    reads, bare = _inside(text)
    number = not reads and not _BARRIER.fullmatch(text)
    return Operand(
        _form(OperandKind.CONSTANT if number else OperandKind.ADDRESS), reads=reads, bare=bare
    )


def _bit(file: str, number: str) -> int:
    """Return the bit of a register; -1 of ``Z`` and ``T``, which none writes."""
    return FILES[file].first + int(number) if number.isdigit() else -1


@cache
def _form(kind: OperandKind, width: int = 1, negated: bool = False, uniform: bool = False) -> Form:
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


_INDIRECT = ("RET", "BRX", "BRXU", "JMX", "JMXU", "CALL")


class Effects(NamedTuple):
    """Sets of registers and predicates; see ``resources``."""

    reads: int  # a superset of the registers that it reads
    writes: int  # a superset of those that it may write
    kills: int  # a subset of those that it always writes


_NOTHING = Effects(0, 0, 0)
UNKNOWN = Effects(EVERYTHING, EVERYTHING, 0)


@once
def effects(instruction: Instruction) -> Effects:
    """Return an instruction's effects; one of an unknown opcode reads and may write everything."""
    opcode, guard = instruction.opcode, instruction.guard
    if guard in ("!PT", "!UPT") or opcode == "NOP":
        return _NOTHING
    parts = [*map(operand, _texts(instruction))]
    plan = _plan(opcode, tuple([part.form for part in parts]))
    if plan is None:
        return UNKNOWN
    reads = writes = kills = 0
    for at, width in plan.sources:
        part = parts[at]
        reads |= part.reads if part.first < 0 else width << part.first
    if plan.pairs:
        reads |= sum({part.bare << 1 for part in parts})
    for _ in range(plan.spread):
        reads |= (reads & UR.all) << 1
    for at, most, least in plan.targets:
        first = parts[at].first
        if first >= 0:
            writes |= most << first
            kills |= least << first
    if guard:
        condition = operand(guard).first
        if condition >= 0:
            return Effects(reads & EVERYTHING | 1 << condition, writes & EVERYTHING, 0)
    return Effects(reads & EVERYTHING, writes & EVERYTHING, kills)


@once
def effects_of(code: Code) -> list[Effects]:
    """Return the effects of each instruction of some code, which keeps them."""
    return [effects(each) for each in code.instructions]


@dataclass(frozen=True, slots=True)
class _Plan:
    """Which operands are read and written, as masks that start at an operand's register."""

    sources: tuple[tuple[int, int], ...]  # (operand, mask)
    targets: tuple[tuple[int, int, int], ...]  # (operand, mask of may-writes, mask of kills)
    pairs: bool  # whether addresses are pairs of registers, with no ``.64`` in the text
    spread: int  # how many registers after a uniform one are read, too


@cache
def _plan(opcode: str, forms: tuple[Form, ...]) -> _Plan | None:
    """Return the plan for all instructions of an opcode with operands of these forms."""
    if not known(opcode):
        return None
    widths, op = shape(opcode), opcode.partition(".")[0]
    count = 0
    while count < len(forms) and _is_target(op, forms, count, widths):
        count += 1
    return _Plan(
        tuple(_sources(forms, count, widths)),
        tuple((at, *_written(forms[at], widths)) for at in range(count)),
        op in _GLOBAL and ".E." in f"{opcode}.",
        _COORDINATES if op.startswith(("UTMA", "UBLK")) else 0,
    )


_GLOBAL = frozenset(["LD", "LDG", "LDGMC", "ST", "STG", "ATOM", "ATOMG", "RED", "REDG", "CCTL"])
"""Instructions with an address of 64 bits, if extended (``.E``): some name it without ``.64``."""
_COORDINATES = 7
"""A bulk copy's one operand names an address, a barrier and up to five coordinates."""


def _written(form: Form, widths: OperandWidths) -> tuple[int, int]:
    if form.kind is OperandKind.REGISTER:
        return _mask(max(widths.most, form.width)), _mask(widths.target)
    # A mask says which of all predicates it writes.
    return _mask(form.width), 0 if form.kind is OperandKind.PREDICATES else 1


def _mask(width: int) -> int:
    return (1 << width) - 1


def _texts(instruction: Instruction) -> Sequence[str]:
    """Return the operands; an indirect jump has no comma between its register and its label."""
    texts = instruction.operands
    if instruction.op in _INDIRECT:
        return [word for text in texts for word in text.split()]
    return texts


def _is_target(op: str, forms: Sequence[Form], at: int, widths: OperandWidths) -> bool:
    form, before = forms[at], forms[:at]
    registers = sum(each.kind is OperandKind.REGISTER for each in before)
    if form.kind is OperandKind.PREDICATES:
        return at == 0
    if form.kind is OperandKind.PREDICATE:
        defines = widths.most or widths.predicates
        return bool(defines) and not form.negated and _is_result(op, forms, at, registers)
    return form.kind is OperandKind.REGISTER and bool(widths.most) and registers < widths.targets


def _is_result(op: str, forms: Sequence[Form], at: int, registers: int) -> bool:
    """Whether a predicate is a result: up to two are, and sources follow them."""
    if op in ("VOTE", "VOTEU"):
        return at < len(forms) - 1
    results = sum(each.kind is OperandKind.PREDICATE for each in forms[:at])
    rest = forms[at + 1 :]
    return results < 2 and (
        any(each.kind is not OperandKind.PREDICATE for each in rest) if registers else bool(rest)
    )


def _sources(forms: Sequence[Form], first: int, widths: OperandWidths) -> list[tuple[int, int]]:
    found, number = [], 0
    count = sum(map(_is_number, forms[first:]))
    for at in range(first, len(forms)):
        form = forms[at]
        width = form.width
        if _is_number(form):
            given = widths.uniform if form.uniform else widths.source(number, count)
            width = max(width, given)
            number += 1
        if form.kind is not OperandKind.CONSTANT:
            found.append((at, _mask(width)))
    return found


def _is_number(form: Form) -> bool:
    """Whether an operand is a number: a register or a constant."""
    return form.kind in (OperandKind.REGISTER, OperandKind.CONSTANT)
