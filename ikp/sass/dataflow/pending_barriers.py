"""Pending barriers: instructions that may issue between a barrier's issue and its wait.

A barrier blocks a warp not where it issues, but where the warp next reaches memory: reads of the
clock, arithmetic and branches go on (measured on an H100 with a skew that is known: for 37 cycles
at least). A ``NOP`` is held back, too, once the barrier has issued seven cycles before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ikp.sass.control_flow.graph import Graph

_BARRIERS = ("BAR.SYNC", "BAR.RED", "UCGABAR_WAIT", "ACQBULK")
_REACHES_MEMORY = ("LD", "ST", "ATOM", "RED", "SYNCS", "B2R", "UTMA", "UBLK")
_STAYS = ("LDC", "LDGDEPBAR", "REDUX")


def pending(graph: Graph) -> frozenset[int]:
    """Return the instructions before which a barrier's wait may still be to come."""
    code = graph.code
    barriers = list(code.having(lambda opcode: opcode.startswith(_BARRIERS)))
    if not barriers:
        return frozenset()
    # An instruction that a predicate switches off may not be held back.
    over = [at for at in code.having(_held_back) if not code.instructions[at].conditions]
    events = sorted([*((at, True) for at in barriers), *((at, False) for at in over)])
    indices = [at for at, _ in events]
    into = _into(graph, events, indices)
    found: set[int] = set()
    for number, block in enumerate(graph.blocks):
        state, at = into[number], block.first
        for event, begins in events[_first(indices, at) : _first(indices, block.end)]:
            found.update(range(at, event + 1) if state else ())
            state, at = begins, event + 1
        found.update(range(at, block.end) if state else ())
    return frozenset(found)


def _held_back(opcode: str) -> bool:
    return opcode.startswith(_REACHES_MEMORY) and not opcode.startswith(_STAYS)


def _first(indices: Sequence[int], at: int) -> int:
    """Return how many of some instructions come before one."""
    return bisect_right(indices, at - 1)


def _into(graph: Graph, events: Sequence[tuple[int, bool]], indices: Sequence[int]) -> list[bool]:
    """Return for each block whether a barrier may be pending where it begins."""
    into = [False] * len(graph.blocks)
    work = list(range(len(graph.blocks)))
    while work:
        number = work.pop()
        block = graph.blocks[number]
        inside = events[_first(indices, block.first) : _first(indices, block.end)]
        if not (inside[-1][1] if inside else into[number]):
            continue
        for to in graph.after[number]:
            if not into[to]:
                into[to] = True
                work.append(to)
    return into
