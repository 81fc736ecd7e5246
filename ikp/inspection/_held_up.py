"""Instructions that hold a warp up by what they are: calls, sleeps, clocks, votes, swaps, split
warps, ordered or lone loads, unpipelined products.

A function that is not inlined saves registers, and nothing moves across its call. A load that may
be of a store's address stays behind the store, though the compiler unrolled the loop around both:
copies of one iteration then wait one after another.

An iteration of matrix products copies a slice of the operands, waits for the one before, lets all
warps meet, and multiplies. Where the slice is as deep as one instruction, all of that is done for
each instruction: a deeper slice does it once for several. Where an iteration loads into registers,
and uses what it loads before its next product, nothing is under way meanwhile.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from ikp.sass.control_flow.flow import Flow, Loop
from ikp.sass.control_flow.graph import reached
from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.dataflow.lane_state import LANES
from ikp.sass.dataflow.lane_values import LaneValues
from ikp.sass.disassembly.effects import R, operand, span
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.opcodes import Work, lane_bytes, work_of

_REGISTERS: Final = span(R.first, R.count)
_OF_COMPILER: Final = re.compile(r"__internal_|__cuda_|__nv_|__assert|vprintf|malloc|free")
"""Functions that no source line inlines: slow paths of divisions and roots, checks, prints."""
_ORDERS: Final = ("BAR", "MEMBAR", "ATOM", "ATOMG", "RED", "REDG", "CALL", "FENCE", "ERRBAR")
"""Instructions that loads may not pass, of any address."""
_BRINGS: Final = ("LDG", "LD", "LDS", "LDL", "LDSM", "SHFL")
_LEAST_COPIES: Final = 2
"""Groups of loads behind stores in one block of code, from which on it is an unrolled loop's."""


def own_calls(flow: Flow) -> list[int]:
    """Return the calls of functions of the source."""
    code = flow.code
    return [at for at in code.of("CALL") if _is_own(code.instructions[at])]


def _is_own(call: Instruction) -> bool:
    return any(not _OF_COMPILER.search(name) for name in call.targets)


def sleeps(flow: Flow) -> list[int]:
    """Return the sleeps (``nanosleep``) in loops."""
    return [at for at in flow.code.of("NANOSLEEP") if flow.loop_of(at) is not None]


def split_warps(flow: Flow, values: LaneValues, ours: Collection[int] = ()) -> list[int]:
    """Return the instructions that nearly all warps execute with half of their lanes or fewer.

    By conditions on the thread's number, whose lanes are known. One lane alone is another matter:
    it does what the others need not.
    """
    found = list[int]()
    for number in flow.graph.order:
        comes = values.comes(number)
        if comes is None or not comes.any():
            continue
        lanes = comes.reshape(-1, LANES).sum(axis=1)
        some = lanes[lanes > 0]
        if len(some) >= _NEARLY_ALL * len(lanes) and some.min() > 1 and some.max() <= LANES / 2:
            block = flow.graph.blocks[number]
            found += [at for at in range(block.first, block.end) if at not in ours]
    return found


_NEARLY_ALL: Final = 0.9


def shared_swaps(flow: Flow, ours: Collection[int] = ()) -> list[int]:
    """Return the loops of a load and a compare-and-swap on shared memory, whole.

    A compiler makes them of atomics that shared memory has no instruction for: sums of floats and
    doubles. Each goes round once for each lane that has the same address.
    """
    found = set[int]()
    for at in flow.code.of("ATOMS"):
        loop = flow.loop_of(at)
        if ".CAS" in flow.code.instructions[at].opcode and loop is not None:
            found |= loop.body - {*ours} if len(loop.body) <= _MOST_OF_A_SWAP else {at}
    return sorted(found)


_MOST_OF_A_SWAP: Final = 24
"""Instructions of a loop above which it does more than to swap."""


