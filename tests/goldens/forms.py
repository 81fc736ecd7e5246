"""What is said of each form of instruction that compilers write for sm_90."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cache

from ikp.sass.disassembly.effects import effects
from ikp.sass.disassembly.form_texts import FormTexts
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.memory_operands import accesses
from ikp.sass.disassembly.opcodes import landmark, lane_bytes, unit_of, work_of
from ikp.sass.disassembly.values import definitions
from ikp.sass.disassembly.word_forms import CONTROL, forms_of
from tests.goldens.corpus import printed
from tests.goldens.views import registers, shown

_CHIP = 90


@cache
def texts() -> FormTexts:
    """Return the texts of the forms, from the examples that are kept."""
    forms = forms_of(_CHIP)
    assert forms is not None
    return FormTexts(forms, printed())


def of_forms() -> dict[str, list[str]]:
    """Return what is said of each form, by its operation."""
    forms, found = forms_of(_CHIP), dict[str, list[str]]()
    assert forms is not None
    draw = random.Random(_CHIP)
    for number, form in enumerate(forms.known):
        text = printed()[2 * number]
        one, other = forms.examples(form)
        mixed = sum(
            (draw.choice((one, other)) & field.mask) for field in forms.fields[form & 0xFFF]
        )
        keys = [forms.form(each) == form for each in (one, other)]
        word = one & ~sum(field.mask for field in forms.fields[form & 0xFFF]) | mixed
        filled = [texts().text(each) for each in (one, other, word & (1 << CONTROL) - 1)]
        lines = found.setdefault(_operation(text), [])
        lines.append(f"{form:x} {keys} {text} | {shown(filled)}")
        if text:
            lines.extend(_said(instruction(text)))
    return found


def instruction(text: str) -> Instruction:
    """Return an instruction by its text."""
    guard, _, rest = text[1:].partition(" ") if text[0] == "@" else ("", "", text)
    opcode, _, operands = rest.strip().partition(" ")
    return Instruction(0, guard, opcode, operands.strip())


def _operation(text: str) -> str:
    found = re.match(r"(?:@\S+ +)?(\w+)", text)
    return found[1] if found else "(none)"


def _said(each: Instruction) -> Iterator[str]:
    effect = effects(each)
    yield (
        f"reads {registers(effect.reads)} writes {registers(effect.writes)} kills "
        f"{registers(effect.kills)} {work_of(each).value} {shown(landmark(each.opcode))} "
        f"{unit_of(each)} {lane_bytes(each.opcode)} {shown(accesses(each))} "
        f"{shown(definitions(each))} {shown(each.conditions)} {each.never_runs}"
    )
