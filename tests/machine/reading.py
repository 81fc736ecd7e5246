"""Machine code before and after it was changed, as NVIDIA's disassembler reads both."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from ikp.inspection import _sass as sass
from ikp.inspection._tools import disassemble
from ikp.machine.shift import Shift

LABEL = re.compile(r"`\(([^)]+)\)")
MOVED = re.compile(r"-?0x[0-9a-f]+$")
JOINS = ("BSSY", "WARPSYNC")
"""What leads to a place that threads fall through to."""

Line = tuple[str, tuple[int, ...]]
"""An instruction's text without the names of its targets, and their numbers."""


@cache
def codes(cubin: bytes) -> dict[str, sass.Code]:
    """Disassemble a cubin."""
    return {each.name: each for each in sass.parse(disassemble(cubin))}


def lines(code: sass.Code) -> list[Line]:
    """Return each instruction, its targets resolved to numbers of instructions."""
    return [
        (
            plain(each, "-base" if each.op in ("BRX", "BRXU") else None),
            tuple(code.labels[name] for name in LABEL.findall(", ".join(each.operands))),
        )
        for each in code.instructions
    ]


def plain(instruction: sass.Instruction, distance: str | None) -> str:
    text = LABEL.sub("target", instruction.text)
    return text if distance is None else MOVED.sub(distance, text)


def expected(old: list[Line], to: Shift, after_call: Callable[[int], bool]) -> dict[int, Line]:
    """Return what each old instruction must read as, by its new number."""
    made = {}
    for index, (text, targets) in enumerate(old):
        joins = text.split(" ")[0 if text[0] != "@" else 1].startswith(JOINS)
        new = tuple(
            int((to.start if joins or after_call(target) else to.land)[target]) if target else 0
            for target in targets
        )
        made[int(to.new[index])] = (text, new)
    return made
