"""Fixed-latency hazards: registers that the last instructions have yet to write or read.

No scoreboard reports the end of these instructions. Most take a few cycles, less than any jump. A
warp's product on the tensor cores takes two dozen: its pending writes are followed across blocks. A
register of a product that no instruction reads is dead, and yet not free. A product reads for some
cycles, too: compilers overwrite its operands after seven or more.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from ikp.sass.control_flow.graph import Graph
from ikp.sass.dataflow.liveness import Liveness

_PIPELINE: Final = 16
"""Cycles after which an instruction has written, with a margin."""
_SLOW: Final = 64
"""The same of a product, or of a sum in 64 bits: compilers let 24 to 33 pass until they read it."""
_SLOWEST: Final = 256
"""The same of a product of 64-bit numbers: one begins 64 cycles after the other, and compilers let
128 pass until the next takes its sum. Most of these products have scoreboards.
"""
_TAKES_LONG: Final = re.compile(r"[A-Z]?MMA|D(ADD|MUL|FMA|SETP|MNMX)")

_READS: Final = 16
"""Cycles after which a product has read its operands, with a margin."""

_Pending = dict[int, int]
"""Sets of registers that are still to be written or read -> in how many cycles they are."""


def settling(liveness: Liveness) -> list[int]:
    """Return which registers are still to be written or read before each instruction, as bits."""
    code, effects, graph = liveness.flow.code.instructions, liveness.effects, liveness.flow.graph
    made, (issued, lengths) = [0] * len(code), _issued(liveness)
    own: list[_Pending] = []
    for block, length in zip(graph.blocks, lengths, strict=True):
        own.append({})
        for at in range(block.first, block.end):
            effect, (written, read) = effects[at], _times(code[at].op)
            for mask, cycles in ((effect.writes, written), (effect.reads, read)):
                if not (mask and cycles):
                    continue
                until = issued[at] + cycles
                _note(made, issued, range(at + 1, block.end), mask, until)
                if until > length:
                    own[-1][mask] = max(own[-1].get(mask, 0), until - length)
    for block, entering in zip(graph.blocks, _entering(graph, own, lengths), strict=True):
        for mask, until in entering.items():
            _note(made, issued, range(block.first, block.end), mask, until)
    return made


def _issued(liveness: Liveness) -> tuple[list[int], list[int]]:
    """Return how many cycles after its block's first each instruction issues at the earliest, and
    how long each block takes.
    """
    stalls, issued, lengths = liveness.flow.code.controls.stalls.tolist(), [], []
    for block in liveness.flow.graph.blocks:
        now = 0
        for at in range(block.first, block.end):
            issued.append(now)
            now += max(stalls[at], 1)
        lengths.append(now)
    return issued, lengths


def _note(made: list[int], issued: list[int], within: range, mask: int, until: int) -> None:
    """Note registers before those instructions of a block that issue until a cycle of it."""
    for at in within:
        if issued[at] >= until:
            return
        made[at] |= mask


def _entering(graph: Graph, own: list[_Pending], lengths: list[int]) -> list[_Pending]:
    """Return the registers that are pending where each block begins, on any path.

    Args:
        graph: the blocks.
        own: the registers that each block's own instructions leave pending at its end.
        lengths: how many cycles each block takes.
    """
    entering: list[_Pending] = [{} for _ in own]
    work = list(range(len(own)))
    while work:
        block = work.pop()
        leaving, length = dict(own[block]), lengths[block]
        for mask, until in entering[block].items():
            if until - length > leaving.get(mask, 0):
                leaving[mask] = until - length
        for to in graph.after[block]:
            longer = {m: t for m, t in leaving.items() if t > entering[to].get(m, 0)}
            if longer:
                entering[to] |= longer
                work.append(to)
    return entering


@cache
def _times(op: str) -> tuple[int, int]:
    """Return the cycles after which an instruction has written its results, and has read its
    operands, with a margin; 0 for one that reads at once.
    """
    if not _TAKES_LONG.match(op):
        return _PIPELINE, 0
    return _SLOWEST if op == "DMMA" else _SLOW, _READS
