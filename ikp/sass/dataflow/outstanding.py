"""Forward dataflow of pending operations: registers in use from one instruction until a wait."""

from __future__ import annotations

import re
from functools import cache
from operator import or_
from typing import NamedTuple

from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.liveness import with_calls
from ikp.sass.disassembly.listing import SCOREBOARDS

PRODUCTS = SCOREBOARDS
"""The place in a ``State`` of warpgroups' products, after those of the scoreboards."""
OPERANDS = SCOREBOARDS + 1
"""The first of six places, one for each scoreboard: operands of instructions that take it for their
results alone. When the results are there, the operands have been read."""
QUEUES = ("STG", "STS", "LDS", "LDGSTS", "SHFL", "MUFU", "STSM", "LDSM")
"""Instructions that read their registers in the order of their issue, each kind apart."""
UNTOLD = OPERANDS + SCOREBOARDS
"""The first of the places of operands that are read late with no scoreboard. There is one for each
queue, which ends when a later instruction of that queue has read its operands. Another one is for
all other instructions: no wait ends it."""

State = tuple[int, ...]
"""For each place: the registers that are pending, as bits."""

_NOTHING: State = (0,) * (UNTOLD + len(QUEUES) + 1)
_COMMITS = ("LDGDEPBAR", "UTMACMDFLUSH")
_BOARD = re.compile(r"SB(\d)")
_ALL = re.compile(r"\{([\d,]+)\}")


class Transfer(NamedTuple):
    """The transfer function of an instruction: how it changes the state."""

    ends: int  # the places that it waits for, a bit each
    takes: list[tuple[int, int]]  # (place, bits) that are pending from then on
    joins: tuple[int, int] | None = None  # (from, to): pending bits that go to another place

    def __call__(self, state: State) -> State:
        """Return the state after the instruction."""
        now = list(state)
        for place in _ended(self.ends):
            now[place] = 0
        for place, bits in self.takes:
            now[place] |= bits
        if self.joins:
            place, to = self.joins
            now[to] |= now[place]
            now[place] = 0
        return tuple(now)


@cache
def _ended(places: int) -> tuple[int, ...]:
    """Return the places that a mask names."""
    return tuple(place for place in range(len(_NOTHING)) if places >> place & 1)


def under_way(flow: Flow, steps: dict[int, Transfer]) -> list[State]:
    """Return what may be pending before each instruction, its own waits not yet done."""
    states: list[State] = [_NOTHING] * len(flow.code.instructions)
    for block, state in zip(flow.graph.blocks, _entering(flow, steps), strict=True):
        now = state
        for at in range(block.first, block.end):
            states[at] = now
            if step := steps.get(at):
                now = step(now)
    return states


def _entering(flow: Flow, steps: dict[int, Transfer]) -> list[State]:
    """Return what may be pending where each block begins, on any path."""
    after, blocks = with_calls(flow), flow.graph.blocks
    inside = [[steps[at] for at in range(b.first, b.end) if at in steps] for b in blocks]
    entering = [_NOTHING] * len(blocks)
    work = list(range(len(blocks)))[::-1]
    while work:
        block = work.pop()
        now = entering[block]
        for step in inside[block]:
            now = step(now)
        for to in after[block]:
            merged = tuple(map(or_, entering[to], now))
            if merged != entering[to]:
                entering[to] = merged
                work.append(to)
    return entering


def queue(op: str) -> int:
    """Return the place of the operands that an instruction reads with no scoreboard."""
    return UNTOLD + (QUEUES.index(op) if op in QUEUES else len(QUEUES))


def committing(flow: Flow) -> int:
    """Return the scoreboards that count the groups of copies under way, a bit each."""
    controls, found = flow.code.controls, 0
    for at in flow.code.of(*_COMMITS):
        found |= 1 << int(controls.writes[at]) | 1 << int(controls.reads[at])
    return found & ((1 << SCOREBOARDS) - 1)


def named(rest: str) -> int:
    """Return the scoreboards that a wait names, a bit each."""
    if listed := _ALL.search(rest):
        return sum({1 << int(board) for board in listed[1].split(",")})
    return counting(rest)


def counting(rest: str) -> int:
    """Return the scoreboard that a wait counts down, as a bit; 0 where it waits for all to end."""
    found = _BOARD.search(rest)
    return 1 << int(found[1]) if found else 0


def awaited(opcode: str, rest: str) -> int:
    """Return the places that a counting wait ends, a bit each: none, if it counts not to zero."""
    if _ALL.search(rest):
        return named(rest)
    _, _, left = rest.partition(",")
    if left.strip() not in ("0x0", ""):
        return 0
    if opcode.startswith("WARPGROUP"):
        return 1 << PRODUCTS
    return named(rest)
