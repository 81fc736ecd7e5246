"""Forms of instruction words: a word less the registers, predicates and numbers in its fields.

A few thousand forms cover all code that compilers write for a chip. Two words of one form have the
same text but for those numbers. Some values change an instruction's name or leave out an operand
(RZ, PT, zero, one, powers of two), so they belong to the form.
"""

from __future__ import annotations

import base64
import textwrap
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final, SupportsInt

import numpy as np

CONTROL: Final = 105
"""The first of an instruction's upper bits with its stall, scoreboards and reuse flags."""
_MEANING: Final = (1 << CONTROL) - 1
_OPCODE: Final = 0xFFF
_WIDTHS: Final = {"R": 8, "U": 6, "P": 3, "f": 32, "h": 16}
_SCATTERED: Final = {
    "far": ((16, 8), (34, 30), (64, 18)),
    "half": ((32, 32),),
    "after": ((24, 40), (64, 18)),
}
"""Fields of a distance to a target, as the first bit and the number of bits of each part."""

EXACT, PLAIN, NEGATIVE, POWER = range(4)
"""Classes of values: part of the form; any other; any below zero; any other power of two."""
LARGE: Final = POWER
"""The class of floating-point numbers that are printed with an exponent."""
_LARGE_POWER: Final = 1 << 16
"""From here on, a power of two is printed as any other number; but IMAD has other names then."""
_NARROW: Final = 12
_LARGE: Final = 127 + 31
"""The exponent bits of such numbers, from 2^31 on."""


@dataclass(frozen=True, slots=True)
class NumberField:
    """Bits of an instruction that hold a number that is printed.

    The kind is a letter: R, U and P are registers, uniform registers and predicates; i is an
    integer, m one that is multiplied by; f and h are floating-point numbers of 32 and 16 bits. Or
    it is "far", "half" or "after": the distance to a target, in units of four bytes where it is
    far.
    """

    kind: str
    shift: int
    width: int

    @classmethod
    @cache
    def of(cls, text: str) -> NumberField:
        """Return the field of a text like R16 or i40.24: kind, first bit and width."""
        if text in _SCATTERED:
            return cls(text, 0, sum(bits for _, bits in _SCATTERED[text]))
        start, _, width = text[1:].partition(".")
        return cls(text[0], int(start), int(width or _WIDTHS[text[0]]))

    def __str__(self) -> str:
        usual = self.is_distance or _WIDTHS.get(self.kind) == self.width
        return (
            self.kind
            + ("" if self.is_distance else f"{self.shift}")
            + ("" if usual else f".{self.width}")
        )

    @property
    def is_distance(self) -> bool:
        """Whether it holds the distance to a target."""
        return self.kind in _SCATTERED

    @property
    def mask(self) -> int:
        """Its bits in an instruction."""
        parts = _SCATTERED.get(self.kind, ((self.shift, self.width),))
        return sum(((1 << bits) - 1) << first for first, bits in parts)

    def get(self, word: int) -> int:
        """Return its value in an instruction, without a sign, or a signed distance in bytes."""
        if not self.is_distance:
            return word >> self.shift & (1 << self.width) - 1
        value = at = 0
        for first, bits in _SCATTERED[self.kind]:
            value |= (word >> first & (1 << bits) - 1) << at
            at += bits
        return signed(value, at) * (4 if self.kind == "far" else 1)

    def put(self, word: int, value: int) -> int:
        """Return an instruction with another value in it."""
        word &= ~self.mask
        if not self.is_distance:
            return word | value << self.shift
        value //= 4 if self.kind == "far" else 1
        for first, bits in _SCATTERED[self.kind]:
            word |= (value & (1 << bits) - 1) << first
            value >>= bits
        return word


def _class_of_factor(value: int, width: int) -> int:
    large = value >= _LARGE_POWER and not value & (value - 1)
    return EXACT if large else _class_of_integer(value, width)


def _class_of_integer(value: int, width: int) -> int:
    top = 1 << width - 1
    if width == 32:
        if value in (0, 1, 0xFFFFFFFF, top):
            return EXACT
        if not value & (value - 1):
            return POWER if value < _LARGE_POWER else PLAIN
    return EXACT if not value else NEGATIVE if value & top else PLAIN


def _class_of_float(value: int, width: int) -> int:
    exponent = value >> 23 & 0xFF
    if exponent == 0xFF or not value & (1 << width - 1) - 1:
        return EXACT
    return LARGE if exponent >= _LARGE else PLAIN


def _class_of_half(value: int, width: int) -> int:
    special = value & 0x7C00 == 0x7C00 or not value & (1 << width - 1) - 1
    return EXACT if special or value in (0x3C00, 0x3F80) else PLAIN


_ClassOf = Callable[[int, int], int]
_CLASSES: Final = {
    "i": _class_of_integer,
    "m": _class_of_factor,
    "f": _class_of_float,
    "h": _class_of_half,
}


