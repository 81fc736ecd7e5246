"""``CheckedFlow``: follows all paths; yields inserted instructions that may change the kernel.

A state says of each register what inserted code has put there, and which registers are in flight,
for which scoreboard.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import chain

from ikp.sass.disassembly.effects import BITS, UP, UR, R, members
from ikp.verifier.declared import Declared
from ikp.verifier.in_flight import STARTED, Flight, Waits
from ikp.verifier.matched_code import MatchedCode, names
from ikp.verifier.patched_graph import ENDS, PatchedGraph
from ikp.verifier.register_values import HIGH, LOST, LOW, OTHER, Rules, Values, restores

_STAYS = UR.all | UP.all | ((1 << BITS) - 1) << BITS  # what threads read where others leave
State = tuple[Values, Flight]


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
        self.graph = PatchedGraph(code, tables, asserts)
        self.code, self.ours, self.count = code, self.graph.ours, self.graph.count
        self.rules = Rules(self.graph, declared, base)
        self.waits = Waits(self.graph, declared.registers)

    def check(self) -> Iterator[str]:
        """Yield inserted instructions that may do something to the kernel or to its memory."""
        restored, addresses, early = set[int](), set[int](), set[int]()
        for head, state in self._entering().items():
            values, flight = dict(state[0]), list(state[1])
            for node in self.graph.blocks[head]:
                own = self.ours.get(at := node % self.count)
                if own is None:
                    yield from self.waits.disturbed(node, flight)
                    self._step(at, values, flight)
                    continue
                wrong = chain(self.waits.busy(own, at, flight), self.rules.unsafe(own, at, values))
                yield from (f"{self.graph.said(at)} {each}" for each in wrong)
                restored.update([node] if restores(own, values) else [])
                early.update([] if flight[STARTED] else [node])
                self._step(at, values, flight)
                if any(values.get(bit) in (LOW, HIGH) for bit in members(own.writes)):
                    addresses.add(at)  # where nothing is recorded, no store reads some of these
        yield from self._needed(restored, addresses, early)

    def _entering(self) -> dict[int, State]:
        """Return the state in which each block is entered, on any path."""
        found: dict[int, State] = {0: ({}, self.waits.begin())}
        steps = {
            head: [node for node in block if self._counts(node % self.count)]
            for head, block in self.graph.blocks.items()
        }
        order = self.graph.order()
        rank = {head: number for number, head in enumerate(order)}
        work = [0]
        while work:
            head = order[heappop(work)]
            state = dict(found[head][0]), list(found[head][1])
            for node in steps[head]:
                self._step(node % self.count, *state)
            for to in self.graph.to[head]:
                both = _merged(found[to], state) if to in found else state
                if to not in found or both != found[to]:
                    found[to] = both
                    if rank[to] not in work:
                        heappush(work, rank[to])
        return found

    def _counts(self, at: int) -> bool:
        """Whether an instruction changes states."""
        word, number = self.code.new[at], self.code.origin[at]
        if number <= 0 or self.graph.effects[number].writes or word >> 116 & 63:
            return True
        return self.waits.counts(number, boards=(word >> 110 & 63) != 63)

    def _step(self, at: int, values: Values, flight: Flight) -> None:
        self.waits.step(at, flight)
        self.rules.step(at, values)

    def _needed(self, restored: set[int], addresses: set[int], early: set[int]) -> Iterator[str]:
        """Yield inserted instructions that overwrite a live original value, or that nothing reads.

        Of a set of live registers, the lower half is for original code, the upper for inserted.
        """
        used, behind = dict.fromkeys(self.ours, 0), self._live(restored)
        for node, now in behind.items():
            at = node % self.count
            if (own := self.ours.get(at)) is None:
                continue
            used[at] |= now >> BITS
            # Before all original code, threads' registers have no values.
            lost = own.writes & now & (~R.all if node in early else -1)
            if lost and node not in restored and at not in self.graph.same:
                yield f"{self.graph.said(at)} overwrites {names(lost)}, which original code needs"
        reached = {node % self.count for node in behind} - {node % self.count for node in restored}
        for at in sorted(reached & self.ours.keys() - addresses):
            if (writes := self.ours[at].writes) and not writes & used[at]:
                yield f"{self.graph.said(at)} sets {names(writes)}, which nothing reads"

    def _live(self, restored: set[int]) -> dict[int, int]:
        """Return the live registers behind each node, by backward dataflow."""
        blocks, stay, before = self.graph.blocks, self.graph.stay, self._before()
        does = {head: self._done(block, restored) for head, block in blocks.items()}
        live, behind, work = dict.fromkeys(blocks, 0), dict[int, int](), self.graph.order()
        while work:
            head = work.pop()
            now = live[stay[head]] & _STAYS if head in stay else 0
            for to in self.graph.to[head]:
                now |= live[to]
            for node, reads, kills in does[head]:
                behind[node] = now
                now = now & ~kills | reads
            if now != live[head]:
                live[head] = now
                work += before[head]
        return behind

    def _before(self) -> dict[int, list[int]]:
        """Return the blocks that lead to each block, or whose threads that stay go on with it."""
        found: dict[int, list[int]] = {head: [] for head in self.graph.blocks}
        for head, tos in self.graph.to.items():
            for to in tos:
                found[to].append(head)
        for head, to in self.graph.stay.items():
            found[to].append(head)
        return found

    def _done(self, block: list[int], restored: set[int]) -> list[tuple[int, int, int]]:
        """Return the nodes of a block that read or overwrite registers, the last one first."""
        found = ((node, *self._does(node, restored)) for node in reversed(block))
        return [each for each in found if each[1] or each[2]]

    def _does(self, node: int, restored: set[int]) -> tuple[int, int]:
        """Return the registers that are read and overwritten at a node."""
        at = node % self.count
        if (own := self.ours.get(at)) is not None:
            kills = own.writes << BITS if own.guard < 0 else 0
            return own.reads << BITS, kills | (own.writes if node in restored else 0)
        each = self.graph.effects[self.code.origin[at]]
        traps = self.code.new[at] & 0xFFF in ENDS  # behind it, all counts as read
        return each.reads | (((1 << BITS) - 1) << BITS) * traps, each.kills | each.kills << BITS


def _merged(one: State, other: State) -> State:
    values, more = one[0].copy(), other[0]
    for bit in {bit for bit, _ in one[0].items() ^ more.items()}:
        left, right = values.get(bit, OTHER), more.get(bit, OTHER)
        values[bit] = left if left == right else LOST if LOST in (left, right) else OTHER
    return values, [a | b for a, b in zip(one[1], other[1], strict=True)]
