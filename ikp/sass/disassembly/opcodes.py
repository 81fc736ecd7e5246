"""Classification of instructions by opcode: kind of work, unit of an SM, landmarks of a region.

Landmarks say what a region of code does, such as MMAs, copies and waits.

A unit is a short text, which is a key of an instruction mix (``unit_of``). It is the unit of an SM
that executes an instruction, and what an access moves. Accesses to memory have three parts: what
they do, the memory space, and the bytes of each lane, as in ``"load.global.16"``. The others:

- ``"tensor.2"`` and ``"tensor.group.2"``: products of a warp, and of a warpgroup, of numbers of so
  many bytes;
- ``"fma"`` (FP32), ``"half"`` (two numbers of 16 bits), ``"fp64"``, ``"xu"`` (transcendental
  functions), ``"convert"``, ``"convert.64"``, ``"integer"``, ``"product"`` (of integers);
- ``"divide"`` and ``"call"``, which mark divisions and calls of functions;
- ``"copy.bulk"`` and ``"tensor memory"``: bulk copies, and accesses to tensor memory;
- ``"shuffle"``, ``"branch"``, ``"barrier"``, ``"wait"``, ``"fence"``, ``"fence.gpu"`` (whose scope
  is the device, or more), ``"uniform"``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from enum import Enum
from functools import cache

from ikp.sass.disassembly.listing import Instruction, once
from ikp.sass.disassembly.values import ValueOrigin, definitions


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

_MMA = r"(?:[BDFHIOQ]|F8|QF8)?G?MMA|UTC\w*MMA(?:_?\w*)?"
_TENSOR = re.compile(_MMA)
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


@once
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
    return bool(made) and all(d.origin is ValueOrigin.CONSTANT for d in made)


class Landmark(Enum):
    """The kind of a landmark instruction."""

    PRODUCT = "product"  # of matrices: an MMA
    PRODUCT_WAIT = "product wait"
    COPY = "copy"  # cp.async: from global to shared memory
    COPY_WAIT = "copy wait"
    TMA_LOAD = "TMA load"
    TMA_STORE = "TMA store"
    BARRIER = "barrier"
    MBARRIER_WAIT = "mbarrier wait"
    TENSOR_LOAD = "tcgen05.ld"  # from tensor memory to registers
    TENSOR_STORE = "tcgen05.st"
    TENSOR_COPY = "tcgen05.cp"  # from shared to tensor memory
    LOAD = "load"
    STORE = "store"


ISSUED = {
    Landmark.PRODUCT, Landmark.COPY, Landmark.TMA_LOAD, Landmark.TMA_STORE, Landmark.LOAD,
    Landmark.STORE, Landmark.TENSOR_LOAD, Landmark.TENSOR_STORE, Landmark.TENSOR_COPY,
}  # fmt: skip
"""Asynchronous operations: issued, and complete later."""
SPIN = 12
"""The most instructions of a loop that only waits."""

_LANDMARKS = {
    Landmark.PRODUCT_WAIT: r"WARPGROUP\.DEPBAR",
    Landmark.PRODUCT: _MMA,
    Landmark.COPY: r"LDGSTS",
    Landmark.COPY_WAIT: r"DEPBAR",
    Landmark.TMA_LOAD: r"UTMALDG|UBLKCP\.S\.G",
    Landmark.TMA_STORE: r"UTMASTG|UTMAREDG|UBLKCP\.G\.S|UBLKRED",
    Landmark.BARRIER: r"BAR\.(?:SYNC|RED)|UCGABAR_WAIT",
    Landmark.MBARRIER_WAIT: r"SYNCS\.PHASECHK",
    Landmark.TENSOR_LOAD: r"LDTM",
    Landmark.TENSOR_STORE: r"STTM",
    Landmark.TENSOR_COPY: r"UTCCP",
    Landmark.LOAD: r"LDG|LDGMC|LD",
    Landmark.STORE: r"STG|ST",
}
_ANY = re.compile(
    "|".join(f"(?P<{a.name}>(?:{regex}))(?:\\.|$)" for a, regex in _LANDMARKS.items())
)


@cache
def landmark(opcode: str) -> Landmark | None:
    """Return the kind of landmark that an opcode is; None for most opcodes."""
    found = _ANY.match(opcode)
    return Landmark[found.lastgroup] if found and found.lastgroup else None


_WIDTH = re.compile(r"\.(128|64|U16|S16|16|U8|S8|8)(?=\.|$)")
_BYTES = {"128": 16, "64": 8, "U16": 2, "S16": 2, "16": 2, "U8": 1, "S8": 1, "8": 1}
_SPACES = {
    Work.LOAD: "global",
    Work.STORE: "global",
    Work.ATOMIC: "global",
    Work.LOCAL: "local",
    Work.SHARED: "shared",
}
_BY_WORK = {
    Work.SIGNAL: "fence",
    Work.FENCE: "fence",
    Work.WAIT: "wait",
    Work.BARRIER: "barrier",
    Work.SHUFFLE: "shuffle",
    Work.CONTROL: "branch",
    Work.TMEM: "tensor memory",
}
_OPS = {
    "divide": "FCHK",
    "fp64": "DADD DFMA DMUL DSETP DMNMX",
    "xu": "MUFU",
    "fma": "FADD FADD2 FADD32I FFMA FFMA2 FFMA32I FMUL FMUL2 FMUL32I FHADD FHFMA",
    "half": "HADD2 HADD2_32I HFMA2 HFMA2_32I HMUL2 HMUL2_32I",
}
_BY_OP = {op: unit for unit, ops in _OPS.items() for op in ops.split()}
_PRODUCTS = frozenset(("IMAD", "IMUL", "IMAD32I", "IDP", "IDP4A", "IMADSP"))
_CONVERTS = frozenset(("F2F", "F2I", "I2F", "FRND", "I2I"))
_SMALL = re.compile(r"^[IQ]G?MMA|E4M3|E5M2|^UTC[IQ]MMA")
_DEVICE_WIDE = re.compile(r"\.(GPU|SYS)\b")
"""Scopes of fences that wait for L2 to have all earlier stores."""
_MATRIX_BYTES = 4
"""Bytes that each lane gets of one 8 x 8 matrix of LDSM and STSM."""


def unit_of(instruction: Instruction) -> str:
    """Return the unit that executes an instruction; empty for one that never runs."""
    work = work_of(instruction)
    if work is Work.NOTHING:
        return ""
    return _unit(instruction.opcode, work)


@cache
def _unit(opcode: str, work: Work) -> str:
    op, size = opcode.partition(".")[0], lane_bytes(opcode)
    if work is Work.COPY:
        return f"copy.global.{size}" if op == "LDGSTS" else "copy.bulk"
    if work is Work.TENSOR:
        kind = "tensor.group" if "GMMA" in op or op.startswith("UTC") else "tensor"
        return f"{kind}.{_operand_bytes(opcode)}"
    if work in _SPACES:
        loads = "load" if op.startswith("LD") else "store"
        return f"{'atomic' if work is Work.ATOMIC else loads}.{_space(op, work)}.{size}"
    if op == "MEMBAR" and _DEVICE_WIDE.search(opcode):
        return "fence.gpu"
    return "call" if op == "CALL" else _BY_WORK.get(work) or _arithmetic(op, opcode)


def _operand_bytes(opcode: str) -> int:
    """Return the bytes of the numbers that a product multiplies."""
    if opcode.startswith("DMMA"):
        return 8
    if ".TF32" in opcode:
        return 4
    return 1 if _SMALL.search(opcode) else 2


def _space(op: str, work: Work) -> str:
    return "shared" if op == "ATOMS" else _SPACES[work]


def _arithmetic(op: str, opcode: str) -> str:
    if op in _CONVERTS:
        return "convert.64" if "64" in opcode else "convert"
    if op in _PRODUCTS:
        moves = opcode.startswith(("IMAD.MOV", "IMAD.SHL", "IMAD.IADD"))
        return "fma" if moves else "product"
    uniform = op.startswith("U") or op in ("R2UR", "S2UR", "CS2UR", "LDC", "LDCU")
    return _BY_OP.get(op, "uniform" if uniform else "integer")


def lane_bytes(opcode: str) -> int:
    """Return how many bytes of each lane an access is."""
    if opcode.startswith(("LDSM", "STSM")):
        found = re.search(r"\.([24])\b", opcode)
        return _MATRIX_BYTES * (int(found[1]) if found else 1)
    found = _WIDTH.search(opcode)
    return _BYTES[found[1]] if found else 4
