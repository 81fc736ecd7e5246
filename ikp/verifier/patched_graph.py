"""The control flow of a patched kernel: nodes, their successors, basic blocks."""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections.abc import Iterator
from functools import reduce
from itertools import pairwise
from operator import or_

from ikp.sass.cubins import instruction as enc
from ikp.sass.disassembly.effects import EVERYTHING, Effects, P, effects
from ikp.verifier.inserted_code import Inserted, decode
from ikp.verifier.matched_code import TABLED, MatchedCode, conditions, led

_EXIT, _BSYNC, _MEETS = 0x94D, 0x941, (0x355, 0x356, 0x955, 0x956)
_LEAVES, ENDS, LOADS = (0x343, 0x943), (0x95B, 0x95C), (0xAB9, 0x7AC)
_BRANCHES = (enc.BRA, enc.BRA_UNIFORM, enc.CALL_REL)
_TURNS = (*_BRANCHES, _EXIT, enc.RET, *ENDS, *TABLED, _BSYNC)
_NOTHING = Effects(0, 0, 0)
_DOES = (1 << 105) - 1  # an instruction's bits without its scheduling


class PatchedGraph:
    """The patched code as a graph. A node is a place; or, one code's length farther, the same place
    for threads that surely leave at the EXIT behind it, which may run code that others skip.

    Args:
        code: the patched code, matched with the plain one's.
        tables: of each original indirect branch, the places that it may lead to.
        asserts: original calls that never return.
    """

    def __init__(self, code: MatchedCode, tables: dict[int, list[int]], asserts: set[int]) -> None:
        self.code, self.count = code, len(code.new)
        self.ours = {
            at: decode(code.new[at], code.sm) for at, n in enumerate(code.origin[:-1]) if n < 0
        }
        self.effects = self._effects(asserts)
        branches = [at for at, own in self.ours.items() if own.opcode == enc.BRA]
        self.ways = {at: to for at in branches if (to := code.after_inserted(at)) != [at + 1]}
        for start, places in code.parts:
            self.ways |= _PlainCopy(code, places, {} if start else tables, asserts).ways()
        exits = [places[n] for n in code.having(_EXIT) for _, places in code.parts]
        self.leaving = {at for leave in exits for at in self._skips(leave)}
        self.same = self._same()
        self._divide()

    def _effects(self, asserts: set[int]) -> list[Effects]:
        """Return the effects of original instructions on registers that inserted ones name."""
        found, named, written = list(map(effects, self.code.listed)), 0, 0
        for own in self.ours.values():
            named |= own.reads | own.writes
        if leaves := self.code.having(*_LEAVES):  # these may read arguments
            for each in found:
                written |= each.writes if each.writes != EVERYTHING else 0
        for n in leaves:
            reads = found[n].reads | (1 << 32) - 1 & written
            found[n] = Effects(reads, 0 if n in asserts else EVERYTHING, 0)
        return [
            Effects(reads & named, writes & named, kills & named)
            if (reads | writes) & named
            else _NOTHING
            for reads, writes, kills in found
        ]

    def _skips(self, leave: int) -> Iterator[int]:
        """Yield the branches in front of an EXIT that none takes who surely leaves there."""
        first, code, known = leave, self.code.new, set[int]()
        while first - 1 in self.ours:
            first -= 1
        asked = conditions(code[leave])
        own = sum({1 << P.first + (each & 7) for each in asked})
        if any(self.ours[at].writes & own for at in range(first, leave)):
            return
        for at in range(first, leave):
            if code[at] & 0xFFF == enc.BRA and (code[at] >> 12 & 15) ^ 8 in asked:
                known.add((code[at] >> 12 & 15) ^ 8)
                if known == asked:
                    yield at

    def _same(self) -> set[int]:
        """Return what loads a constant, where original code sets its target only to this one."""
        loads = {own for own in self.ours.values() if own.opcode == LOADS[0]}
        code, found = self.code.old, set[Inserted]()
        targets = reduce(or_, (own.writes for own in loads), 0)
        writers = [n for n, each in enumerate(self.effects) if each.writes & targets]
        for own in loads:
            others = [n for n in writers if self.effects[n].writes & own.writes]
            if others and all(code[n] & _DOES == own.word & _DOES for n in others):
                found.add(own)
        return {at for at, own in self.ours.items() if own in found}

    def after(self, node: int) -> list[int]:
        """Return the successors of a node."""
        leaves, at = divmod(node, self.count)
        tos, behind = self.ways.get(at, [at + 1]), self.code.behind
        tos = [to for to in tos if 0 <= to < self.count]
        if leaves and at not in self.ours:
            return []
        if at in self.leaving:
            return [at + 1 + self.count, *(to for to in tos if not leaves and to != at + 1)]
        return [to + self.count * (leaves and behind[to] == behind[at]) for to in tos]

    def _divide(self) -> None:
        """Find the basic blocks, by their first nodes, and what threads that stay go on with."""
        self.turns = sorted({*self.ways, *self.leaving, self.count - 1})
        tos, found, work = dict[int, list[int]](), {0}, [0]
        while work:
            if (end := self._end(work.pop())) not in tos:
                tos[end] = self.after(end)
                found.update(tos[end])
                work += tos[end]
        heads = sorted(found)
        exits = {
            node - self.count + 1: node for node in tos if node >= self.count and not tos[node]
        }
        stay = {
            node: to
            for to, node in exits.items()
            if to < self.count and self._end(heads[bisect(heads, to) - 1]) >= to
        }
        self.blocks, self.to, self.stay = dict[int, range](), dict[int, list[int]](), {}
        for head, behind in pairwise([*sorted({*heads, *stay.values()}), 2 * self.count]):
            last = min(self._end(head), behind - 1)
            self.blocks[head] = range(head, last + 1)
            self.to[head] = tos.get(last, [last + 1])
            if last in stay:
                self.stay[head] = stay[last]

    def _end(self, node: int) -> int:
        """Return the last of the nodes behind one, itself among them, that follow each other."""
        leaves, at = divmod(node, self.count)
        end = self.turns[bisect_left(self.turns, at)]
        return node - at + (min(end, self.code.behind[at]) if leaves else end)

    def order(self) -> list[int]:
        """Return the blocks in reverse postorder: each before those behind it, but in loops."""
        seen, found, path = {0}, list[int](), [(0, iter(self.to[0]))]
        while path:
            head, more = path[-1]
            to = next((each for each in more if each not in seen), None)
            if to is None:
                found.append(head)
                path.pop()
            else:
                seen.add(to)
                path.append((to, iter(self.to[to])))
        return found[::-1]

    def said(self, at: int) -> str:
        """Return an inserted instruction's place, in words."""
        behind = self.code.origin[self.code.behind[at]]
        before = "the end" if behind < 0 else self.code.said(behind).rstrip(",")
        return f"inserted instruction {at} ({self.code.new[at]:#034x}, before {before})"


