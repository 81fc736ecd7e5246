"""The control flow of a patched kernel: nodes, their successors, basic blocks."""

from __future__ import annotations

from collections.abc import Iterator

from ikp.sass.cubins import instruction as enc
from ikp.sass.disassembly.effects import EVERYTHING, Effects, P, R, effects
from ikp.verifier.inserted_code import decode
from ikp.verifier.matched_code import TABLED, MatchedCode, conditions, led

_EXIT, _BSYNC, _MEETS = 0x94D, 0x941, (0x355, 0x356, 0x955, 0x956)
_LEAVES, ENDS, LOADS = (0x343, 0x943), (0x95B, 0x95C), (0xAB9, 0x7AC)
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
            at: decode(each, code.sm) for at, each in enumerate(code.new) if code.origin[at] < 0
        }
        self.effects = self._effects(asserts)
        self.ways = {at: to for at in self.ours if (to := code.after_inserted(at)) != [at + 1]}
        for start, places in code.parts:
            self.ways |= _PlainCopy(code, places, {} if start else tables, asserts).ways()
        self.leaving = self._leaving()
        self.same = {at for at in self.ours if self._makes_the_same(at)}
        self._divide()

    def _effects(self, asserts: set[int]) -> list[Effects]:
        """Return the effects of original instructions on registers that inserted ones name."""
        found, named, written = list(map(effects, self.code.text)), 0, EVERYTHING & ~R.all
        for own in self.ours.values():
            named |= own.reads | own.writes
        for each in found:
            written |= each.writes if each.writes != EVERYTHING else 0
        for n, word in enumerate(self.code.old):
            if word & 0xFFF in _LEAVES:  # it may read arguments
                reads = found[n].reads | (1 << 32) - 1 & written
                found[n] = Effects(reads, 0 if n in asserts else EVERYTHING, 0)
        return [
            Effects(reads & named, writes & named, kills & named) for reads, writes, kills in found
        ]

    def _leaving(self) -> set[int]:
        """Return the branches that no thread takes which surely leaves at the EXIT behind them."""
        exits = [
            at
            for at, number in enumerate(self.code.origin)
            if number >= 0 and self.code.new[at] & 0xFFF == _EXIT
        ]
        return {at for leave in exits for at in self._skips(leave)}

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

    def _makes_the_same(self, at: int) -> bool:
        """Whether it loads a constant, and original code sets its target only to this constant."""
        ours, same = self.ours[at], self.code.new[at] & _DOES
        if ours.opcode != LOADS[0]:
            return False
        others = [n for n, each in enumerate(self.effects) if each.writes & ours.writes]
        return bool(others) and all(self.code.old[n] & _DOES == same for n in others)

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
        tos = self._reachable()
        exits = [node for node in tos if node >= self.count and not tos[node]]
        stay = {node: to for node in exits if (to := node - self.count + 1) in tos}
        heads = {0, *stay.values()}
        heads.update(to for node, some in tos.items() if some != [node + 1] for to in some)
        self.blocks = {head: _block(head, tos, heads) for head in heads}
        self.to = {head: tos[block[-1]] for head, block in self.blocks.items()}
        self.stay = {h: stay[b[-1]] for h, b in self.blocks.items() if b[-1] in stay}

    def _reachable(self) -> dict[int, list[int]]:
        """Return the successors of each node that the entry leads to."""
        tos, work = dict[int, list[int]](), [0]
        while work:
            if (node := work.pop()) not in tos:
                tos[node] = self.after(node)
                work += tos[node]
        return tos

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


def _block(head: int, tos: dict[int, list[int]], heads: set[int]) -> list[int]:
    block = [head]
    while tos[block[-1]] == [block[-1] + 1] and block[-1] + 1 not in heads:
        block.append(block[-1] + 1)
    return block


class _PlainCopy:
    """A part of the code that has all original instructions, and where each of these leads."""

    def __init__(
        self, code: MatchedCode, places: list[int], tables: dict[int, list[int]], asserts: set[int]
    ) -> None:
        self.code, self.places, self.tables, self.asserts = code, places, tables, asserts
        self.returns = [places[call] + 1 for call in code.calls]
        # Where BMOV copies barriers to registers and back, each may be that of any BSSY.
        self.which = 0 if any(word & 0xFFF in _MEETS for word in code.old) else 15
        self.met = self._met()

    def _met(self) -> dict[int, list[tuple[int, int]]]:
        """Return where threads meet behind each BSSY, in the plain and in the patched code."""
        found: dict[int, list[tuple[int, int]]] = {}
        for number, at in enumerate(self.places):
            if (word := self.code.new[at]) & 0xFFF == enc.BSSY:
                old = led(self.code.old[number], number, enc.HALF) // 16
                new = led(word, at, enc.HALF) // 16
                found.setdefault(word >> 16 & self.which, []).append((old, new))
        return found

    def ways(self) -> dict[int, list[int]]:
        """Return the successors of each instruction, where not the next one alone."""
        found = ((at, self._ways(number, at)) for number, at in enumerate(self.places))
        return {at: ways for at, ways in found if ways is not None}

    def _ways(self, number: int, at: int) -> list[int] | None:
        word, skips = self.code.new[at], [at + 1] if self.code.text[number].guard else []
        opcode = word & 0xFFF
        if opcode in (enc.BRA, enc.BRA_UNIFORM, enc.CALL_REL):
            return self._branch(number, at, skips)
        if opcode == _EXIT:
            return [at + 1] if conditions(word) else []
        if opcode == enc.RET:
            return [*self.returns, *skips]
        if opcode in ENDS or number in self.asserts:
            return skips
        if opcode in TABLED:
            return self.tables.get(number, [])
        return self._meeting(number, at) if opcode == _BSYNC else None

    def _branch(self, number: int, at: int, skips: list[int]) -> list[int]:
        word, each = self.code.new[at], self.code.text[number]
        one = each.opcode == "BRA" and len(each.operands) == 1  # no predicate as an operand
        goes_on = skips if word & 0xFFF == enc.CALL_REL or one else [at + 1]
        return [led(word, at, enc.branches(self.code.sm)) // 16, *goes_on]

    def _meeting(self, number: int, at: int) -> list[int] | None:
        some = self.met.get(self.code.new[at] >> 16 & self.which, [(number + 1, 0)])
        if any(old == number + 1 for old, _ in some):
            return None
        return [*(new for _, new in some), *([] if self.which else [at + 1])]
