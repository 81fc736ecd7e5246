"""Kinds of extra work along chains of values: serial sums, sums in memory, searches, numbers taken
apart, values stored back.

A serial sum is one that an iteration takes from the one before and hands to the next: its additions
take a fixed number of cycles each, one after another, in any schedule. A sum in memory is loaded
from one address and stored there by each iteration. A search leaves its loop by
what it loads at an address that each iteration moves by a constant.

Numbers are taken apart from a load, through integer instructions alone, to where arithmetic takes
the bits as a number; and from arithmetic, through integer instructions, to a store.

A value is stored back if it is loaded and reaches stores to its own sectors, through selections and
moves alone, and nothing else: what a mask would leave alone. A compiler may change the layout of
threads between, through shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.excess_facts import ExtraWork
from ikp.inspection._work import Often, line_of
from ikp.sass.control_flow.flow import Flow, Loop
from ikp.sass.control_flow.graph import reached
from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.disassembly.effects import P, R, bits_of, members, operand, span
from ikp.sass.disassembly.listing import Instruction

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
            loads = sorted(body.intersection(self.flow.code.of("LDG", "LD", "LDS")))
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


_OPERANDS: Final = span(R.first, R.count) | span(P.first, P.count)
_LOADS: Final = ("LDG", "LDS", "LD")
_BITS: Final = frozenset(
    ["LOP3", "SHF", "SHL", "SHR", "PRMT", "IADD3", "VIADD", "LEA", "SEL", "SGXT", "BMSK", "ISETP"]
)
_FLOATS: Final = frozenset(
    ["FADD", "FMUL", "FFMA", "FSEL", "FMNMX", "FSETP", "HADD2", "HFMA2", "HMUL2", "F2FP"]
)
_LEAST: Final = 3.5
"""Such instructions for each number, from which on a conversion would be fewer."""


def unpacked(uses: DefUse, results: int) -> tuple[set[int], set[int]]:
    """Return integer instructions between loads and arithmetic, and the numbers that they make.

    None where these are few for each number.

    Args:
        uses: the definitions and uses of a kernel.
        results: the instructions that serve results, and no address alone, as bits.
    """
    code = uses.flow.code.instructions
    loads = [at for at, each in enumerate(code) if each.op in _LOADS and at not in uses.ours]
    bits = _forward(uses, loads)
    ends = {
        at
        for at in bits
        if any(results >> user & 1 and _takes(uses, at, user) for user in uses.users(at))
    }
    between = _backward(uses, ends, bits)
    numbers = {_last(uses, at, bits) for at in ends}
    return (between, numbers) if len(between) >= _LEAST * max(len(numbers), 1) else (set(), set())


def _last(uses: DefUse, at: int, some: set[int]) -> int:
    """Return the last one of the instructions that write a number, under one guard or another."""
    written = uses.flow.effects[at].writes & span(R.first, R.count)
    others = (uses.sources(user, written) & some for user in uses.users(at))
    return max((one for each in others for one in each), default=at)


def _is_bits(each: Instruction) -> bool:
    """Whether an instruction moves, masks, shifts or selects bits, or adds constants to these."""
    if each.op == "IMAD":
        narrow = not each.opcode.startswith(("IMAD.WIDE", "IMAD.HI"))
        moves = ".MOV" in each.opcode or ".SHL" in each.opcode
        return narrow and (moves or any(_is_shift(one) for one in each.operands[1:3]))
    return each.op in _BITS


def _is_shift(text: str) -> bool:
    """Whether a factor is a power of two."""
    number = int(text, 16) if text.startswith("0x") else 0
    return number > 0 and not number & number - 1


def _forward(uses: DefUse, loads: Iterable[int]) -> set[int]:
    """Return the integer instructions that take loaded bits apart, one behind the other."""
    code, begun = uses.flow.code.instructions, {*loads}

    def are_bits(at: int) -> bool:
        return at in begun or (_is_bits(code[at]) and not _is_address(uses, at))

    return reached(begun, uses.users, are_bits) - begun


def _is_address(uses: DefUse, user: int) -> bool:
    """Whether an instruction has an address."""
    each = uses.flow.code.instructions[user]
    return any(one.endswith("]") for one in each.operands)


def _takes(uses: DefUse, at: int, user: int) -> bool:
    """Whether arithmetic takes bits as a number: of floats, or as a factor of integers."""
    each = uses.flow.code.instructions[user]
    if each.op in _FLOATS or each.op in ("I2F", "I2FP"):
        return bool(uses.flow.effects[at].writes & ~span(P.first, P.count))
    if each.op != "IMAD" or _is_bits(each):
        return False
    factors = [operand(one).first for one in each.operands[1:3]]
    return all(one >= 0 for one in factors) and any(
        uses.flow.effects[at].writes >> one & 1 for one in factors
    )


def _backward(uses: DefUse, numbers: set[int], some: set[int]) -> set[int]:
    """Return what of some instructions the numbers are made of."""
    return reached(numbers, lambda at: uses.sources(at, _OPERANDS) & some)


_SELECTS: Final = ("SEL", "FSEL")
_MOVES: Final = (*_SELECTS, "PRMT", "MOV")
_SAME: Final = 0.9
"""Part of the sectors that are loaded, from which on these are those that are stored to."""


@dataclass
class _Fate:
    """What becomes of a loaded value."""

    stores: set[int] = field(default_factory=set)
    selects: bool = False
    shared: bool = False
    else_used: bool = False

    @property
    def is_copied(self) -> bool:
        """Whether it is stored as it was, or not at all; between threads it may change places."""
        return bool(self.stores) and not self.else_used and (self.selects or not self.shared)


def written_back(
    uses: DefUse, sectors: Callable[[int], NDArray[np.int64]]
) -> tuple[set[int], set[int]]:
    """Return loads and stores of values that are stored where they were; of these, the stores.

    Args:
        uses: the definitions and uses of a kernel.
        sectors: the sectors of an access, of one block.
    """
    both, stores = set[int](), set[int]()
    every = {at: _fate(uses, at) for at in uses.flow.code.of("LDG") if at not in uses.ours}
    known = {at: fate for at, fate in every.items() if fate.is_copied}
    for at, fate in known.items():
        loads = {at, *(one for one, other in known.items() if other.stores == fate.stores)}
        mine, theirs = (np.concatenate([*map(sectors, sorted(s))]) for s in (loads, fate.stores))
        if _are_same(mine, theirs):
            both |= {at, *fate.stores}
            stores |= fate.stores
    return both, stores


def _are_same(some: NDArray[np.int64], others: NDArray[np.int64]) -> bool:
    """Whether nearly all sectors are among the others, and these among them."""
    known = len(some) and len(others)
    both = ((some, others), (others, some))
    return bool(known) and all(float(np.isin(a, b).mean()) >= _SAME for a, b in both)


def _fate(uses: DefUse, load: int) -> _Fate:
    code, found = uses.flow.code.instructions, _Fate()
    seen, work = {load}, [load]
    while work:
        at = work.pop()
        written = uses.flow.effects[at].writes & _REGISTERS
        for user in uses.users(at) - seen:
            each = code[user]
            if _stores(each, written) and each.op in ("STG", "STS"):
                if each.op == "STG":
                    found.stores.add(user)
                    continue
                seen.add(user)
                found.shared = True
                more = sorted({*uses.flow.code.of("LDS", "LDSM")} - seen)
                seen.update(more)
                work += more
            elif each.op in _MOVES or each.opcode.startswith("IMAD.MOV"):
                seen.add(user)
                found.selects |= each.op in _SELECTS or bool(each.guard)
                work.append(user)
            else:
                found.else_used = True
                return found
    found.selects |= any(_merges(uses, store) for store in found.stores)
    return found


def _stores(each: Instruction, written: int) -> bool:
    """Whether a store's data, and not its address, are among some registers."""
    place = next((one for one in each.operands if one.endswith("]")), "")
    return not operand(place).reads & written if place else False


