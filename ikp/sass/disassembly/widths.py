"""Table of operand widths: how many registers each operand of an opcode takes.

Where a width isn't known for sure, the table is conservative: more is read, and less defined. Then
a register that is found free is free. Tests compare the widths with nvdisasm's life ranges.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class OperandWidths:
    """The widths of an opcode's operands, in registers."""

    target: int  # registers that the target always defines; 0 where the first operand is a source
    most: int  # registers that it may write there
    sources: tuple[int, ...] = (1,)  # of the sources in their order; the last one for all others
    uniform: int = 1  # of uniform registers among the sources, at least
    targets: int = 1  # how many registers it may name as targets
    predicates: bool = False  # whether it defines predicates and no register

    def source(self, at: int, count: int) -> int:
        """Return the width of one of ``count`` sources; the first may be missing."""
        at += max(len(self.sources) - count, 0)
        return self.sources[min(at, len(self.sources) - 1)]


_WIDE_PARTS = re.compile(r"\.(64|U64|S64|F64|B64|WIDE|TRANS64|64H)\b")
_WIDER_PARTS = re.compile(r"\.(128|256)\b")
_COLUMNS = re.compile(r"\.64x(\d+)x\d+\.(F16|F32|S32|BF16|\w+)")
_REPEATS = re.compile(r"\.x(\d+)\b")
_DOUBLES = re.compile(r"DMMA\.(8x8x4|16x8x4|16x8x8|16x8x16)\b")
_OF_DOUBLES = {"8x8x4": (2, 2, 4), "16x8x4": (4, 2, 8), "16x8x8": (8, 4, 8), "16x8x16": (16, 8, 8)}
"""Registers of each side, and of the sum."""
_ROW = re.compile(r"\.16dp(\d+)bit(_\w+)?")


def known(opcode: str) -> bool:
    """Whether the table knows how an opcode reads and writes."""
    return shape(opcode) is not _UNKNOWN


@cache
def shape(opcode: str) -> OperandWidths:
    """Return the widths for an opcode with its modifiers."""
    op = opcode.partition(".")[0]
    maker = _MAKERS.get(op)
    if not maker and not op.startswith("UTC"):  # the text of those does not show their targets
        maker = next((make for end, make in _ENDS.items() if op.endswith(end)), None)
    return maker(opcode) if maker else _UNKNOWN


_UNKNOWN = OperandWidths(0, 0)


def _width(opcode: str) -> int:
    if found := _WIDER_PARTS.search(opcode):
        return int(found[1]) // 32
    return 2 if _WIDE_PARTS.search(opcode) else 1


def _multiply(opcode: str) -> OperandWidths:
    """Integer products: wide ones, and the high halves of products, add a pair of registers."""
    wide = ".WIDE" in opcode
    pair = 2 if wide or ".HI" in opcode else 1
    return OperandWidths(2 if wide else 1, 2 if wide else 1, (1, 1, pair), 1 if pair == 1 else 2)


def _clock(opcode: str) -> OperandWidths:
    width = 1 if ".32" in opcode else 2
    return OperandWidths(width, width)


def _converted(opcode: str) -> OperandWidths:
    """Conversions: the opcode names the types of target and source, and may leave out 64 bits.

    One register is defined for sure; two may be written where the opcode says 64 bits.
    """
    wide = 2 if "64" in opcode else 1
    return OperandWidths(1, wide, (wide,), wide)


def _atomic(opcode: str) -> OperandWidths:
    width = _width(opcode)
    if opcode.startswith("ATOMS") or ".EXCH" in opcode or ".CAS" in opcode:
        return OperandWidths(width, width, (width,))
    return OperandWidths(width, max(width, 4), (4,))  # vectors aren't distinguished: four, at most


def _matrices(opcode: str) -> OperandWidths:
    """LDSM and STSM: one register for each matrix."""
    found = re.search(r"\.([24])\b", opcode)
    width = int(found[1]) if found else 1
    return OperandWidths(width, width) if opcode.startswith("LD") else OperandWidths(0, 0, (width,))


