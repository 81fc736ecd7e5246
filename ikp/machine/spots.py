"""Where records can stand in a kernel, so that exactly those who should run them do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from ikp.machine.flow import Flow


class Way(Enum):
    """Who runs what stands at a spot."""

    ALL = "whoever comes to the instruction"
    FALLEN = "whoever comes to it from the one before it"
    TAKEN = "whoever takes the branch"


@dataclass(frozen=True, slots=True)
class Spot:
    """A place for records: an instruction, by its index, and who of those that come there."""

    at: int
    way: Way = Way.ALL


@dataclass(frozen=True, slots=True)
class Loop:
    """A natural loop, and where it is entered, where a turn of it ends, and where it is left."""

    header: int
    body: frozenset[int]
    depth: int  # 0 for a loop in no other
    entries: tuple[Spot, ...]
    turns: tuple[Spot, ...]
    leaves: tuple[Spot, ...]  # by the way that ends a turn
    breaks: tuple[Spot, ...]  # in the middle of a turn
    last: int  # the jump back, for its line


def loops(flow: Flow) -> Iterator[Loop | str]:
    """Return the loops of a kernel, outer ones first; in words, those where no record can stand."""
    found = flow.loops
    for loop in found:
        depth = sum(loop.header in other.body and loop != other for other in found)
        made = _loop(flow, loop.header, loop.body, depth)
        yield made if made is not None else f"the loop at instruction {loop.header}"


def _loop(flow: Flow, header: int, body: frozenset[int], depth: int) -> Loop | None:
    edges = [(edge.source, header) for edge in flow.before[header]]
    entries = [edge for edge in edges if edge[0] not in body]
    backs = [edge for edge in edges if edge[0] in body]
    outs = [(at, to) for at in sorted(body) for to in flow.after[at] if to not in body]
    if not entries or any(not _can_hold(flow, *edge) for edge in (*entries, *backs, *outs)):
        return None
    whole = _whole_turn(flow, body, backs)
    turns = (Spot(backs[0][0]),) if whole else tuple(_spots(backs))
    latch = backs[0][0] if whole else -1
    return Loop(
        header,
        body,
        depth,
        tuple(_spots(entries)),
        turns,
        tuple(_spots(out for out in outs if out[0] == latch)),
        tuple(_spots(out for out in outs if out[0] != latch)),
        max(at for at, _ in backs),
    )


def _whole_turn(flow: Flow, body: frozenset[int], backs: list[tuple[int, int]]) -> bool:
    """Whether each turn ends at one jump, which else leaves the loop: one record serves both."""
    latch, header = backs[0]
    return len(backs) == 1 and latch + 1 != header and not set(flow.after[latch]) & body - {header}


def _spots(edges: Iterable[tuple[int, int]]) -> Iterator[Spot]:
    for at, to in edges:
        yield Spot(to, Way.FALLEN) if to == at + 1 else Spot(at, Way.TAKEN)


def _can_hold(flow: Flow, at: int, to: int) -> bool:
    """Whether a record can stand on the way from one instruction to another."""
    if to == at + 1:
        return True
    code = flow.code.instructions
    return code[at].op == "BRA" and code[at].guard != "?" and at in flow.graph.jumps.leaving