def clock_reads(uses: DefUse) -> list[int]:
    """Return the reads of a clock in loops, and the integer arithmetic with what they read."""
    flow = uses.flow
    code = flow.code.instructions
    found = {
        at
        for at, each in uses.each("CS2R", "S2UR", "S2R")
        if _CLOCK.search(each.text) and flow.loop_of(at) is not None
    }
    work = [*found]
    while work:
        for user in uses.users(work.pop()) - found:
            if work_of(code[user]) is Work.INTEGER and flow.loop_of(user) is not None:
                found.add(user)
                work.append(user)
    return sorted(found)


_CLOCK: Final = re.compile(r"SR_(?:CLOCK|GLOBALTIMER)")


def block_votes(uses: DefUse) -> list[int]:
    """Return the barriers in loops that ask all threads of a block what no data decides.

    Each thread knows the answer from its number and the launch's sizes.
    """
    flow = uses.flow
    some = [at for at, each in uses.each("BAR") if ".RED" in each.opcode]
    return [at for at in some if flow.loop_of(at) is not None and not _by_data(uses, at)]


def _by_data(uses: DefUse, at: int) -> bool:
    """Whether what an instruction reads is made of what is loaded, or comes from other threads."""
    code = uses.flow.code.instructions
    seen, work = set[int](), [at]
    while work:
        for source in uses.sources(work.pop()) - seen:
            seen.add(source)
            if work_of(code[source]) not in (Work.INTEGER, Work.CONTROL):
                return True
            work.append(source)
    return False


def copies_ahead(flow: Flow) -> float | None:
    """Return the iterations whose copies are under way while a loop waits for its own, the fewest.

    Of copies by lanes (``cp.async``): groups that a wait leaves under way, over those that an
    iteration makes. None where no loop copies ahead.
    """
    code, found = flow.code, list[float]()
    groups = code.of("LDGDEPBAR")
    for at in code.of("DEPBAR"):
        loop = flow.loop_of(at)
        made = sum(one in loop.body for one in groups) if loop is not None else 0
        left = code.instructions[at].operands[-1:]
        if made and left and left[0].startswith("0x"):
            found.append(int(left[0], 16) / made)
    return min(found, default=None)


@dataclass(frozen=True)
class BehindStores:
    """The loads of one kernel behind stores that may be to their address.

    Args:
        uses: its definitions and uses.
        ours: the instructions of records.
    """

    uses: DefUse
    ours: Collection[int] = ()

    def loads(self) -> list[int]:
        """Return the loads in unrolled loops that only an earlier store holds back."""
        flow, found = self.uses.flow, list[int]()
        for number in flow.graph.order:
            block = flow.graph.blocks[number]
            inside = [at for at in range(block.first, block.end) if at not in self.ours]
            if inside and flow.loop_of(inside[0]) is not None:
                found += self._of_block(inside)
        return found

    def _of_block(self, inside: Sequence[int]) -> list[int]:
        """Return such loads of one block of code; none where its stores hold a single group."""
        code, groups, stored = self.uses.flow.code.instructions, list[list[int]](), False
        some, here = set(inside), bool(inside)
        for at in inside:
            each = code[at]
            if each.op in _ORDERS:
                return []
            if each.op == "STG":
                stored = here = True
            elif stored and _is_plain(each) and not self._needs_load(at, some):
                if here:
                    groups.append([])
                groups[-1].append(at)
                here = False
        return [*chain.from_iterable(groups)] if len(groups) >= _LEAST_COPIES else []

    def _needs_load(self, at: int, some: set[int]) -> bool:
        """Whether a load's address is made of what another load of its block brings."""
        code = self.uses.flow.code.instructions
        place = next((one for one in code[at].operands if "[" in one), "")

        def earlier(one: int, registers: int = _REGISTERS) -> list[int]:
            sources = self.uses.sources(one, registers) & some
            return [each for each in sources if each < one and code[one].op not in _BRINGS]

        address = {one for one in self.uses.sources(at, operand(place).reads) & some if one < at}
        return any(code[one].op in _BRINGS for one in reached(address, earlier))


def _is_plain(each: Instruction) -> bool:
    """Whether a load could move: it is neither volatile nor known to be of constant memory."""
    return each.op == "LDG" and ".STRONG" not in each.opcode and ".CONSTANT" not in each.opcode


