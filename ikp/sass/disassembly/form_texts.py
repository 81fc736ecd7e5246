"""How nvdisasm prints each form of instruction, asked once and kept.

nvdisasm takes longer to start than to print 10,000 instructions. So it prints two examples of all
known forms at once; from these, each form's text with gaps is made. A form whose second example
would come out otherwise is left out, and kernels with it are printed by nvdisasm itself.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final

from ikp import caches
from ikp.paths import triton_cache
from ikp.sass.disassembly import tools, word_forms
from ikp.sass.disassembly.tool_paths import tool
from ikp.sass.disassembly.word_forms import Forms, NumberField, forms_of, signed

PRINTABLE: Final = 0x000FE200 << 96
"""Control bits with which each instruction may be printed: no scoreboard, no reuse."""
_BYTES: Final = 16
_NUMBER: Final = re.compile(
    r"(\bU?[RP]\d+\b|-?0x[0-9a-f]+|(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]\d+)?(?![\w.]))"
)
_FORMATS: Final = {
    "R": ("R%d",),
    "U": ("UR%d",),
    "P": ("P%d", "UP%d"),
    "i": ("%#x",),
    "m": ("%#x",),
    "f": ("%.20g", "%.20e"),
    "h": ("%.20g",),
}


@dataclass(frozen=True, slots=True)
class FormText:
    """The text of a form: a format, and the field of each number in it.

    A gap is a field's first bit, its greatest value, and what makes a number of a value: None where
    it is one.
    """

    format: str
    gaps: tuple[tuple[int, int, Callable[[int], object] | None], ...]
    target: NumberField | None = None  # the field of the distance to it

    def fill(self, word: int) -> tuple[str, int | None]:
        """Return an instruction's text, and the distance to its target, whose gap is left."""
        values = [
            word >> first & most if made is None else made(word >> first & most)
            for first, most, made in self.gaps
        ]
        distance = None if self.target is None else self.target.get(word)
        return self.format % tuple(values), distance


class FormTexts:
    """The texts of a chip's forms.

    Args:
        forms: the forms.
        printed: the texts of two examples of each known form, one form after the other.
    """

    def __init__(self, forms: Forms, printed: Sequence[str]) -> None:
        self._forms, self._printed = forms, printed
        self._place = {form: 2 * number for number, form in enumerate(forms.known)}
        self._texts: dict[int, FormText | None] = {}
        self._known: dict[int, tuple[str, int | None] | None] = {}

    def text(self, word: int) -> tuple[str, int | None] | None:
        """Return an instruction's text without reuse flags, and the distance to its target.

        The text has ``%s`` for the target. None for a form of which no text is known.
        """
        word &= (1 << word_forms.CONTROL) - 1
        if word not in self._known:
            form = self._forms.form(word)
            text = None if form is None else self.of(form)
            self._known[word] = None if text is None else text.fill(word)
        return self._known[word]

    def of(self, form: int) -> FormText | None:
        """Return the text of a form; None where its examples do not say it, or it is not known."""
        if form not in self._texts:
            at, found = self._place.get(form), None
            if at is not None and all(texts := self._printed[at : at + 2]):
                fields = tuple(self._forms.fields[form & 0xFFF])
                found = _made(form, fields, texts, [at * _BYTES, (at + 1) * _BYTES])
            self._texts[form] = found
        return self._texts[form]


@cache
def texts_of(sm: int) -> FormTexts | None:
    """Return the texts of a chip's forms, 90 for sm_90 and sm_90a; None where none is known.

    Raises:
        InspectError: there is no disassembler.
    """
    forms, chip = forms_of(sm), f"{sm}a"
    if forms is None:
        return None
    program = tool("nvdisasm")
    key = "\0".join([tools.version_of(program), chip, *_sources(sm)]).encode()
    path = triton_cache() / f"ikp-forms-{hashlib.sha256(key).hexdigest()[:32]}.json"
    with suppress(ValueError):
        content = caches.kept(path, key)
        if content is not None:
            return FormTexts(forms, json.loads(content))
    printed = printed_examples(program, chip, forms)
    with suppress(OSError):
        caches.keep(path, key, json.dumps(printed).encode())
    return FormTexts(forms, printed)


