"""What results are used for: which instructions serve results, addresses, conditions; how loaded
values end.

Each instruction serves what the instructions serve that read its result: a number that is stored,
an address, a jump. What serves results is arithmetic, a conversion, or a move. Of a load, all
numbers may be only compared, or narrowed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ikp.inspection._work import Often
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.disassembly.effects import R, bits_of, members, operand, span
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.opcodes import Work, unit_of, work_of

RESULTS, ADDRESSES, CONDITIONS = "results", "addresses", "conditions"
_MEMORY: Final = (Work.LOAD, Work.STORE, Work.ATOMIC, Work.SHARED, Work.LOCAL, Work.COPY, Work.TMEM)
_CONTROL: Final = (Work.CONTROL, Work.WAIT, Work.BARRIER, Work.FENCE, Work.SIGNAL)
_ENDS: Final = frozenset((*_MEMORY, *_CONTROL, Work.TENSOR))
"""Kinds of work that others serve, and that serve nothing else."""
_OWN: Final = span(R.first, R.count)
_CONVERTS: Final = frozenset(("F2F", "F2FP", "F2I", "I2F", "I2FP", "I2I", "FRND", "PRMT"))
_MOVES: Final = frozenset(("MOV", "UMOV", "SEL", "FSEL", "CS2R", "R2UR", "S2R", "S2UR"))
_DIGITS: Final = 2
_COMPARING: Final = (
    "FSETP ISETP HSETP2 DSETP PSETP PLOP3 FSEL SEL FSET ISET FMNMX FMNMX3 IMNMX VIMNMX VIMNMX3 "
    "HMNMX2 P2R R2P VIADDMNMX FCHK"
)
_COMPARES_AND_SELECTS: Final = frozenset(_COMPARING.split())
_VOTES: Final = frozenset(("VOTE", "VOTEU", "MATCH", "REDUX", "CREDUX"))
_INTEGER_MOVES: Final = ("IMAD.MOV", "IMAD.SHL", "IMAD.IADD")


@dataclass(frozen=True)
class Serves:
    """What the instructions of one kernel serve.

    Args:
        uses: its definitions and uses.
    """

    uses: DefUse

    def of(self, how_often: Mapping[int, Often]) -> dict[str, float]:
        """Return how many of some instructions serve what."""
        counts: defaultdict[str, float] = defaultdict(float)
        for at, often in how_often.items():
            if unit_of(self.uses.flow.code.instructions[at]):
                counts[self._kind(at)] += often.weight
        return {kind: round(count, _DIGITS) for kind, count in sorted(counts.items()) if count}

    def part(self, at: int) -> str:
        """Return what an instruction does for its line, as a key of ``LineFacts.parts``.

        Its unit, but of integer instructions whether they compare and select, move, or make
        addresses; reads of clocks and votes are of their own kinds.
        """
        each = self.uses.flow.code.instructions[at]
        unit = unit_of(each)
        if each.op in _COMPARES_AND_SELECTS:
            return "compare"
        if each.op in ("CS2R", "S2UR", "S2R") and "CLOCK" in each.text:
            return "clock"
        if each.op in _VOTES:
            return "vote"
        if unit in ("integer", "product", "uniform") or each.opcode.startswith(_INTEGER_MOVES):
            kind = self._kind(at)
            return kind if kind in (ADDRESSES, CONDITIONS, "moves", "conversions") else "integer"
        return ".".join(unit.split(".")[:2])

    @property
    def results(self) -> int:
        """The instructions that serve results, as bits, and the stores and products themselves."""
        code = self.uses.flow.code.instructions
        ends = (at for at, each in enumerate(code) if work_of(each) in (*_MEMORY, Work.TENSOR))
        return self._served[RESULTS] | bits_of(ends)

    def _kind(self, at: int) -> str:
        each = self.uses.flow.code.instructions[at]
        work = work_of(each)
        if work is Work.TENSOR:
            return "products"
        if work in _MEMORY:
            return "memory"
        if work in _CONTROL:
            return CONDITIONS
        bit, served = 1 << at, self._served
        if not served[RESULTS] & bit:
            for what in (ADDRESSES, CONDITIONS):
                if served[what] & bit:
                    return what
        return _kind_of_result(each)

    @cached_property
    def _served(self) -> dict[str, int]:
        """The instructions that serve each of results, addresses and conditions, as bits."""
        asked = dict.fromkeys((RESULTS, ADDRESSES, CONDITIONS), 0)
        for at, each in enumerate(self.uses.flow.code.instructions):
            if at not in self.uses.ours:
                for what, registers in self._asks(at, each):
                    asked[what] |= self.uses.source_bits(at, registers)
        for what, found in asked.items():
            asked[what] = self._made_for(found)
        return asked

    def _made_for(self, found: int) -> int:
        """Return some instructions with all that make what these read, as bits."""
        new = found
        while new:
            more = 0
            for at in members(new):
                each = self.uses.flow.code.instructions[at]
                if work_of(each) not in _ENDS:
                    own = self.uses.flow.effects[at].reads & ~_guard(each)
                    more |= self.uses.source_bits(at, own)
            new = more & ~found
            found |= new
        return found

    def _asks(self, at: int, each: Instruction) -> Iterator[tuple[str, int]]:
        """Yield the registers that an instruction itself asks for, and what they serve."""
        work, reads, guard = work_of(each), self.uses.flow.effects[at].reads, _guard(each)
        if guard:
            yield CONDITIONS, guard
        if work in _CONTROL:
            yield CONDITIONS, reads
        elif work in _ENDS:
            place = reads & ~_OWN & ~guard
            for text in each.operands:
                place |= operand(text).reads if "[" in text else 0
            yield ADDRESSES, place
            yield RESULTS, reads & ~place & ~guard


def _guard(each: Instruction) -> int:
    return _bit(each.guard) if each.guard else 0


def _bit(guard: str) -> int:
    first = operand(guard).first
    return 1 << first if first >= 0 else 0


def _kind_of_result(each: Instruction) -> str:
    if each.op in _CONVERTS or each.opcode.startswith("HADD2.F32"):
        return "conversions"
    moves = each.op in _MOVES or each.opcode.startswith("IMAD.MOV")
    return "moves" if moves else "arithmetic"


_MOST_LOADS: Final = 16
"""Loads of a line that are followed."""
_FAR: Final = 4096
"""Instructions behind a load after which its uses are not followed on."""
_REGISTERS: Final = span(R.first, R.count)
_COMPARES: Final = ("ISETP", "FSETP", "DSETP")


@dataclass(frozen=True)
class Uses:
    """The uses of what the loads of one kernel bring."""

    flow: Flow
    ours: Collection[int] = ()

    def of(self, ats: Sequence[int]) -> str:
        """Return how the loads of one line are used, if they all are the same; "" of others."""
        loads = [at for at in ats if self.flow.code.instructions[at].op == "LDG"]
        if not loads or len(loads) < len(ats):
            return ""
        found = {self._of_one(at) for at in loads[:_MOST_LOADS]}
        return found.pop() if len(found) == 1 else ""

    def _of_one(self, at: int) -> str:
        if at not in self._known:
            self._known[at] = self._use(at)
        return self._known[at]

    @cached_property
    def _known(self) -> dict[int, str]:
        return {}

    def _use(self, load: int) -> str:
        kinds = set[str]()
        written = self.flow.effects[load].writes & _REGISTERS
        for register in members(written):
            for at in self._readers(load, 1 << register):
                kinds.add(_kind(self.flow.code.instructions[at]))
                if "" in kinds or len(kinds) > _KINDS:
                    return ""
        if kinds == {"compared.8", "compared.4"}:
            return "compared.8"  # the low half first, then both
        return kinds.pop() if len(kinds) == 1 else ""

    def _readers(self, load: int, register: int) -> list[int]:
        """Return the instructions that may read a register as a load has left it.

        What is written under a guard, and read under the same one, is no more what was loaded.
        """
        code, effects, found = self.flow.code.instructions, self.flow.effects, dict[int, None]()
        nothing = frozenset[str]()  # guards under which the register was written since
        seen, work = (
            set[tuple[int, frozenset[str]]](),
            [(at, nothing) for at in self.flow.after(load)],
        )
        while work and len(seen) < _FAR:
            at, written = work.pop()
            if (at, written) in seen:
                continue
            seen.add((at, written))
            if at not in self.ours:
                if code[at].guard not in written and self._needs(at, register):
                    found[at] = None
                if effects[at].kills & register:
                    continue
                written = self._written(at, register, written)
            work += [(one, written) for one in self.flow.after(at)]
        return [*found]

    def _written(self, at: int, register: int, before: frozenset[str]) -> frozenset[str]:
        """Return under which guards a register was written, behind an instruction."""
        each, writes = self.flow.code.instructions[at], self.flow.effects[at].writes
        kept = frozenset(one for one in before if not writes & _bit(one))
        return kept | {each.guard} if writes & register and each.guard else kept

    def _needs(self, at: int, register: int) -> bool:
        """Whether an instruction reads a register: not to put new bytes beside its old ones."""
        effects = self.flow.effects[at]
        merges = self.flow.code.instructions[at].op == "PRMT" and effects.writes & register
        return bool(effects.reads & register) and not merges


_KINDS: Final = 2


def _kind(each: Instruction) -> str:
    """Return what an instruction does with a loaded number; "" where it needs all of its bits."""
    if each.op in _COMPARES and any(_is_constant(one) for one in each.operands[2:4]):
        return "compared.8" if ".EX" in each.opcode or each.op == "DSETP" else "compared.4"
    if each.op == "F2F":
        parts = each.opcode.split(".")
        if parts[1:3] == ["F32", "F64"]:
            return "narrowed.8"
        return "narrowed.4" if parts[1:3] in (["F16", "F32"], ["BF16", "F32"]) else ""
    if each.opcode.startswith(("F2FP.F16.F32", "F2FP.BF16.F32", "F2FP.SATFINITE.E")):
        return "narrowed.4"
    return ""


def _is_constant(operand: str) -> bool:
    return operand == "RZ" or operand.startswith(("0x", "c[", "UR", "-0x")) or operand[:1].isdigit()