def lone_loads(uses: DefUse, chasing: Collection[int]) -> list[int]:
    """Return the loads that each iteration of a loop waits for, and that it makes one of.

    Loads of several iterations could be under way at once: none decides where the next one is, or
    whether it is made, and no store, atomic or barrier lies between.

    Args:
        uses: definitions and uses of the kernel's registers.
        chasing: loads whose address their last result decides.
    """
    flow, found = uses.flow, list[int]()
    for loop in flow.loops:
        own = [at for at in loop.body if at not in uses.ours]
        brings = [at for at in own if flow.code.instructions[at].op in (*_BRINGS, *_ORDERS, *_PUTS)]
        inner = any(flow.loop_of(at) != loop for at in own)
        if inner or len(brings) != 1 or brings[0] in chasing:
            continue
        (load,) = brings
        each = flow.code.instructions[load]
        if each.op == "LDG" and ".STRONG" not in each.opcode and _is_used_here(uses, loop, load):
            found.append(load)
    return found


_PUTS: Final = ("STG", "ST", "STS", "STL", "LDGSTS", "ATOMS", "UBLKCP", "UTMALDG")


def _is_used_here(uses: DefUse, loop: Loop, load: int) -> bool:
    """Whether an iteration uses what it loads, and no jump depends on that."""
    users = {at for at in uses.users(load) if at in loop.body}
    seen = reached(users, lambda at: [each for each in uses.users(at) if each in loop.body])
    jumps = any(uses.flow.code.instructions[at].op in _JUMPS for at in seen)
    return any(at > load for at in users) and not jumps


_JUMPS: Final = ("BRA", "BRX", "EXIT", "BREAK")


_MEETS: Final = ("BAR", "SYNCS", "DEPBAR")
"""Instructions by which an iteration waits for other warps, or for its copies."""


def single_steps(uses: DefUse) -> list[int]:
    """Return the products of loops with waits whose sum gets no second product in an iteration."""
    flow, by_sum = uses.flow, defaultdict[tuple[Loop, int], list[int]](list)
    for loop, products in _products(uses).items():
        for at in products:
            by_sum[loop, operand(flow.code.instructions[at].operands[0]).first].append(at)
    alone = ((loop, ats[0]) for (loop, _), ats in by_sum.items() if len(ats) == 1)
    return [at for loop, at in alone if _waits(flow, loop)]


def unpipelined(uses: DefUse) -> list[int]:
    """Return the loads of loops with products that are used before the next product is made.

    None where a kernel copies asynchronously in such loops, or where most loads are used later.
    """
    found, code = list[int](), uses.flow.code.instructions
    every = 0
    for loop, products in _products(uses).items():
        own = uses.own(loop)
        if any(code[at].op in _COPIES for at in own):
            return []
        loads = [at for at in own if code[at].op == "LDG" and lane_bytes(code[at].opcode) >= _WIDE]
        every += len(loads)
        found += [at for at in loads if _is_used_before(products, uses, loop, at)]
    return found if len(found) >= _MOST * max(every, 1) else []


def _is_used_before(products: list[int], uses: DefUse, loop: Loop, load: int) -> bool:
    """Return whether an iteration uses what it loads before it makes its next product."""
    used = min((one for one in uses.users(load) if one > load and one in loop.body), default=load)
    return used > load and not any(load < one < used for one in products)


_COPIES: Final = ("LDGSTS", "UTMALDG", "UBLKCP")
_WIDE: Final = 8
"""Bytes of a lane from which on a load is one of operands."""
_MOST: Final = 0.5


def _products(uses: DefUse) -> dict[Loop, list[int]]:
    """Return the products of each loop that has some of its own."""
    found = defaultdict[Loop, list[int]](list)
    for at, each in enumerate(uses.flow.code.instructions):
        loop = uses.flow.loop_of(at)
        if loop is not None and work_of(each) is Work.TENSOR and at not in uses.ours:
            found[loop].append(at)
    return found


def _waits(flow: Flow, loop: Loop) -> bool:
    return any(flow.loop_of(at) == loop for at in flow.code.of(*_MEETS))