def _sources(sm: int) -> Iterator[str]:
    """Yield the hashes of the files that the texts of a chip's forms depend on."""
    for name in ("form_texts.py", "word_forms.py", f"sm_{sm}.forms"):
        yield hashlib.sha256(Path(__file__).with_name(name).read_bytes()).hexdigest()


def printed_examples(program: Path, chip: str, forms: Forms) -> list[str]:
    """Return nvdisasm's texts of two examples of each form; "" where it prints none.

    Raises:
        InspectError: nvdisasm does not know the chip, or prints nothing.
    """
    words = [word for form in forms.known for word in forms.examples(form)]
    code = b"".join((word | PRINTABLE).to_bytes(_BYTES, "little") for word in words)
    lines = tools.printed_code(program, chip, code)
    return [lines.get(at * _BYTES, "") for at in range(len(words))]


def _made(
    form: int, fields: tuple[NumberField, ...], texts: Sequence[str], places: Sequence[int]
) -> FormText | None:
    """Return the text that two examples of a form have in common; None where it is not clear."""
    one, other = (_NUMBER.split(text) for text in texts)
    if one[::2] != other[::2]:
        return None
    known = _known(form, fields, places)
    made: list[str] = []
    gaps: list[tuple[int, bool]] = []
    for both in zip(one, other, strict=True):
        if both[0] == both[1]:
            made.append(both[0].replace("%", "%%"))
        elif len(found_gaps := known.get(both, [])) == 1:
            made.append(found_gaps[0][0])
            gaps.append(found_gaps[0][1])
        else:
            return None
    listed = [(fields[at], with_sign) for at, with_sign in gaps]
    target = next((field for field, _ in listed if field.is_distance), None)
    return FormText("".join(made), tuple(_gap(*each) for each in listed), target)


_Gap = tuple[str, tuple[int, bool]]
"""The format of a number, the number of its field, and whether it has a sign."""


def _known(
    form: int, fields: tuple[NumberField, ...], places: Sequence[int]
) -> dict[tuple[str, str], list[_Gap]]:
    """Return what the numbers in two examples of a form can be, by the text of both."""
    known: dict[tuple[str, str], list[_Gap]] = {}
    for at, field in enumerate(fields):
        if found := form >> word_forms.CONTROL + 2 * at & 3:
            for both, gap in _gaps(field, found, at, *places):
                known.setdefault(both, []).append(gap)
    return known


@cache
def _gap(field: NumberField, with_sign: bool) -> tuple[int, int, Callable[[int], object] | None]:
    if field.is_distance:
        return 0, 0, lambda _: "%s"
    plain = field.kind not in "imfh" or (field.kind in "im" and not with_sign)
    made = None if plain else partial(_value, field, with_sign=with_sign)
    return field.shift, (1 << field.width) - 1, made


def _gaps(
    field: NumberField, found: int, at: int, *places: int
) -> Sequence[tuple[tuple[str, str], _Gap]]:
    """Return how a field is printed in two examples at some addresses: both texts, and the gap."""
    if not field.is_distance:
        return _printed(field, found, at)
    values = word_forms.example_values(field, found, at)
    ends = [hex(place + _BYTES + value) for place, value in zip(places, values, strict=True)]
    return [((ends[0], ends[1]), ("%s", (at, True)))]


@cache
def _printed(field: NumberField, found: int, at: int) -> tuple[tuple[tuple[str, str], _Gap], ...]:
    values = word_forms.example_values(field, found, at)
    made: dict[tuple[str, str], _Gap] = {}
    for kind in _FORMATS[field.kind]:
        for sign in (True, False):
            one, other = (kind % _value(field, each, sign) for each in values)
            made.setdefault((one, other), (kind, (at, sign)))
    return tuple(made.items())


def _value(field: NumberField, value: int, with_sign: bool) -> int | float:
    """Return a field's value as a number."""
    if field.kind == "f":
        return float(struct.unpack("<f", value.to_bytes(4, "little"))[0])
    if field.kind == "h":
        return float(struct.unpack("<e", value.to_bytes(2, "little"))[0])
    return signed(value, field.width) if with_sign and field.kind in "im" else value
