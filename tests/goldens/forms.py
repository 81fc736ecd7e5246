"""What is said of each form of instruction that compilers write, and what it does to 64 threads.

Of sm_90, these are all forms that are known, with their bits; of other chips, texts alone.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Iterator
from functools import cache

import numpy as np

from ikp.sass.dataflow.lane_effects import execute
from ikp.sass.dataflow.lane_state import LANE, LaunchValues, Shape, Threads, Value
from ikp.sass.disassembly.effects import effects
from ikp.sass.disassembly.form_texts import FormTexts
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.memory_operands import accesses
from ikp.sass.disassembly.opcodes import landmark, lane_bytes, unit_of, work_of
from ikp.sass.disassembly.values import definitions
from ikp.sass.disassembly.word_forms import CONTROL, forms_of
from tests.goldens.corpus import others, printed
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
    for text in others():
        found.setdefault(_operation(text), []).extend([text, *_said(instruction(text))])
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
    threads = Threads(_launch(), _state())
    before = dict(threads.state)
    execute(threads, each, effect)
    changed = [name for name, value in threads.state.items() if value is not before.get(name)]
    yield " ".join(f"{name} {_value(threads.state[name])}" for name in sorted(changed))
    if each.operands:
        yield f"{_value(threads.address(each))} {_value(threads.last(each))}"


@cache
def _launch() -> LaunchValues:
    shape = Shape((4, 4, 2), (3, 2, 1), warps=1, blocks=2)
    return LaunchValues(shape, {at: 0x01010101 * at for at in range(0x200, 0x300, 4)}, 0x210)


@cache
def _registers() -> dict[str, Value]:
    """Return a value for each register: its own for each thread, with the numbers at the edges."""
    draw = random.Random(_CHIP)
    found = {}
    for name in (*(f"R{at}" for at in range(4, 200)), *(f"UR{at}" for at in range(63))):
        numbers = [draw.choice((*_EDGES, draw.randrange(1 << 32))) for _ in range(64)]
        wide = np.array(numbers, np.int64).reshape(2, 32)
        found[name] = Value(wide if name[0] == "R" else wide[:, :1], LANE if name[0] == "R" else 0)
    for name in (*(f"P{at}" for at in range(7)), *(f"UP{at}" for at in range(7))):
        bits = np.array([draw.randrange(2) for _ in range(64)], np.int64).reshape(2, 32)
        found[name] = Value(bits if name[0] == "P" else bits[:, :1], LANE if name[0] == "P" else 0)
    return found


_EDGES = (0, 1, 2, 31, 32, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFE, 5, 0x5410, 0x10001)


def _state() -> dict[str, Value]:
    return dict(_registers())


def _value(value: Value) -> str:
    if value.bits is None:
        return f"? {value.depends:#x}"
    digest = zlib.crc32(np.ascontiguousarray(value.bits).astype(np.int64).tobytes())
    return f"{value.bits.shape} {digest:08x} {value.depends:#x}"
