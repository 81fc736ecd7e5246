"""Values of registers in all threads of some warps, and what each value depends on."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from ikp.sass.dataflow import lane_arithmetic as arithmetic
from ikp.sass.dataflow.lane_arithmetic import MASK, Numbers
from ikp.sass.disassembly.listing import Instruction

LANES = 32
LANE, WARP, BLOCK, DATA, ASSUMED, GUESSED = 1, 2, 4, 8, 16, 32
"""What a value depends on, as bits: the lane, the warp, the block, loaded data, and a parameter
whose value was assumed. ``DATA`` without ``LANE`` is the same in all lanes of a warp. A value is
guessed where lanes may have one of two numbers, and only one of these, or none, is known."""
FIRST_LOOP = 6
"""The bit of the first loop, in the order of their headers; further loops follow."""

REGISTER = re.compile(r"([-~!|]*)(U?[RP])(\d+|Z|T)(?:\.\w+)*\|?$")
CONSTANT = re.compile(r"-?c\[(0x[0-9a-f]+)\]\[(0x[0-9a-f]+|U?RZ)\]$")
_NUMBER = re.compile(r"-?0x[0-9a-f]+$|-?\d+$")
_ADDRESS = re.compile(r"\[([^\[\]]+)\]$")
_SUMMANDS = re.compile(r"([+-]?)([^+-]+)")
_NARROW = frozenset(("LDS", "STS", "LDSM", "STSM", "ATOMS", "LDL", "STL", "SYNCS", "LDC"))
"""Instructions with an address of 32 bits."""
_NEWER = 0x300
"""Where parameters begin behind this, sizes of the launch begin at ``_SIZES``."""
_SIZES = 0x360


class Value(NamedTuple):
    """The value of a register: of each thread, or None where it is unknown.

    A row for each block and a column for each thread of one; a single row where all blocks have
    the same, and a single column where all threads of a block have.
    """

    bits: Numbers | None
    depends: int


UNKNOWN = Value(None, DATA | LANE)
"""The value of a register that nothing is known of."""


class Source(NamedTuple):
    """What an operand's text names: a register, a number, or a constant of the launch."""

    sign: str = ""
    file: str = ""  # of a register: "R", "UR", "P", "UP"
    number: str = ""  # of a register; "Z" and "T" are those that hold no value
    value: int | None = None
    offset: int | None = None  # of a constant


@lru_cache(maxsize=1 << 14)
def source_of(text: str) -> Source:
    """Return what an operand names; equal texts are parsed once. Nothing of an address."""
    if found := REGISTER.match(text):
        return Source(found[1], found[2], found[3])
    if _NUMBER.match(text):
        return Source(value=int(text, 0) & MASK)
    if found := CONSTANT.match(text):
        return Source("-" if text.startswith("-") else "", offset=offset_of(found[2]))
    return Source()