def _merges(uses: DefUse, store: int) -> bool:
    """Whether what is stored has more than one source under a guard."""
    sources = uses.sources(store, _REGISTERS)
    return any(uses.flow.code.instructions[one].guard for one in sources)


_ADDS: Final = ("FADD", "FFMA", "DADD", "DFMA", "HADD2", "HFMA2", "IADD3", "IMAD", "VIADD", "FMNMX")
_FAR: Final = 32
"""Instructions behind a store that are looked at for what its number is a sum of."""


def summed_in_memory(uses: DefUse) -> tuple[set[int], list[int]]:
    """Return sums that each iteration of a loop loads from one address and stores there.

    A loop with a barrier has none in shared memory: the number that it loads may be another
    thread's, as in a reduction of a block.
    """
    stores, both = [], set[int]()
    barriers = {*uses.flow.code.of("BAR", "SYNCS", "WARPSYNC")}
    for at, each in uses.each("STS", "STG"):
        loop = uses.flow.loop_of(at)
        if loop is None or not _is_still(uses, at, each, loop.body):
            continue
        if each.op == "STS" and loop.body & barriers:
            continue
        place = each.operands[0]
        loads = _loads_summed(uses, at, each, loop.body)
        same = [one for one in loads if uses.flow.code.instructions[one].operands[1] == place]
        if same:
            stores.append(at)
            both |= {at, *same}
    return both, stores


def _is_still(uses: DefUse, at: int, each: Instruction, body: frozenset[int]) -> bool:
    """Whether no iteration moves the address of a store."""
    return not (uses.sources(at, operand(each.operands[0]).reads) & body)


def _loads_summed(uses: DefUse, at: int, each: Instruction, body: frozenset[int]) -> list[int]:
    """Return the loads that the number which is stored is a sum with."""
    first = operand(each.operands[-1]).first
    seen, found, work = {at}, list[int](), _made_of(uses, at, [first])
    while work and len(seen) < _FAR:
        one = work.pop()
        if one in seen or one not in body:
            continue
        seen.add(one)
        op = uses.flow.code.instructions[one].op
        if op in ("LDS", "LDG"):
            found.append(one)
        elif op in _ADDS:
            work += _made_of(uses, one, members(uses.flow.effects[one].reads & _REGISTERS))
    return found


def _made_of(uses: DefUse, at: int, registers: Iterable[int]) -> list[int]:
    """Return what wrote some registers that an instruction reads, each where it is one."""
    some = (uses.source(at, 1 << each) for each in registers if each >= 0)
    return [one for one in some if one is not None]
