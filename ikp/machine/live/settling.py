"""What the last instructions have yet to write or to read, though no scoreboard tells when.

Most take a few cycles, less than any jump. A warp's product on the tensor cores takes two dozen:
what it has yet to write goes along with control. A register of it that nobody reads is dead, and
not free. It reads for some cycles, too: compilers overwrite its operands after seven or more.
"""

from __future__ import annotations

import re
from typing import Final

from ikp.machine.live.liveness import Liveness

_PIPELINE: Final = 16
"""Cycles after which an instruction has written, with a margin."""
_SLOW: Final = 64
"""The same of a product, or of a sum in 64 bits: compilers let 24 to 33 pass until they read it."""
_SLOWEST: Final = 256
"""The same of a product of 64-bit numbers: one begins 64 cycles after the other, and they let 128
pass until the next takes its sum. Most have scoreboards, which tell.
"""
_TAKES_LONG: Final = re.compile(r"[A-Z]?MMA|D(ADD|MUL|FMA|SETP|MNMX)")

_READS: Final = 16
"""Cycles after which a product has read its operands, with a margin."""

_MANY: Final = 12
"""Where more is noted, what is over is forgotten: most instructions of a kernel pass here."""

_Pending = dict[int, int]
"""Registers that are still to be written or read, and in how many cycles they are."""


def settling(liveness: Liveness) -> list[int]:
    """Return which registers are still to be written or read before each instruction, as bits."""
    graph, effects = liveness.flow.graph, liveness.effects
    stalls = liveness.flow.code.controls.stalls.tolist()
    code = liveness.flow.code.instructions
    slow = [bool(_TAKES_LONG.match(each.op)) for each in code]
    made = [0] * len(code)

    def through(number: int, entering: _Pending) -> _Pending:
        pending, now = dict(entering), 0
        for at in range(graph.blocks[number].first, graph.blocks[number].end):
            if len(pending) > _MANY:
                pending = {mask: until for mask, until in pending.items() if until > now}
            made[at] |= _under_way(pending, now)
            if written := effects[at].writes:
                pending[written] = max(pending.get(written, 0), now + _time(code[at].op))
            if slow[at] and (read := effects[at].reads):
                pending[read] = max(pending.get(read, 0), now + _READS)
            now += max(stalls[at], 1)
        return {mask: until - now for mask, until in pending.items() if until > now}

    entering: list[_Pending] = [{} for _ in graph.blocks]
    work = list(range(len(graph.blocks)))
    while work:
        number = work.pop()
        leaving = through(number, entering[number])
        for to in graph.after[number]:
            longer = {m: t for m, t in leaving.items() if t > entering[to].get(m, 0)}
            if longer:
                entering[to] |= longer
                work.append(to)
    return made


def _time(op: str) -> int:
    """Return after how many cycles an instruction has written, with a margin."""
    if op == "DMMA":
        return _SLOWEST
    return _SLOW if _TAKES_LONG.match(op) else _PIPELINE


def _under_way(pending: _Pending, now: int) -> int:
    found = 0
    for mask, until in pending.items():
        if until > now:
            found |= mask
    return found
