"""Serial code: sums that each wait for the one before, and searches that go one step at a time.

A chain is a sum that an iteration takes from the one before and hands to the next: its additions
take a fixed number of cycles each, one after another, in any schedule. A search leaves its loop by
what it loads at an address that each iteration moves by a constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import Final

from ikp.core.extra_work import ExtraWork
from ikp.inspection._work import Often, line_of
from ikp.sass.control_flow.flow import Flow, Loop
from ikp.sass.dataflow.def_use import DefUse, bits_of
from ikp.sass.disassembly.effects import operand
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.resources import R, members, span

_REGISTERS: Final = span(R.first, R.count)
_CYCLES: Final = {"FADD": 4, "FFMA": 4, "HADD2": 5, "HFMA2": 5, "FMNMX": 4, "DADD": 8, "DFMA": 8}
"""Cycles after which a sum can be used, on sm_90."""
_STEPS: Final = frozenset(["IADD3", "VIADD", "LOP3", "IMAD", "LEA", "MOV", "SEL", "SHF"])
"""Instructions by which a search makes its next address."""
_DIGITS: Final = 3
_SEARCH: Final = 48
"""Instructions of a loop above which it does more than to search."""
_ACTS: Final = frozenset(
    ("STG", "ST", "STS", "ATOM", "ATOMG", "RED", "REDG", "BAR", "HMMA", "HGMMA")
)


@dataclass(frozen=True)
class Serial:
    """The serial code of one kernel.

    Args:
        uses: its definitions and uses.
    """

    uses: DefUse

    @property
    def flow(self) -> Flow:
        """The kernel."""
        return self.uses.flow

    def chain(self, how_often: Mapping[int, Often]) -> ExtraWork | None:
        """Return the longest chain of sums among some instructions; None where there is none.

        Its ``count`` is cycles, its ``parts`` additions.
        """
        found: dict[int, ExtraWork] = {}
        for loop, ats in self._chains:
            times = [how_often[at].times for at in ats if at in how_often]
            if len(times) == len(ats) and not any(how_often[at].looped for at in ats):
                cycles = sum(_CYCLES[self.flow.code.instructions[at].op] for at in ats)
                most = max(times)
                one = ExtraWork(
                    round(cycles * most, _DIGITS), len(ats) * most, line_of(self.flow, ats)
                )
                found[loop.header] = max(found.get(loop.header, one), one, key=lambda x: x.count)
        return max(found.values(), key=lambda one: one.count, default=None)

    @cached_property
    def _chains(self) -> list[tuple[Loop, list[int]]]:
        """The chains of loops, with their additions in order."""
        found = []
        code = self.flow.code.instructions
        for loop in self.flow.loops:
            for at in sorted(loop.body):
                each = code[at]
                if each.op in _CYCLES and not each.guard and self.flow.loop_of(at) == loop:
                    chain = self._back_to(at, loop)
                    if chain:
                        found.append((loop, chain))
        return found

    def _back_to(self, at: int, loop: Loop) -> list[int]:
        """Return the additions from what an iteration before left to one that leaves it so."""
        chain, seen = [at], {at}
        while True:
            summand = self._summand(chain[-1], loop, at)
            if summand == at and chain[-1] <= at:
                return chain[::-1]
            if summand is None or summand in seen or summand > chain[-1]:
                return []
            seen.add(summand)
            chain.append(summand)

    def _summand(self, at: int, loop: Loop, end: int) -> int | None:
        """Return the addition in a loop whose result an addition adds to; None for none."""
        each = self.flow.code.instructions[at]
        places = each.operands[3:4] if each.op in ("FFMA", "HFMA2", "DFMA") else each.operands[1:3]
        for text in places:
            first = operand(text).first
            if first < 0 or text.startswith("|"):
                continue
            inside = self.uses.sources(at, 1 << first) & loop.body
            if end in inside:
                return end
            sums = [one for one in inside if self._is_sum(one, loop)]
            if len(sums) == 1 and self._origins(loop)[sums[0]] >> end & 1:
                return sums[0]
        return None

    def _is_sum(self, at: int, loop: Loop) -> bool:
        each = self.flow.code.instructions[at]
        return each.op in _CYCLES and not each.guard and self.flow.loop_of(at) == loop

    def _origins(self, loop: Loop) -> dict[int, int]:
        """Return what each addition of a loop adds up through additions before it, as bits.

        A chain ends at one of these. An unrolled loop may have thousands of additions in a chain.
        """
        if loop.header not in self._known:
            inside, found = bits_of(loop.body), dict[int, int]()
            for at in sorted(loop.body):
                if self._is_sum(at, loop):
                    own = self.uses.source_bits(at, _REGISTERS) & inside
                    earlier = (one for one in members(own) if one < at and one in found)
                    found[at] = reduce(or_, (found[one] for one in earlier), own)
            self._known[loop.header] = found
        return self._known[loop.header]

    @cached_property
    def _known(self) -> dict[int, dict[int, int]]:
        return {}

    def searches(self) -> tuple[list[int], list[int]]:
        """Return the loads of searches."""
        found = []
        code = self.flow.code.instructions
        for loop in self.flow.loops:
            body = loop.body - {*self.uses.ours}
            inner = any(other.body < loop.body for other in self.flow.loops)
            if inner or len(body) > _SEARCH or any(code[at].op in _ACTS for at in body):
                continue
            loads = [at for at in sorted(body) if code[at].op in ("LDG", "LD", "LDS")]
            found += [at for at in loads if self.decides(at, body) and self._steps(at, body)]
        return found, found

    def decides(self, load: int, body: frozenset[int]) -> bool:
        """Whether what a load brings decides whether the loop goes on."""
        seen, work = {load}, [load]
        while work:
            for user in self.uses.users(work.pop()) & body - seen:
                seen.add(user)
                each = self.flow.code.instructions[user]
                if each.op in ("BRA", "EXIT", "BREAK"):
                    return True
                if _compares(each):
                    work.append(user)
        return False

    def _steps(self, load: int, body: frozenset[int]) -> bool:
        """Whether each iteration moves a load's address by a constant, and by nothing else."""
        place = next(one for one in self.flow.code.instructions[load].operands if "[" in one)
        seen, carried = set[int](), False
        work = [*self.uses.sources(load, operand(place).reads) & body]
        while work:
            at = work.pop()
            if at in seen:
                continue
            seen.add(at)
            each = self.flow.code.instructions[at]
            if each.op not in _STEPS or each.guard:
                return False
            sources = self.uses.sources(at, _REGISTERS) & body
            carried |= any(source >= at for source in sources)
            work += sources
        return carried and any(self._adds_constant(at) for at in seen)

    def _adds_constant(self, at: int) -> bool:
        each = self.flow.code.instructions[at]
        return each.op in ("IADD3", "VIADD") and any("0x" in one for one in each.operands[1:])


def _compares(each: Instruction) -> bool:
    return each.op in ("ISETP", "FSETP", "PLOP3", "LOP3", "SEL", "P2R", "VOTE", "MOV", "IMAD")
