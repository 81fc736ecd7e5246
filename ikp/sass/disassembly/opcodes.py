"""Classification of instructions by opcode into kinds of work: ``work_of`` returns a ``Work``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from enum import Enum

from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.values import Origin, definitions


class Work(Enum):
    """A kind of work. The values are its names in reports, in the order of their columns."""

    TENSOR = "tensor core"
    COPY = "async copy"  # between global and shared or tensor memory, with no register between
    LOAD = "load"  # from global memory
    STORE = "store"  # to global memory
    ATOMIC = "atomic"
    SHARED = "shared memory"
    TMEM = "tensor memory"
    LOCAL = "spill"  # local memory: registers that ran out, or arrays
    SIGNAL = "signal"  # commits and arrivals, for which waits wait
    WAIT = "wait"
    BARRIER = "barrier"
    FENCE = "fence"
    SHUFFLE = "shuffle"
    FLOAT = "float"
    INTEGER = "integer"  # addresses, counters, predicates, moves
    CONTROL = "control"
    OTHER = "other"  # opcodes that this table doesn't know
    NOTHING = "nothing"  # NOPs, and padding under a guard that never holds


IDLE = frozenset((Work.INTEGER, Work.CONTROL, Work.NOTHING))
"""Kinds that no user would call the work of a range."""

_TENSOR = re.compile(r"([BDFHIOQ]|F8|QF8)?G?MMA|UTC\w*MMA(_?\w*)?")
_BY_MODIFIER = {
    ("WARPGROUP", "DEPBAR"): Work.WAIT,
    ("WARPGROUP", "ARRIVE"): Work.SIGNAL,
    ("SYNCS", "PHASECHK"): Work.WAIT,
    ("SYNCS", "ARRIVE"): Work.SIGNAL,
    ("SYNCS", "EXCH"): Work.SIGNAL,
    ("SYNCS", "CCTL"): Work.FENCE,
}
_OPCODES = {
    Work.COPY: "LDGSTS UTMALDG UTMASTG UTMAREDG UTMAPF UBLKCP UBLKRED UBLKPF UTCCP UTCSHIFT",
    Work.LOAD: "LD LDG LDGMC",
    Work.STORE: "ST STG",
    Work.ATOMIC: "ATOM ATOMG ATOMS RED REDG REDAS UTCATOMSWS",
    Work.SHARED: "LDS LDSM STS STSM STAS",
    Work.TMEM: "LDTM STTM LDT STT",
    Work.LOCAL: "LDL STL",
    Work.SIGNAL: "LDGDEPBAR ARRIVES UTCBAR UTMACMDFLUSH SYNCS UGETNEXTWORKID",
    Work.WAIT: "DEPBAR NANOSLEEP ACQBULK UCGABAR_WAIT",
    Work.BARRIER: "BAR WARPSYNC UCGABAR_ARV WARPGROUP WARPGROUPSET PREEXIT",
    Work.FENCE: "MEMBAR FENCE ERRBAR CGAERRBAR CCTL CCTLL CCTLT UTMACCTL",
    Work.SHUFFLE: "SHFL VOTE VOTEU MATCH REDUX CREDUX ELECT MOVM",
    Work.FLOAT: "FADD FADD2 FADD32I FCHK FFMA FFMA2 FFMA32I FHADD FHFMA FMNMX FMNMX3 FMUL FMUL2 "
    "FMUL32I FRND FSEL FSET FSETP FSWZADD MUFU HADD2 HADD2_32I HFMA2 HFMA2_32I HMNMX2 HMUL2 "
    "HMUL2_32I HSET2 HSETP2 DADD DFMA DMUL DSETP F2F F2FP F2I F2IP I2F I2FP I2IP UF2FP UFADD UFFMA "
    "UFMNMX UFMUL UFRND UFSEL UFSET UFSETP",
    Work.CONTROL: "BRA BRX BRXU JMP JMX JMXU CALL RET EXIT KILL BREAK BSSY BSYNC BMOV BPT RTT "
    "ENDCOLLECTIVE YIELD USETMAXREG UVIRTCOUNT",
    Work.INTEGER: "BMSK BREV FLO I2I IABS IADD IADD3 IADD32I IDP IDP4A IMAD IMADSP IMNMX IMUL "
    "IMUL32I ISCADD ISETP ISET LDC LDCU LEA LOP LOP3 LOP32I MOV MOV32I P2R PLOP3 POPC PRMT PSETP "
    "QSPC R2B R2P R2UR S2R S2UR CS2R CS2UR SEL SGXT SHF SHL SHR UBMSK UBREV UCLEA UFLO UI2F "
    "UIABS UIADD3 UIMAD UIMNMX UISETP ULDC ULEA ULOP ULOP3 ULOP32I UMOV UP2UR UPLOP3 UPOPC UPRMT "
    "UPSETP UR2UP USEL USETP USGXT USHF USHL USHR VABSDIFF VABSDIFF4 VHMNMX VIADD VIADDMNMX VIMNMX "
    "VIMNMX3 UVIADD UVIMNMX B2R GETLMEMBASE LEPC PMTRIG SETCTAID",
}
_WORK = {op: work for work, ops in _OPCODES.items() for op in ops.split()}


def work_of(instruction: Instruction) -> Work:
    """Return the kind of work that an instruction does."""
    if instruction.never_runs:
        return Work.NOTHING
    op = instruction.op
    if _TENSOR.fullmatch(op):
        return Work.TENSOR
    for modifier in instruction.opcode.split(".")[1:]:
        if (op, modifier) in _BY_MODIFIER:
            return _BY_MODIFIER[op, modifier]
    work = _WORK.get(op, Work.OTHER)
    if work is Work.FLOAT and _is_constant(instruction):
        return Work.INTEGER
    return work


def count(instructions: Iterable[Instruction]) -> Counter[Work]:
    """Return how many instructions do each kind of work."""
    return Counter(map(work_of, instructions))


def opcodes(instructions: Iterable[Instruction], most: int = 6) -> str:
    """Return ``"8 LDGSTS, 2 LDG"``, the most frequent first."""
    counts = Counter(instruction.op for instruction in instructions)
    rest = sum(n for _, n in counts.most_common()[most:])
    shown = [f"{n} {op}" for op, n in counts.most_common(most)]
    return ", ".join([*shown, f"{rest} others"] if rest else shown)


def _is_constant(instruction: Instruction) -> bool:
    """Whether a float instruction only sets a register to a constant, as ptxas likes to do."""
    made = definitions(instruction).values()
    return bool(made) and all(d.origin is Origin.CONSTANT for d in made)
