"""The control flow of a patched kernel: its places, their successors, basic blocks."""

from __future__ import annotations

from itertools import chain, pairwise

from ikp.sass.cubins import instruction as enc
from ikp.sass.disassembly.effects import EVERYTHING, Effects, P, effects_of
from ikp.verifier.inserted_code import decode
from ikp.verifier.matched_code import TABLED, MatchedCode, conditions, led

_EXIT, _BSYNC, _BARRIERS_MOVE = 0x94D, 0x941, (0x355, 0x356, 0x955, 0x956)
_CALLS, ENDS = (0x343, 0x943), (0x95B, 0x95C)
_BRANCHES = (enc.BRA, enc.BRA_UNIFORM, enc.CALL_REL)
_TURNS = (*_BRANCHES, _EXIT, enc.RET, *ENDS, *TABLED, _BSYNC)
NOTHING = Effects(0, 0, 0)


class PatchedGraph:
    """The patched code as a graph: basic blocks, by their first places.

    Args:
        code: the patched code, matched with the plain one's.
        tables: of each original indirect branch, the places that it may lead to.
        asserts: original calls that never return.
    """

    def __init__(self, code: MatchedCode, tables: dict[int, list[int]], asserts: set[int]) -> None:
        self.code, self.count = code, len(code.new)
        self.ours = {
            at: decode(code.new(at), code.sm) for at, n in enumerate(code.origin[:-1]) if n < 0
        }
        self.named = 0
        """The registers that inserted instructions name, as bits."""
        for own in self.ours.values():
            self.named |= own.reads | own.writes
        self.effects = self._effects(asserts)
        branches = (at for at, own in self.ours.items() if own.kind == "branch")
        ways = {at: code.after_inserted(at) for at in branches}
        for start, places in code.parts:
            ways |= self._ways(places, {} if start else tables, asserts)
        self.ways = {at: [to for to in tos if 0 <= to < self.count] for at, tos in ways.items()}
        self.stay: dict[int, int] = {}
        self._part()
        ends = (at + 1 for at in self.ways)
        heads = sorted({0, *chain(*self.ways.values()), *ends} - {self.count})
        self.blocks = {head: range(head, end) for head, end in pairwise([*heads, self.count])}

    def after(self, at: int) -> list[int]:
        """Return the successors of an instruction."""
        return self.ways.get(at, [at + 1] if at + 1 < self.count else [])

    def _effects(self, asserts: set[int]) -> dict[int, Effects]:
        """Return the effects of original instructions that name registers of inserted ones."""
        found, named, written = [*effects_of(self.code.text)], self.named, 0
        if leaves := self.code.having(*_CALLS):  # these may read arguments
            for each in found:
                written |= each.writes if each.writes != EVERYTHING else 0
        for n in leaves:
            reads = found[n].reads | (1 << 32) - 1 & written
            found[n] = Effects(reads, 0 if n in asserts else EVERYTHING, 0)
        return {n: each for n, each in enumerate(found) if (each[0] | each[1]) & named}

    def _ways(
        self, places: list[int], tables: dict[int, list[int]], asserts: set[int]
    ) -> dict[int, list[int]]:
        """Return the successors of a part's original instructions, where not the next one alone."""
        code, found, met = self.code, dict[int, list[int]](), dict[int, list[tuple[int, int]]]()
        # Where BMOV copies barriers to registers and back, each may be that of any BSSY.
        which = 0 if code.having(*_BARRIERS_MOVE) else 15
        for number in code.having(enc.BSSY):
            at, word = places[number], code.old(number)
            meets = led(word, number, enc.HALF) // 16, led(code.new(at), at, enc.HALF) // 16
            met.setdefault(word >> 16 & which, []).append(meets)
        for number in {*code.having(*_TURNS), *asserts}:
            at, each = places[number], code.listed[number]
            word, skips = code.new(at), [at + 1] if each.guard else []
            if (opcode := word & 0xFFF) in _BRANCHES:
                sure = each.opcode == "BRA" and len(each.operands) == 1  # has no predicate in it
                tos = skips if sure or opcode == enc.CALL_REL else [at + 1]
                found[at] = [led(word, at, code.far) // 16, *tos]
            elif opcode == _EXIT:
                found[at] = [at + 1] if conditions(word) else []
            elif opcode == enc.RET:
                found[at] = [*(places[call] + 1 for call in code.calls), *skips]
            elif opcode in TABLED:
                found[at] = tables.get(number, [])
            elif opcode != _BSYNC:
                found[at] = skips
            elif all(
                old != number + 1 for old, _ in met.get(word >> 16 & which, [(number + 1, 0)])
            ):
                tos = [] if which else [at + 1]
                found[at] = [*(new for _, new in met[word >> 16 & which]), *tos]
        return found

    def _part(self) -> None:
        """Lead threads that surely leave at an EXIT past the branches in front of it.

        Others take these branches, by the predicates that the EXIT has, negated. So code between
        them and the EXIT is run by leaving threads alone.
        """
        sources: dict[int, list[int]] = {}
        for at, tos in self.ways.items():
            for to in tos:
                sources.setdefault(to, []).append(at)
        for leave in [places[n] for n in self.code.having(_EXIT) for _, places in self.code.parts]:
            asked, first, known = conditions(self.code.new(leave)), leave, set[int]()
            while first - 1 in self.ours:
                first -= 1
            own, skips = sum({1 << P.first + (each & 7) for each in asked}), list[int]()
            if any(self.ours[at].writes & own for at in range(first, leave)):
                continue
            for at in range(first, leave):
                some = conditions(self.code.new(at)) if self.ours[at].kind == "branch" else set()
                if len(some) == 1 and (negated := some.pop() ^ 8) in asked:
                    known.add(negated)
                    skips += [at] * (known == asked)
            inside = {*range(skips[0] + 1, leave)} - {*skips} if skips else set[int]()
            into = [(source, to) for to in inside for source in sources.get(to, ())]
            if all(at in inside or (at in skips and to == at + 1) for at, to in into):
                for at in inside:
                    self._leave(at, skips, leave)

    def _leave(self, at: int, skips: list[int], leave: int) -> None:
        """Change where control goes on from an instruction that leaving threads alone run."""
        tos = self.ways.get(at, [at + 1])
        for skip in skips:
            tos = [to + (to == skip) for to in tos]
        if leave in tos:
            self.stay[at] = leave + 1  # what threads that stay go on with
        if (tos := [to for to in tos if to != leave]) != [at + 1]:
            self.ways[at] = tos
