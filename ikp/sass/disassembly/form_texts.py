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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from ikp import caches
from ikp.paths import triton_cache
from ikp.sass.disassembly import tools, word_forms
from ikp.sass.disassembly.word_forms import Field, Forms, forms_of, signed

PRINTABLE: Final = 0x000FE200 << 96
"""Control bits with which each instruction may be printed: no scoreboard, no reuse."""
_BYTES: Final = 16
_NUMBER: Final = re.compile(
    r"\bU?[RP]\d+\b|-?0x[0-9a-f]+|(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]\d+)?(?![\w.])"
)
_FORMATS: Final = {
    "R": ("R%d",),
    "U": ("UR%d",),
    "P": ("P%d", "UP%d"),
    "i": ("%#x",),
    "f": ("%.20g", "%.20e"),
    "h": ("%.20g",),
}


@dataclass(frozen=True, slots=True)
class FormText:
    """The text of a form: a format, and the field of each number in it."""

    format: str
    gaps: tuple[tuple[int, bool], ...]  # number of the field; whether its value has a sign
    fields: tuple[Field, ...]

    def fill(self, word: int) -> tuple[str, int | None]:
        """Return an instruction's text, and the distance to its target, whose gap is left."""
        values: list[object] = []
        distance = None
        for at, with_sign in self.gaps:
            field = self.fields[at]
            value = field.get(word)
            if field.is_distance:
                distance = value
                values.append("%s")
            else:
                values.append(_value(field, value, with_sign))
        return self.format % tuple(values), distance


class FormTexts:
    """The texts of a chip's forms."""

    def __init__(self, forms: Forms, texts: Mapping[int, FormText]) -> None:
        self._forms, self._texts = forms, texts
        self._known: dict[int, tuple[str, int | None] | None] = {}

    def text(self, word: int) -> tuple[str, int | None] | None:
        """Return an instruction's text without reuse flags, and the distance to its target.

        The text has ``%s`` for the target. None for a form of which no text is known.
        """
        word &= (1 << word_forms.CONTROL) - 1
        if word not in self._known:
            form = self._forms.form(word)
            text = None if form is None else self._texts.get(form)
            self._known[word] = None if text is None else text.fill(word)
        return self._known[word]


@cache
def texts_of(chip: str) -> FormTexts | None:
    """Return the texts of a chip's forms, "90a"; None where no form is known or printed.

    Raises:
        InspectError: there is no disassembler.
    """
    forms = forms_of(int(chip.rstrip("af")))
    if forms is None:
        return None
    program = tools.tool("nvdisasm")
    key = "\0".join([tools.version_of(program), chip, *_sources(chip)]).encode()
    path = triton_cache() / f"ikp-forms-{hashlib.sha256(key).hexdigest()[:32]}.json"
    with suppress(ValueError, LookupError, TypeError):
        content = caches.kept(path, key)
        if content is not None:
            return FormTexts(forms, _read(forms, json.loads(content)))
    found = dict(learned(program, chip, forms))
    with suppress(OSError):
        caches.keep(path, key, json.dumps(_facts(found), separators=(",", ":")).encode())
    return FormTexts(forms, found)


def _sources(chip: str) -> Iterator[str]:
    """Yield the hashes of the files that the texts of a chip's forms depend on."""
    for name in ("form_texts.py", "word_forms.py", f"sm_{chip.rstrip('af')}.forms"):
        yield hashlib.sha256(Path(__file__).with_name(name).read_bytes()).hexdigest()


def _facts(texts: Mapping[int, FormText]) -> list[list[object]]:
    return [[format(form, "x"), text.format, text.gaps] for form, text in texts.items()]


def _read(forms: Forms, facts: Sequence[Sequence[object]]) -> dict[int, FormText]:
    """Return the texts that ``_facts`` wrote."""
    found = {}
    for form, text, gaps in facts:
        number = int(str(form), 16)
        numbered = tuple((int(at), bool(sign)) for at, sign in gaps)  # type: ignore[attr-defined]
        found[number] = FormText(str(text), numbered, tuple(forms.fields[number & 0xFFF]))
    return found


def learned(program: Path, chip: str, forms: Forms) -> Iterator[tuple[int, FormText]]:
    """Ask nvdisasm for two examples of each form; yield the forms whose texts agree.

    Raises:
        InspectError: nvdisasm does not know the chip, or prints nothing.
    """
    pairs = [forms.examples(form) for form in forms.known]
    code = b"".join(
        (word | PRINTABLE).to_bytes(_BYTES, "little") for pair in pairs for word in pair
    )
    lines = tools.printed_code(program, chip, code)
    for at, (form, pair) in enumerate(zip(forms.known, pairs, strict=True)):
        places = [2 * at * _BYTES, (2 * at + 1) * _BYTES]
        fields = tuple(forms.fields[form & 0xFFF])
        texts = [lines.get(place, "") for place in places]
        if not all(texts):
            continue
        found = _made(form, fields, pair, texts, places)
        if found is not None:
            yield form, found


def _made(
    form: int,
    fields: tuple[Field, ...],
    words: tuple[int, int],
    texts: Sequence[str],
    places: Sequence[int],
) -> FormText | None:
    """Return the text that two examples of a form have in common; None where it is not clear."""
    pieces = _NUMBER.split(texts[0])
    numbers = list(zip(*(_NUMBER.findall(each) for each in texts), strict=False))
    if pieces != _NUMBER.split(texts[1]) or len(numbers) != len(pieces) - 1:
        return None
    made, gaps = [pieces[0].replace("%", "%%")], []
    free = [at for at in range(len(fields)) if form >> word_forms.CONTROL + 2 * at & 3]
    for both, piece in zip(numbers, pieces[1:], strict=True):
        if both[0] == both[1]:
            made.append(both[0])
        else:
            gap = _gap([(at, fields[at]) for at in free], words, both, places)
            if gap is None:
                return None
            made.append(gap[0])
            gaps.append(gap[1:])
        made.append(piece.replace("%", "%%"))
    return FormText("".join(made), tuple(gaps), fields)


def _gap(
    fields: Sequence[tuple[int, Field]],
    words: tuple[int, int],
    printed: tuple[str, str],
    places: Sequence[int],
) -> tuple[str, int, bool] | None:
    """Return the format of a number, its field and whether it has a sign; None where not clear."""
    found = set()
    for at, field in fields:
        values = [field.get(word) for word in words]
        if field.is_distance:
            ends = [place + _BYTES + value for place, value in zip(places, values, strict=True)]
            if printed == tuple(map(hex, ends)):
                found.add(("%s", at, True))
            continue
        for kind in _FORMATS[field.kind]:
            for sign in (True, False):
                if printed == tuple(kind % _value(field, each, sign) for each in values):
                    found.add((kind, at, sign))
                    break
    return found.pop() if len(found) == 1 else None


def _value(field: Field, value: int, with_sign: bool) -> int | float:
    """Return a field's value as a number."""
    if field.kind == "f":
        return float(struct.unpack("<f", value.to_bytes(4, "little"))[0])
    if field.kind == "h":
        return float(struct.unpack("<e", value.to_bytes(2, "little"))[0])
    return signed(value, field.width) if with_sign and field.kind == "i" else value