def _tensor_memory(opcode: str) -> OperandWidths:
    """LDTM, STTM: a shape, repeated; where it names threads, other threads' registers stay."""
    found, bits = _REPEATS.search(opcode), _ROW.search(opcode)
    width = (int(found[1]) if found else 1) * max(int(bits[1]) // 64 if bits else 1, 1)
    surely = 0 if bits and bits[2] else width
    return (
        OperandWidths(surely, width) if opcode.startswith("LD") else OperandWidths(0, 0, (width,))
    )


def _warpgroup(opcode: str) -> OperandWidths:
    """A warpgroup's product: 64 x N numbers among 128 threads, and 4 registers of a left side.

    Where that is sparse, a last register says which of its numbers are there.
    """
    found = _COLUMNS.search(opcode)
    if not found:
        return _UNKNOWN
    width = int(found[1]) // (4 if found[2] in ("F16", "BF16") else 2)
    return OperandWidths(width, width, (4, width, 1) if ".SP." in opcode else (4, width))


def _half_matrix(opcode: str) -> OperandWidths | None:
    """A warp's product of narrow floating-point numbers; None of an unknown shape."""
    if re.search(r"\.(16816|1688|1684)\.F32", opcode):
        small = ".1688." in opcode and ".TF32" not in opcode
        return OperandWidths(4, 4, (2, 1, 4) if small else (4, 2, 4))
    return OperandWidths(2, 2, (4, 2, 2)) if re.search(r"\.(16816|1688)\.F16", opcode) else None


def _matrix(opcode: str) -> OperandWidths:
    """A warp's product: an unknown shape reads and writes at most eight registers."""
    if opcode.startswith("HMMA") and (half := _half_matrix(opcode)):
        return half
    if found := _DOUBLES.search(opcode):
        a, b, c = _OF_DOUBLES[found[1]]
        return OperandWidths(c, c, (a, b, c))
    if opcode.startswith(("IMMA", "QMMA")) and re.search(r"\.(16816|16832)\.", opcode):
        return OperandWidths(4 if ".F16" not in opcode else 2, 4, (4, 2, 4))
    return OperandWidths(1, 8, (8,))


def _plain(opcode: str) -> OperandWidths:
    """One register each; two where the opcode says 64 bits, and of those one for sure: a shift of
    64 bits writes one register, an addition two.
    """
    wide = min(_width(opcode), 2)
    return OperandWidths(1, wide, (wide,), wide)


def _narrow(opcode: str) -> OperandWidths:
    """One register each, though the opcode says 64 bits: those are in memory or uniform registers,
    or a shift's, which writes one half. Compilers keep other values in the next register.
    """
    return OperandWidths(1, 1 if opcode.startswith("SHF.") else 2, (1,), 2)


def _sink(opcode: str) -> OperandWidths:
    """Instructions that define no register: stores, barriers, jumps."""
    return OperandWidths(0, 0, (max(_width(opcode), 1),), 8 if opcode.startswith("U") else 1)


def _load(opcode: str) -> OperandWidths:
    width = _width(opcode)
    if ".ENL2" in opcode:  # two targets of half the width
        return OperandWidths(width // 2, width // 2, (width,), targets=2)
    return OperandWidths(width, width, (width,))


def _test(opcode: str) -> OperandWidths:
    """Instructions that define predicates and no register."""
    wide = 2 if opcode.startswith("D") else min(_width(opcode), 2)
    return OperandWidths(0, 0, (wide,), wide, predicates=True)


def _pairs(_: str) -> OperandWidths:
    return OperandWidths(2, 2, (2,), 2)


def _texture(_: str) -> OperandWidths:
    """A load from a texture: two targets, of up to two registers each, and its coordinates."""
    return OperandWidths(1, 2, (4,), 2, targets=2)


def _indirect(_: str) -> OperandWidths:
    return OperandWidths(0, 0, (2,), 2)


def _reduction(_: str) -> OperandWidths:
    return OperandWidths(0, 0, (4,))


_ENDS: dict[str, Callable[[str], OperandWidths]] = {
    "SETP": _test,
    "SETP2": _test,
    "GMMA": _warpgroup,
    "MMA": _matrix,
}
_NAMES: dict[Callable[[str], OperandWidths], str] = {
    _sink: "ACQBULK ARRIVES BAR BPT BRA BREAK BSSY BSYNC CCTL CCTLL CCTLT CGAERRBAR DEPBAR "
    "ENDCOLLECTIVE ERRBAR EXIT FENCE JMP KILL LDGDEPBAR LDGSTS MEMBAR NANOSLEEP NOP PREEXIT RTT "
    "SETCTAID ST STAS STG STL STS UBLKCP UBLKPF UBLKRED UCGABAR_ARV UCGABAR_WAIT USETMAXREG "
    "UGETNEXTWORKID UTCBAR UTCCP UTCHMMA UTCIMMA UTCOMMA UTCQMMA UTCSHIFT UTMACCTL UTMACMDFLUSH "
    "USETSHMSZ UTMALDG UTMAPF UTMAREDG UTMASTG WARPGROUP WARPGROUPSET WARPSYNC YIELD UVIRTCOUNT "
    "PMTRIG",
    _load: "LD LDG LDS LDL LDC LDCU ULDC LDGMC",
    _test: "PLOP3 UPLOP3 R2P UR2UP FCHK",
    _pairs: "DADD DMUL DFMA DMNMX FADD2 FMUL2 FFMA2 LEPC GETLMEMBASE",
    _plain: "BMSK BREV F2FP FADD FADD32I FFMA FFMA32I FLO FMNMX FMNMX3 FMUL FMUL32I FSEL FSET "
    "FSWZADD HADD2 HADD2_32I HFMA2 HFMA2_32I HMNMX2 HMUL2 HMUL2_32I HSET2 I2FP IABS IADD IADD3 "
    "IADD32I IMNMX LEA LOP LOP3 LOP32I MOV MOV32I MOVM P2R POPC PRMT R2UR S2R S2UR SEL SGXT "
    "SHL SHR SHFL VOTE VOTEU VABSDIFF VABSDIFF4 VHMNMX VIADD VIADDMNMX VIMNMX VIMNMX3 IDP IDP4A "
    "REDUX CREDUX MATCH ELECT UP2UR UCLEA B2R CS2UR QSPC BMOV I2IP F2IP R2B UTCATOMSWS ISCADD "
    "ISET UBMSK UBREV UF2FP UFADD UFFMA UFMNMX UFMUL UFSEL UFSET UFLO UIABS UIADD3 UIMNMX "
    "ULEA ULOP ULOP3 ULOP32I UMOV UPOPC UPRMT USEL USGXT USHF USHL USHR UVIADD UVIMNMX UI2FP",
    _narrow: "SHF SYNCS",
    _converted: "F2F F2I I2F I2I FRND MUFU UI2F UFRND",
    _multiply: "IMAD UIMAD IMUL",
    _clock: "CS2R",
    _texture: "TLD",
    _indirect: "RET BRX BRXU JMX JMXU CALL",
    _reduction: "RED REDG REDAS",
    _atomic: "ATOM ATOMG ATOMS",
    _matrices: "LDSM STSM",
    _tensor_memory: "LDTM STTM",
}
_MAKERS = {op: make for make, ops in _NAMES.items() for op in ops.split()}
