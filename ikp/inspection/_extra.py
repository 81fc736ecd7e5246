"""Extra work: instructions that serve no result, or that fewer instructions could do, by kind.

Each kind is a set of instructions, by the definitions and uses of registers: what only feeds a
check, a product whose sum is made apart from it, a factor that no iteration changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.excess_facts import ExtraWork
from ikp.inspection._chains import Serial, summed_in_memory, unpacked, written_back
from ikp.inspection._cheaper import (
    TimesZero,
    compared,
    converted,
    guarded,
    in_pieces,
    lane_sums,
    scaled_sums,
)
from ikp.inspection._held_up import (
    BehindStores,
    block_votes,
    clock_reads,
    lone_loads,
    own_calls,
    shared_swaps,
    single_steps,
    sleeps,
    split_warps,
    unpipelined,
)
from ikp.inspection._operands import promoted, reworked
from ikp.inspection._roundabout import by_logarithms, compensated, to_and_fro
from ikp.inspection._serves import Serves
from ikp.inspection._unchanged import invariant, uniform
from ikp.inspection._work import Often, chasing_loads, line_of
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.dataflow.lane_state import LANE, LANES
from ikp.sass.dataflow.lane_values import FLOATS, LaneValues
from ikp.sass.disassembly.effects import R, operand, span
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.values import ValueOrigin, definitions

_SUMS: Final = {"FMUL": "FADD", "HMUL2": "HADD2", "DMUL": "DADD"}
_REGISTERS: Final = span(R.first, R.count)
_DIGITS: Final = 3
_PRODUCTS: Final = ("HMMA", "HGMMA", "QGMMA", "IMMA", "IGMMA")
_PACKS: Final = ("F2FP", "PRMT", "MOV", "HADD2", "IMAD", "SHF", "SHL", "LOP3", "F2F")
_LOADS: Final = ("LDG", "LDS", "LDSM", "LD")
_ONES: Final = frozenset((0x3C003C00, 0x3F803F80, 0x3F800000, 0x38383838))
"""Ones, as pairs of float16 and bfloat16 numbers, as FP32 and as four float8 numbers."""
_PHILOX: Final = ("-0x2daee0ad", "0xd2511f53", "-0x326172a9", "0xcd9e8d57")
"""The factors of a round of Philox, with and without a sign."""
_ROUND: Final = ("LOP3", "IADD3", "IMAD", "MOV", "VIADD")
_WORDS: Final = 4
"""Words that a Philox evaluation makes."""
_HIGH_OF_ALL: Final = 19.0
"""High halves of products in one evaluation of ten rounds: 18 for one word, 20 for four."""
_EFFECTS: Final = (
    "ST STG STS STL STSM ATOM ATOMG ATOMS RED REDG LDGSTS BAR CALL EXIT BRA BRX RET SYNCS MEMBAR "
    "WARPSYNC BSYNC DEPBAR LDGDEPBAR ERRBAR CCTL UTMALDG UTMASTG HGMMA WARPGROUP NANOSLEEP BPT"
)
_ACTS: Final = frozenset(_EFFECTS.split())
"""Instructions that do something beside writing registers."""


@dataclass(frozen=True)
class Extra:
    """The extra work of one kernel.

    Args:
        flow: the kernel.
        values: its registers, in some warps of many blocks.
        sectors: the sectors of an access, of one block.
        fails: calls that report a failed check.
        ours: the instructions of records.
    """

    flow: Flow
    values: LaneValues
    sectors: Callable[[int], NDArray[np.int64]]
    fails: frozenset[int] = frozenset()
    ours: Collection[int] = ()

    def of(self, how_often: Mapping[int, Often]) -> dict[str, ExtraWork]:
        """Return the extra work among some instructions, by kind."""
        found = {}
        for kind, (some, parts) in self._kinds.items():
            ats = [at for at in some if at in how_often]
            count = sum(how_often[at].weight for at in ats)
            if count:
                number = sum(how_often[at].weight for at in parts if at in how_often)
                size, things = round(float(count), _DIGITS), round(float(number), _DIGITS)
                found[kind] = ExtraWork(size, things, line_of(self.flow, ats))
        if chain := self._serial.chain(how_often):
            found["chain"] = chain
        return found

    @cached_property
    def _serial(self) -> Serial:
        return Serial(self.uses)

    @cached_property
    def uses(self) -> DefUse:
        """The definitions and uses of its registers."""
        return DefUse(self.flow, self.ours)

    @cached_property
    def serves(self) -> Serves:
        """What its instructions serve."""
        return Serves(self.uses)

    @cached_property
    def _kinds(self) -> dict[str, tuple[frozenset[int], frozenset[int]]]:
        """The instructions of each kind, and those of them that count what they are for."""
        kinds: dict[str, Callable[[], tuple[Iterable[int], Iterable[int]]]] = {
            "unfused": self._unfused,
            "scaled": self._scaled,
            "ones": self._ones,
            "checks": self._checks,
            "random": self._random,
            "unpacked": lambda: unpacked(self.uses, self.serves.results),
            "in memory": lambda: summed_in_memory(self.uses),
            "alike": self._alike,
            "written back": lambda: written_back(self.uses, self.sectors),
            "search": self._serial.searches,
            "private": self._private,
            "uncached": self._uncached,
            "called": lambda: twice(own_calls(self.flow)),
            "asleep": lambda: twice(sleeps(self.flow)),
            "behind stores": lambda: twice(BehindStores(self.uses, self.ours).loads()),
            "lone": lambda: twice(lone_loads(self.uses, chasing_loads(self.uses))),
            "compared": lambda: compared(self.uses),
            "scaled sums": lambda: scaled_sums(self.uses),
            "pieces": lambda: in_pieces(self.uses),
            "converted": lambda: converted(self.uses),
            "guarded": lambda: guarded(self.uses),
            "lane sums": lambda: twice(lane_sums(self.uses)),
            "promoted": lambda: twice(promoted(self.uses)),
            "single steps": lambda: twice(single_steps(self.uses)),
            "unpipelined": lambda: twice(unpipelined(self.uses)),
            "split": lambda: twice(split_warps(self.flow, self.values, self.ours)),
            "swaps": lambda: twice(shared_swaps(self.flow, self.ours)),
            "clocks": lambda: twice(clock_reads(self.uses)),
            "reworked": lambda: reworked(self.uses),
            "logarithms": lambda: by_logarithms(self.uses),
            "to and fro": lambda: to_and_fro(self.uses),
            "compensated": lambda: compensated(self.uses),
            "block votes": lambda: twice(block_votes(self.uses)),
            "invariant": lambda: invariant(self.uses),
            "uniform": lambda: uniform(self.uses),
            "times zero": lambda: twice(
                TimesZero(self.uses, self.values.launch.parameters.get).loads()
            ),
        }
        made = {kind: find() for kind, find in kinds.items()}
        return {kind: (frozenset(a), frozenset(b)) for kind, (a, b) in made.items()}

    def _unfused(self) -> tuple[list[int], list[int]]:
        """Return sums of a product that nothing else uses: one instruction could make both."""
        found = []
        for at, each in self.uses.each(*_SUMS.values()):
            if each.guard:
                continue
            for text in each.operands[1:3]:
                made = self._made_by(at, text)
                if made is not None and self._fuses(made, at, text):
                    found.append(at)
                    break
        return found, found

    def _made_by(self, at: int, text: str) -> int | None:
        """Return the one instruction that wrote an operand; None where it is none, or several."""
        first = operand(text).first
        return self.uses.source(at, 1 << first) if first >= 0 else None

    def _fuses(self, product: int, at: int, text: str) -> bool:
        each = self.flow.code.instructions[product]
        fits = _SUMS.get(each.op) == self.flow.code.instructions[at].op
        plain = not each.guard and "|" not in text and ".SAT" not in each.opcode
        near = self.flow.graph.block(product) == self.flow.graph.block(at)
        return fits and plain and near and self.uses.user_bits(product) == 1 << at

    def _scaled(self) -> tuple[set[int], list[int]]:
        """Return what multiplies loaded operands of products by a factor that no iteration changes.

        With it goes what makes 32-bit numbers of 16-bit ones for it, and back.
        """
        some = [at for at, each in self.uses.each("FMUL", "HMUL2") if self._scales(at, each)]
        beside = {other for at in some for other in (*self.uses.sources(at), *self.uses.users(at))}
        code = self.flow.code.instructions
        return {*some, *(at for at in beside if code[at].op in ("HADD2", "F2FP", "PRMT"))}, some

    def _scales(self, at: int, each: Instruction) -> bool:
        """Whether a multiplication scales what was loaded, for products alone, in a loop."""
        loop = self.flow.loop_of(at)
        if loop is None or each.guard:
            return False
        fixed = [self._is_fixed(at, text, loop.body) for text in each.operands[1:3]]
        return fixed.count(True) == 1 and self._is_operand(at) and self._is_loaded(at)

    def _is_fixed(self, at: int, text: str, body: frozenset[int]) -> bool:
        """Whether no iteration of a loop writes an operand."""
        first = operand(text.partition(".H")[0]).first
        return first < 0 or not (self.uses.sources(at, 1 << first) & body)

    def _is_operand(self, at: int) -> bool:
        """Whether a number goes to products, or to the shared memory of their operands, alone."""
        seen, work, reached = {at}, [at], False
        while work:
            for user in self.uses.users(work.pop()) - seen:
                seen.add(user)
                op = self.flow.code.instructions[user].op
                if op in _PACKS:
                    work.append(user)
                elif op in ("STS", "STSM", *_PRODUCTS):
                    reached = True
                else:
                    return False
        return reached and self._multiplies

    @cached_property
    def _multiplies(self) -> bool:
        return bool(self.flow.code.of(*_PRODUCTS))

    def _is_loaded(self, at: int) -> bool:
        """Whether a number comes from memory through conversions alone."""
        seen, work = {at}, [at]
        while work:
            for source in self.uses.sources(work.pop(), _REGISTERS) - seen:
                seen.add(source)
                op = self.flow.code.instructions[source].op
                if op in _LOADS:
                    return True
                if op in (*_PACKS, "I2F", "I2FP"):
                    work.append(source)
        return False

    def _ones(self) -> tuple[set[int], set[int]]:
        """Return products one of whose operands is a matrix of ones."""
        found = {
            at for at, each in self.uses.each("HMMA", "QMMA", "IMMA") if self._of_ones(at, each)
        }
        if not found and any(
            self._stores_ones(at, each) for at, each in self.uses.each("STS", "STSM")
        ):
            found = self._narrow_groups()
        return found, found

    def _narrow_groups(self) -> set[int]:
        """Return the warpgroups' products with few columns, where others have more."""
        shapes = {at: each.opcode.split(".")[1] for at, each in self.uses.each("HGMMA", "QGMMA")}
        narrow = {at for at, shape in shapes.items() if int(shape.split("x")[1]) <= _NARROW}
        return narrow if len(narrow) < len(shapes) else set()

    def _of_ones(self, at: int, each: Instruction) -> bool:
        return any(self._are_ones(at, text) for text in each.operands[1:3])

    def _are_ones(self, at: int, text: str) -> bool:
        """Whether all that may have written an operand's first register set it to ones."""
        first = operand(text).first
        if first < 0:
            return False
        some = self.uses.sources(at, 1 << first)
        return bool(some) and all(self._sets_ones(one) for one in some)

    def _sets_ones(self, at: int) -> bool:
        each = self.flow.code.instructions[at]
        made = definitions(each).values()
        return bool(made) and all(
            one.origin is ValueOrigin.CONSTANT and one.value in _ONES for one in made
        )

    def _stores_ones(self, at: int, each: Instruction) -> bool:
        return self._are_ones(at, each.operands[-1])

    def _checks(self) -> tuple[set[int], set[int]]:
        """Return the jumps to where failed checks are reported, and what these alone need."""
        jumps = set[int]()
        for at in self.fails:
            jumps |= self._jumps_to(self.flow.graph.block(at))
        return self._only_for(jumps), jumps

    def _jumps_to(self, block: int) -> set[int]:
        """Return the jumps that decide whether a block is come to."""
        graph, found, seen, work = self.flow.graph, set[int](), {block}, [block]
        while work:
            for before in graph.before[work.pop()]:
                if before in seen:
                    continue
                seen.add(before)
                first, end = graph.blocks[before].first, graph.blocks[before].end
                if len(graph.after[before]) > 1:
                    found.add(end - 1)
                else:
                    work += [before] if first == end or end - first < _REPORT else []
        return found

    def _only_for(self, some: set[int]) -> set[int]:
        """Return some instructions, with those that no others use."""
        found, work = set(some), list(some)
        while work:
            for source in self.uses.sources(work.pop()) - found:
                op = self.flow.code.instructions[source].op
                if op not in _ACTS and self.uses.users(source) <= found:
                    found.add(source)
                    work.append(source)
        return found

    def _random(self) -> tuple[set[int], list[int]]:
        """Return the rounds of Philox where at most half of the words that these make are used."""
        high = [at for at, each in self.uses.each("IMAD") if _is_round(each)]
        rounds = self._rounds(high)
        results = [
            at
            for at in sorted(rounds)
            if any(user not in rounds for user in self.uses.users(at))
            and self.flow.code.instructions[at].op in ("LOP3", "IMAD", "MOV")
        ]
        made = len([at for at in high if _is_high(self.flow.code.instructions[at])])
        evaluations = max(round(made / _HIGH_OF_ALL), 1)
        used = len(results) / evaluations
        return (rounds, results) if used <= _WORDS / 2 else (set(), [])

    def _rounds(self, products: list[int]) -> set[int]:
        """Return products of rounds, with what combines these."""
        found = set(products)
        for at in products:
            for user in self.uses.users(at):
                if self.flow.code.instructions[user].op in _ROUND:
                    found.add(user)
        return found

    def _alike(self) -> tuple[list[int], list[int]]:
        """Return the arithmetic of loops that all lanes of a warp do with the same numbers."""
        found = []
        for at, _ in self.uses.each(*sorted(FLOATS)):
            loop = self.flow.loop_of(at)
            if loop is None or not self._by_many(at):
                continue
            if not self.values.result(at, loop.header) & LANE:
                found.append(at)
        return found, found

    def _by_many(self, at: int) -> bool:
        """Whether half of a warp's lanes, or more, come to an instruction."""
        comes = self.values.comes(self.flow.graph.block(at))
        if comes is None or not comes.any():
            return False
        lanes = comes.reshape(-1, LANES).sum(axis=1)
        return bool(lanes[lanes > 0].mean() >= LANES / 2)

    def _uncached(self) -> tuple[list[int], list[int]]:
        """Return loads past L1 that wait for no other thread's number."""
        found = []
        for at, each in self.uses.each("LDG"):
            loop = self.flow.loop_of(at)
            waits = loop is not None and self._serial.decides(at, loop.body)
            if ".STRONG" in each.opcode and not waits:
                found.append(at)
        return found, found

    def _private(self) -> tuple[set[int], list[int]]:
        """Return accesses to shared memory where each thread loads only what it stored itself."""
        stores = [at for at, _ in self.uses.each("STS")]
        loads = [at for at, _ in self.uses.each("LDS")]
        others = [*self.uses.each("LDSM", "STSM", "ATOMS", "LDGSTS", "LD", "ST")]
        if others or not loads or not stores or self._multiplies_groups:
            return set(), []
        known = [own for at in loads if (own := self._stored_by(at, stores)) is not None]
        return ({*loads, *known}, loads) if len(known) == len(loads) else (set(), [])

    @cached_property
    def _multiplies_groups(self) -> bool:
        return bool(self.flow.code.of("HGMMA", "QGMMA", "IGMMA"))

    def _stored_by(self, load: int, stores: list[int]) -> int | None:
        """Return the store by which each thread stored what it loads; None where others may."""
        mine = self.values.address(load).bits
        if mine is None or self._is_moved_without(load, stores):
            return None
        for at in stores:
            theirs = self.values.address(at).bits
            same = theirs is not None and np.array_equal(mine, theirs)
            if same and len(np.unique(mine)) > LANES:
                return at
        return None

    def _is_moved_without(self, load: int, stores: list[int]) -> bool:
        """Whether a loop around a load moves its address, and has none of some stores."""
        around = (loop for loop in self.flow.loops if load in loop.body)
        return any(
            self.values.moves(load, loop.header) and not loop.body & {*stores} for loop in around
        )


_REPORT: Final = 64
"""Instructions of code that reports a failed check, at most."""
_NARROW: Final = 16
"""Columns of a product beside wider ones, up to which its operand may be ones alone."""


def twice(some: list[int]) -> tuple[list[int], list[int]]:
    """Return instructions that are counted one by one, as a kind and as what counts it."""
    return some, some


def _is_round(each: Instruction) -> bool:
    return any(one in _PHILOX for one in each.operands[2:3])


def _is_high(each: Instruction) -> bool:
    return each.opcode.startswith(("IMAD.HI", "IMAD.WIDE"))
