"""``CheckedFlow``: follows all paths; yields inserted instructions that may change the kernel.

A state says of each register what inserted code has put there, and which registers are in flight,
for which scoreboard.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import chain
from operator import or_

import numpy as np

from ikp.sass.disassembly.effects import BITS, UP, UR, R
from ikp.verifier.declared import Declared
from ikp.verifier.in_flight import OURS, PRODUCTS, STARTED, Flight, Waits
from ikp.verifier.matched_code import MatchedCode, names
from ikp.verifier.patched_graph import ENDS, PatchedGraph
from ikp.verifier.register_values import HIGH, LOST, LOW, OTHER, Rules, Values, restores

_STAYS = UR.all | UP.all | ((1 << BITS) - 1) << BITS  # what threads read where others leave
_NOTHING, _ADDRESS = (0, 0), (LOW, HIGH)
State = tuple[Values, Flight]
Does = tuple[int, int, int]  # a node, the registers that it reads, and those that it overwrites


class CheckedFlow:
    """What the patched code does.

    Args:
        code: the patched code, matched with the plain one's.
        tables: of each original indirect branch, the places that it may lead to.
        asserts: original calls that never return.
        declared: the differences that the patch declares.
        base: where parameters begin in the constants.
    """

    def __init__(
        self,
        code: MatchedCode,
        tables: dict[int, list[int]],
        asserts: set[int],
        declared: Declared,
        base: int,
    ) -> None:
        self.graph = graph = PatchedGraph(code, tables, asserts)
        self.code, self.ours, self.count = code, graph.ours, graph.count
        self.rules = Rules(graph, declared, base)
        self.waits = Waits(graph, declared.registers)
        waiting = np.flatnonzero(code.text.controls.waits).tolist()
        writing = (n for n, each in enumerate(graph.effects) if each.writes)
        self.acting = {*waiting, *writing, *self.waits.starting, *self.waits.special}
        self.wrong: dict[int, list[str]] = {}  # of nodes
        self.seen: dict[int, tuple[bool, bool, bool]] = {}  # of inserted ones; see ``_through``

    def check(self) -> Iterator[str]:
        """Yield inserted instructions that may do something to the kernel or to its memory."""
        self._follow()
        yield from chain.from_iterable(self.wrong.values())
        yield from self._needed()

    def _follow(self) -> None:
        """Follow all paths until each block is entered in no further state."""
        entered: dict[int, State] = {0: ({}, self.waits.begin())}
        order, work = self.graph.order(), [0]
        rank = {head: number for number, head in enumerate(order)}
        while work:
            head = order[heappop(work)]
            state = dict(entered[head][0]), list(entered[head][1])
            self._through(self.graph.blocks[head], *state)
            for to in self.graph.to[head]:
                both = _merged(entered[to], state) if to in entered else state
                if to not in entered or both != entered[to]:
                    entered[to] = both
                    if rank[to] not in work:
                        heappush(work, rank[to])

    def _through(self, block: range, values: Values, flight: Flight) -> None:
        """Follow a block; change the state in which it is entered to that in which it is left.

        What its nodes do wrong, and what inserted ones do, is that of the last state: whether one
        is before all original code, sets a predicate again, or makes an address.
        """
        waits, rules, origin, ours = self.waits, self.rules, self.code.origin, self.ours
        for node in block:
            if (own := ours.get(at := node % self.count)) is None:
                if any(flight[OURS:PRODUCTS]):
                    self.wrong[node] = [*waits.disturbed(node, flight)]
                if (number := origin[at]) in self.acting:
                    waits.issue(at, number, flight)
                    rules.overwrite(number, values)
                flight[STARTED] = 1
                continue
            early, wrong = not flight[STARTED], [*rules.unsafe(own, at, values)]
            wrong += waits.insert(own, at, flight)
            self.wrong[node] = [f"{self.graph.said(at)} {each}" for each in wrong]
            restored = own.kind == "test" and restores(own, values)
            rules.insert(own, values, restored=restored)
            address = [bit for bit, _ in own.sets if values[bit] in _ADDRESS]
            self.seen[node] = early, restored, bool(address)

    def _needed(self) -> Iterator[str]:
        """Yield inserted instructions that overwrite a live original value, or that nothing reads.

        Of a set of live registers, the lower half is for original code, the upper for inserted.
        """
        used, does = dict.fromkeys((node % self.count for node in self.seen), 0), self._does()
        for head, live in self._live(does).items():
            now = live
            for node, reads, kills in does[head]:
                if (own := self.ours.get(at := node % self.count)) is not None:
                    early, restored, address = self.seen[node]
                    # Where nothing is recorded, no store reads some parts of an address.
                    used[at] |= own.writes if restored or address else now >> BITS
                    # Before all original code, threads' registers have no values.
                    lost = own.writes & now & (~R.all if early else -1)
                    if lost and not restored and at not in self.graph.same:
                        said = f"overwrites {names(lost)}, which original code needs"
                        yield f"{self.graph.said(at)} {said}"
                now = now & ~kills | reads
        for at in sorted(used):
            if (writes := self.ours[at].writes) and not writes & used[at]:
                yield f"{self.graph.said(at)} sets {names(writes)}, which nothing reads"

    def _live(self, does: dict[int, list[Does]]) -> dict[int, int]:
        """Return the live registers behind each block, by backward dataflow."""
        order, stay, changed = self.graph.order()[::-1], self.graph.stay, True
        live, behind = dict.fromkeys(order, 0), dict.fromkeys(order, 0)
        whole = {head: _together(does[head]) for head in order}
        while changed:
            changed = False
            for head in order:
                now = live[stay[head]] & _STAYS if head in stay else 0
                for to in self.graph.to[head]:
                    now |= live[to]
                behind[head], (reads, kills) = now, whole[head]
                now = now & ~kills | reads
                changed |= now != live[head]
                live[head] = now
        return behind

    def _does(self) -> dict[int, list[Does]]:
        """Return the registers that each block's nodes read and overwrite, the last node first."""
        effects = [
            (each.reads, each.kills | each.kills << BITS) if any(each) else _NOTHING
            for each in self.graph.effects
        ]
        for number in self.code.having(*ENDS):  # behind it, all counts as read
            reads, kills = effects[number]
            effects[number] = reads | ((1 << BITS) - 1) << BITS, kills
        found = {}
        for head, block in self.graph.blocks.items():
            found[head] = does = list[Does]()
            for node in reversed(block):
                if (own := self.ours.get(at := node % self.count)) is not None:
                    kills = own.writes << BITS if own.guard < 0 else 0
                    kills |= own.writes if self.seen[node][1] else 0
                    does.append((node, own.reads << BITS, kills))
                elif (each := effects[self.code.origin[at]]) is not _NOTHING:
                    does.append((node, *each))
        return found


def _together(some: list[Does]) -> tuple[int, int]:
    """Return what is read and overwritten by nodes, the last one first."""
    reads = kills = 0
    for _, read, killed in some:
        reads, kills = reads & ~killed | read, kills | killed
    return reads, kills


def _merged(one: State, other: State) -> State:
    values, more = one[0].copy(), other[0]
    for bit in {bit for bit, _ in one[0].items() ^ more.items()}:
        left, right = values.get(bit, OTHER), more.get(bit, OTHER)
        values[bit] = left if left == right else LOST if LOST in (left, right) else OTHER
    return values, [*map(or_, one[1], other[1])]