@dataclass(frozen=True, slots=True)
class Shape:
    """How a kernel was launched, and which of its threads are walked.

    Those of the first ``warps`` warps, of the first ``blocks`` blocks, of ``spread`` others,
    which lie at equal distances over the grid, and of the first ``rows`` rows of blocks.
    """

    block: tuple[int, int, int] = (128, 1, 1)
    grid: tuple[int, int, int] = (1 << 16, 1, 1)
    warps: int = 4
    blocks: int = 8
    spread: int = 0
    rows: int = 0
    arguments: tuple[tuple[int, bytes], ...] = ()  # values of parameters, by their offset
    far: tuple[tuple[int, int], ...] = ()  # base and bytes of memory that is not the device's

    @property
    def threads(self) -> int:
        """How many threads are walked."""
        return len(self.numbers) * self.warps * LANES

    @property
    def numbers(self) -> Numbers:
        """The linear ids of the blocks that are walked."""
        count = max(math.prod(self.grid), 1)
        first = np.arange(min(self.blocks, count), dtype=np.int64)
        if not self.spread or count <= self.blocks:
            return first
        parts = np.arange(1, self.spread + 1, dtype=np.int64)
        width = self.grid[0]
        rows = np.arange(1, min(self.rows, count // width), dtype=np.int64) * width
        return np.concatenate([first, count * parts // (self.spread + 1), rows])

    def parameters(self, first: int) -> dict[int, int]:
        """Return the 32-bit words of parameters by their place in the constant bank."""
        return {
            first + offset + at: int.from_bytes(value[at : at + 4], "little")
            for offset, value in self.arguments
            for at in range(0, len(value), 4)
        }


@dataclass(frozen=True)
class LaunchValues:
    """A launch, as its threads see it.

    Args:
        shape: its size.
        parameters: offset in the constant bank -> 32 bits; others have assumed values.
        first_parameter: where parameters begin in the constant bank.
    """

    shape: Shape
    parameters: Mapping[int, int] = field(default_factory=dict)
    first_parameter: int = 0x210

    @cached_property
    def places(self) -> dict[str, Numbers]:
        """The special registers: of each thread of a block, or of each block."""
        shape, (x, y, _) = self.shape, self.shape.block
        inside = np.arange(shape.warps * LANES, dtype=np.int64)[np.newaxis]
        block = shape.numbers[:, np.newaxis]
        width, height, _ = (max(each, 1) for each in shape.grid)
        return {
            "SR_TID.X": inside % x,
            "SR_TID.Y": inside // x % max(y, 1),
            "SR_TID.Z": inside // (x * max(y, 1)),
            "SR_LANEID": inside % LANES,
            "SR_CTAID.X": block % width,
            "SR_CTAID.Y": block // width % height,
            "SR_CTAID.Z": block // (width * height),
        }

    def constant(self, offset: int) -> tuple[int, bool]:
        """Return 32 bits of the constant bank, and whether their value is assumed."""
        first = self.first_parameter
        launched = (*self.shape.block, *self.shape.grid)
        place = offset - (_SIZES if first >= _NEWER else 0)
        if 0 <= place < 4 * len(launched) and place % 4 == 0:
            return launched[place // 4], False
        if offset in self.parameters:
            return self.parameters[offset], False
        number = max(offset - first, 0)
        # An even word may be the low half of a pointer: far apart, and aligned. As a number it is
        # a large multiple of 16, as widths of matrices are.
        return (number * 0x110000 + 0x4000) & MASK if number % 8 == 0 else 0x1000, True


def offset_of(text: str) -> int:
    """Return the offset in a constant's text."""
    return 0 if text.endswith("Z") else int(text, 16)


@lru_cache(maxsize=4096)
def uniform(number: int) -> Numbers:
    """Return a number of all threads of all blocks."""
    made = np.full((1, 1), number, np.int64)
    made.setflags(write=False)  # it is shared
    return made


class Threads:
    """The registers of all threads that are walked, at one place in the code."""

    def __init__(self, launch: LaunchValues, state: dict[str, Value]) -> None:
        self.launch, self.state = launch, state

    def write(self, name: str, value: Value, guard: Value, *, guarded: bool) -> None:
        """Write a register where a guard lets threads run; where it is unknown, in all of them."""
        if not guarded:
            self.state[name] = value
            return
        old = self.state.get(name, Value(None, 0))
        depends = value.depends | old.depends | guard.depends
        if value.bits is None or old.bits is None or guard.bits is None:
            bits = old.bits if value.bits is None else value.bits
            depends |= GUESSED if depends & LANE else 0
        else:
            bits = np.where(guard.bits != 0, value.bits, old.bits)
        self.state[name] = Value(bits, depends)

    def guard(self, each: Instruction) -> Value:
        """Return 1 for each thread that an instruction's guard lets run."""
        return self.read(each.guard) if each.guard else self.full(1)

    def condition(self, each: Instruction) -> int:
        """Return what a jump depends on."""
        depends = 0
        for predicate in each.conditions:
            depends |= self.read(predicate).depends
        return depends

    def last(self, each: Instruction) -> Value:
        """Return the last operand."""
        return self.read(each.operands[-1]) if each.operands else Value(None, DATA)

    def address(self, each: Instruction) -> Value:
        """Return the address of an access."""
        found = _ADDRESS.search(_address_text(each))
        if not found:
            return Value(None, DATA | LANE)
        wide = each.op not in _NARROW
        total, depends = self.full(0).bits, 0
        for sign, text in _SUMMANDS.findall(found[1]):
            value = self._summand(text, wide=wide)
            depends |= value.depends
            if value.bits is None or total is None:
                total = None
            else:
                total = total - value.bits if sign == "-" else total + value.bits
        return Value(total, depends)

    def _summand(self, text: str, *, wide: bool) -> Value:
        name, _, modifiers = text.partition(".")
        found = source_of(name)
        pair = wide and found.file and "U32" not in modifiers.split(".")
        low = self._scaled(self.read(name), modifiers)
        if not pair or found.number == "Z":
            return low
        high = self.read(f"{found.file}{int(found.number) + 1}")
        depends = low.depends | high.depends
        if low.bits is None:
            return Value(None, depends)
        return Value(low.bits if high.bits is None else low.bits | high.bits << 32, depends)

    def full(self, number: int) -> Value:
        """Return a number, in all threads."""
        return Value(uniform(number), 0)

    def read(self, text: str) -> Value:
        """Return an operand's value: of a register, a number, or a constant."""
        found = source_of(text)
        if found.file:
            return self._register(found.sign, found.file, found.number)
        if found.value is not None:
            return self.full(found.value)
        if found.offset is not None:
            number, assumed = self.launch.constant(found.offset)
            return Value(uniform((-number if found.sign else number) & MASK), ASSUMED * assumed)
        return UNKNOWN

    def _scaled(self, value: Value, modifiers: str) -> Value:
        """Return an index of an address, which may be scaled: ``[R5.X4+0x10]``."""
        if not modifiers:
            return value
        scale = next((int(m[1:]) for m in modifiers.split(".") if re.fullmatch(r"X\d+", m)), 1)
        return (
            value if scale == 1 or value.bits is None else value._replace(bits=value.bits * scale)
        )

    def _register(self, sign: str, file: str, number: str) -> Value:
        if number in "ZT":
            value = self.full(int(number == "T"))
        else:
            value = self.state.get(file + number, UNKNOWN)
        if value.bits is None or not sign:
            return value
        if file in ("P", "UP"):
            return value._replace(bits=1 - value.bits) if "!" in sign else value
        bits = value.bits
        if "|" in sign:
            bits = np.abs(arithmetic.signed(bits)) & MASK
        if "~" in sign:
            bits = ~bits & MASK
        if "-" in sign:
            bits = -bits & MASK
        return value._replace(bits=bits)

    def next(self, text: str) -> Value:
        """Return the register behind one: the high half of a pair."""
        found = source_of(text)
        if found.file and found.number not in "ZT":
            return self._register(found.sign, found.file, str(int(found.number) + 1))
        if found.offset is not None:
            number, assumed = self.launch.constant(found.offset + 4)
            return Value(uniform(number), ASSUMED * assumed)
        return self.full(0)


def _address_text(each: Instruction) -> str:
    """Return the operand that is an access's address; "" where none is."""
    if each.op == "LDC":
        return each.operands[1] if len(each.operands) > 1 else ""
    texts = [one for one in each.operands if one.endswith("]") and not one.startswith("c[")]
    if each.op == "LDGSTS":  # the first address is that of shared memory
        texts = texts[1:] or texts
    return texts[0] if texts else ""
