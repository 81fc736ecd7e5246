"""Inserts waits behind PTX barriers, so that a clock read there comes after the wait, not before.

A barrier blocks a warp where the warp next reaches memory: a clock read behind it would show the
time before the wait. The instruction that ``bar.warp.sync`` becomes is held back by it, too, if the
barrier has issued seven cycles before. The assembler lets six pass (see
``ikp.sass.dataflow.free_registers``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ikp.ptx.instructions import Statement, StatementKind, parse, statements

_ALIGNED = re.compile(
    r"bar(?:\.cta)?\.(?:sync|red)\b|barrier(?:\.cta)?\.(?:sync|red)\.aligned"
    r"|barrier\.cluster\.wait(?:\.acquire)?\.aligned"
)
"""Barriers that all threads of a warp reach together: at others, some threads may be elsewhere."""
_REACHES_MEMORY = re.compile(r"(?:ld|st)(?!\.(?:param|const))\.|atom\.|red\.|(?:ld|st)matrix\.")
_CLOCK = re.compile(r"%(?:clock|globaltimer)")
_LEAVES = ("bra", "brx", "call", "ret", "exit")
_HELD = "bar.warp.sync 0xffffffff;"
_TIMES = 3


def held_back(text: str) -> str:
    """Return PTX in which no clock is read between a barrier and its wait.

    Barriers stay as they are where memory is reached before a clock, a label or a branch.
    """
    if _CLOCK.search(text) is None:
        return text
    parts = statements(text)
    made: list[str] = []
    for at, part in enumerate(parts):
        made.append(part.text)
        if _is_barrier(part) and not _reaches_memory(parts, at + 1):
            guard = part.code.split()[0] + " " if part.code.startswith("@") else ""
            joint = "" if part.text.endswith("\n") else "\n"
            made.append(f"{joint}{f'{guard}{_HELD} ' * _TIMES}\n")
    return "".join(made)


def _is_barrier(part: Statement) -> bool:
    made = parse(part.code) if part.kind is StatementKind.INSTRUCTION else None
    return made is not None and _ALIGNED.match(made.op) is not None


def _reaches_memory(parts: Sequence[Statement], first: int) -> bool:
    """Return whether code reaches memory before a label, a branch or a clock read."""
    for at in range(first, len(parts)):
        part = parts[at]
        if part.kind in (StatementKind.LABEL, StatementKind.CLOSE, StatementKind.HEAD):
            return False
        made = parse(part.code) if part.kind is StatementKind.INSTRUCTION else None
        if made is None:
            continue
        if _REACHES_MEMORY.match(made.op) and not made.guard:
            return True
        if made.name in _LEAVES or _CLOCK.search(part.code):
            return False
    return False