def signed(value: int, width: int) -> int:
    """Return a number of so many bits with its sign."""
    return value - (1 << width) if value >> width - 1 else value


@dataclass(frozen=True)
class Forms:
    """The forms of a chip: for each opcode its fields; and words of which nothing else is known."""

    fields: Mapping[int, Sequence[NumberField]]  # opcode -> its fields
    known: tuple[int, ...]  # forms that compilers write

    def form(self, word: int) -> int | None:
        """Return the form of an instruction; None for an opcode of which no field is known.

        Fields of other classes than EXACT are zero in it. Their classes lie above its 105 bits.
        """
        fields = self._read.get(word & _OPCODE)
        if fields is None:
            return None
        form, place = word & _MEANING, CONTROL
        for shift, values, width, others, class_of in fields:
            value = word >> shift & values
            if found := class_of(value, width) if class_of else value != values:
                form = form & others | found << place
            place += 2
        return form

    @cached_property
    def _read(self) -> dict[int, list[tuple[int, int, int, int, _ClassOf | None]]]:
        """Opcode -> how to read its fields: first bit, greatest value, bits, other bits, classes.

        No classes: all values but the greatest one are PLAIN. So are all distances.
        """
        return {
            opcode: [
                (0, -1, 0, ~field.mask, None)
                if field.is_distance
                else (
                    *(field.shift, (1 << field.width) - 1, field.width, ~field.mask),
                    _CLASSES.get(field.kind),
                )
                for field in fields
            ]
            for opcode, fields in self.fields.items()
        }

    def examples(self, form: int) -> tuple[int, int]:
        """Return two words of a form, with other values in each field, all of them distinct."""
        one = other = form & _MEANING
        for at, field in enumerate(self.fields[form & _OPCODE]):
            if found := form >> CONTROL + 2 * at & 3:
                bits = _example_bits(field, found, at)
                one, other = one | bits[0], other | bits[1]
        return one, other


def example_values(field: NumberField, found: int, at: int) -> tuple[int, int]:
    """Return the values that both examples have in an opcode's field, by its class and number."""
    return _example(field, found, 2 * at), _example(field, found, 2 * at + 1)


@cache
def _example_bits(field: NumberField, found: int, at: int) -> tuple[int, int]:
    one, other = example_values(field, found, at)
    return field.put(0, one), field.put(0, other)


def _example(field: NumberField, found: int, number: int) -> int:
    """Return a value of a class: another for each number, and of those that operands must have."""
    if field.is_distance:
        return 0x1000 + 0x110 * number
    scale = 2.0**40 if found == LARGE else 1.0
    made: dict[str, Callable[[], SupportsInt]] = {
        "R": lambda: 16 + 8 * number,
        "U": lambda: 4 + 4 * (number % 14),
        "P": lambda: (number // 2 + 3 * (number & 1)) % 7,
        "i": lambda: _example_integer(field.width, found, number),
        "m": lambda: _example_integer(field.width, found, number),
        "f": lambda: np.float32((1.5 + number * 1.37) * scale).view(np.uint32),
        "h": lambda: np.float16(1.5 + number * 1.37).view(np.uint16),
    }
    return int(made[field.kind]())


def _example_integer(width: int, found: int, number: int) -> int:
    if found == POWER:
        return 2 << number
    top = 1 << width - 1
    plain = (3 + 5 * number) % (top - 1) + 1 if width < _NARROW else 0x123 + 0x35 * number
    return top | plain if found == NEGATIVE else plain


@cache
def forms_of(chip: int) -> Forms | None:
    """Return the forms that are known of a chip, 90 for sm_90; None where none are."""
    path = Path(__file__).with_name(f"sm_{chip}.forms")
    if not path.is_file():
        return None
    return unpacked(path.read_text("utf-8"))


def packed(fields: Mapping[int, Sequence[str]], known: Sequence[int]) -> str:
    """Return the content of the file of a chip's forms: fields to read, then forms, compressed."""
    listed = [f"{opcode:03x} {' '.join(fields[opcode])}" for opcode in sorted(fields)]
    ordered = sorted(known, key=lambda each: (each & _OPCODE, each))
    content = zlib.compress(" ".join(format(each, "x") for each in ordered).encode(), 9)
    return "\n".join([*listed, "", *textwrap.wrap(base64.b64encode(content).decode(), 100), ""])


def unpacked(content: str) -> Forms:
    """Return the forms in the content of such a file."""
    listed, _, forms = content.partition("\n\n")
    fields = {}
    for line in listed.splitlines():
        opcode, *texts = line.split()
        fields[int(opcode, 16)] = tuple(map(NumberField.of, texts))
    known = zlib.decompress(base64.b64decode(forms)).split()
    return Forms(fields, tuple(int(each, 16) for each in known))