class _PlainCopy:
    """A part of the code that has all original instructions, and where each of these leads."""

    def __init__(
        self, code: MatchedCode, places: list[int], tables: dict[int, list[int]], asserts: set[int]
    ) -> None:
        self.code, self.places, self.tables, self.asserts = code, places, tables, asserts
        self.returns = [places[call] + 1 for call in code.calls]
        # Where BMOV copies barriers to registers and back, each may be that of any BSSY.
        self.which = 0 if code.having(*_MEETS) else 15
        self.met = self._met()

    def _met(self) -> dict[int, list[tuple[int, int]]]:
        """Return where threads meet behind each BSSY, in the plain and in the patched code."""
        found: dict[int, list[tuple[int, int]]] = {}
        for number in self.code.having(enc.BSSY):
            at, word = self.places[number], self.code.old[number]
            old = led(word, number, enc.HALF) // 16
            new = led(self.code.new[at], at, enc.HALF) // 16
            found.setdefault(word >> 16 & self.which, []).append((old, new))
        return found

    def ways(self) -> dict[int, list[int]]:
        """Return the successors of each instruction, where not the next one alone."""
        some = {*self.code.having(*_TURNS), *self.asserts}
        found = ((self.places[number], self._ways(number, self.places[number])) for number in some)
        return {at: ways for at, ways in found if ways is not None and ways != [at + 1]}

    def _ways(self, number: int, at: int) -> list[int] | None:
        word, skips = self.code.new[at], [at + 1] if self.code.listed[number].guard else []
        opcode = word & 0xFFF
        if opcode in _BRANCHES:
            return self._branch(number, at, skips)
        if opcode == _EXIT:
            return [at + 1] if conditions(word) else []
        if opcode == enc.RET:
            return [*self.returns, *skips]
        if opcode in ENDS or number in self.asserts:
            return skips
        if opcode in TABLED:
            return self.tables.get(number, [])
        return self._meeting(number, at)

    def _branch(self, number: int, at: int, skips: list[int]) -> list[int]:
        word, each = self.code.new[at], self.code.listed[number]
        one = each.opcode == "BRA" and len(each.operands) == 1  # no predicate as an operand
        goes_on = skips if word & 0xFFF == enc.CALL_REL or one else [at + 1]
        return [led(word, at, enc.branches(self.code.sm)) // 16, *goes_on]

    def _meeting(self, number: int, at: int) -> list[int] | None:
        some = self.met.get(self.code.new[at] >> 16 & self.which, [(number + 1, 0)])
        if any(old == number + 1 for old, _ in some):
            return None
        return [*(new for _, new in some), *([] if self.which else [at + 1])]
