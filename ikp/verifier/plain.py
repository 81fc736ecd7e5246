"""The plain kernel's instructions: what each reads and writes, by the disassembler's text.

The text is held against the cubin's words first, so a cut or a stale one is found. Sets of registers
are bits: R0 is the first; then predicates, uniform registers, uniform predicates. Where a width is
not known, an instruction is taken to read more, and to overwrite less.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

R, P, UR, UP, END = 0, 256, 264, 520, 528
ALL = (1 << END) - 1
UNIFORM = ALL >> UR << UR
FILES = {"R": R, "P": P, "UR": UR, "UP": UP}
_LINE = re.compile(
    r"^[ ]+/\*([0-9a-f]+)\*/[ ]+([^;\n]*?)[ ]*;?[ ]*/\* 0x(\w{16}) \*/\n[ ]+/\* 0x(\w{16}) \*/"
    r"|^([.$\w]+):$",
    re.MULTILINE,
)
_PARTS = re.compile(r"(?:@(!?U?P[\dT]) +)?([A-Z][\w.]*)\s*(.*)")
_REGISTER = re.compile(r"[-~|!]*(U?R)(\d+|Z)\|?((?:\.\w+)*)")
_PREDICATE = re.compile(r"(!?)(U?P)(\d|T)")
_INSIDE = re.compile(r"(?<![\w.])(U?[RP])(\d+)((?:\.\w+)*)")
_LABEL = re.compile(r"`\(([^)]+)\)|(\.L_x_\d+)")
_NOISE = re.compile(r"\(\*.*\*\)|\.reuse|&\w+=\S+|\?\w+")


class Text(NamedTuple):
    """What the disassembler says of a kernel."""

    lines: list[str]  # an instruction each
    labels: dict[str, int]  # name -> the number of the instruction behind it
    words: NDArray[np.uint64]


class Effect(NamedTuple):
    """What an instruction does, as sets."""

    reads: int
    writes: int  # at most
    kills: int  # at least


def read(text: str, kernel: str) -> Text:
    """Return what a disassembly says of a kernel; ValueError: nothing."""
    found = re.search(rf"^//-+ \.text\.{re.escape(kernel)} +-+$", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"the disassembly has no code of {kernel}")
    end = text.find("\n//--", found.end())
    lines: list[str] = []
    labels: dict[str, int] = {}
    digits: list[str] = []
    for address, line, low, high, label in _LINE.findall(text, found.end(), len(text) if end < 0 else end):
        if label:
            labels[label] = len(lines)
        elif int(address, 16) != 16 * len(lines):
            raise ValueError(f"the disassembly has no instruction {len(lines)}")
        else:
            digits += (low, high)
            lines.append(line)
    words = np.frombuffer(bytes.fromhex("".join(digits)), ">u8").astype(np.uint64)
    return Text(lines, labels, words.reshape(-1, 2))


def targets(line: str) -> list[str]:
    """Return the labels that an instruction names as places."""
    return [one or other for one, other in _LABEL.findall(_NOISE.sub("", line))]


class _Rule(NamedTuple):
    """The widths of an opcode's operands, in registers."""

    kills: int = 1
    most: int = 1
    sources: tuple[int, ...] = (1,)  # in their order, the last for all others
    uniform: int = 1
    count: int = 1  # how many registers it defines
    tests: bool = False  # it defines predicates, and no register


_SINKS = frozenset(
    "ACQBULK ARRIVES BAR BPT BRA BREAK BSSY BSYNC CCTL CCTLL CCTLT CGAERRBAR DEPBAR ERRBAR EXIT "
    "FENCE JMP KILL LDGDEPBAR LDGSTS MEMBAR NANOSLEEP NOP PREEXIT RTT ST STAS STG STL STS UBLKCP "
    "UBLKPF UBLKRED UCGABAR_ARV UCGABAR_WAIT USETMAXREG UTMACCTL UTMACMDFLUSH UTMALDG UTMAPF ENDCOLLECTIVE "
    "UTMAREDG UTMASTG WARPGROUP WARPGROUPSET WARPSYNC YIELD PMTRIG SETCTAID UVIRTCOUNT USETSHMSZ UTCBAR "
    "UTCCP UTCHMMA UTCIMMA UTCOMMA UTCQMMA UTCSHIFT UGETNEXTWORKID".split()
)
_SIMPLE = frozenset(
    "BMSK BREV F2FP FADD FADD32I FFMA FFMA32I FLO FMNMX FMNMX3 FMUL FMUL32I FSEL FSET FSWZADD HADD2 "
    "HADD2_32I HFMA2 HFMA2_32I HMNMX2 HMUL2 HMUL2_32I HSET2 I2FP IABS IADD IADD3 IADD32I IMNMX LEA LOP "
    "LOP3 LOP32I MOV MOV32I MOVM P2R POPC PRMT R2UR S2R S2UR SEL SGXT SHL SHR SHFL VOTE VOTEU VABSDIFF "
    "VABSDIFF4 VHMNMX VIADD VIADDMNMX VIMNMX VIMNMX3 IDP IDP4A REDUX CREDUX MATCH ELECT UP2UR UCLEA B2R "
    "CS2UR QSPC BMOV I2IP F2IP R2B ISCADD ISET UBMSK UBREV UF2FP UFADD UFFMA UFMNMX UFMUL UFSEL UFSET "
    "UFLO UIABS UIADD3 UIMNMX ULEA ULOP ULOP3 ULOP32I UMOV UPOPC UPRMT USEL USGXT USHF USHL USHR UVIADD "
    "UVIMNMX UI2FP UTCATOMSWS".split()
)
_PAIRS = frozenset("DADD DMUL DFMA DMNMX FADD2 FMUL2 FFMA2 LEPC GETLMEMBASE".split())
_LOADS = frozenset("LD LDG LDS LDL LDC LDCU ULDC LDGMC".split())
_CONVERSIONS = frozenset("F2F F2I I2F I2I FRND MUFU UI2F UFRND".split())
_JUMPS = frozenset("RET BRX BRXU JMX JMXU CALL".split())
_ATOMICS = frozenset("ATOM ATOMG ATOMS".split())
_EXTENDED = frozenset("LD LDG LDGMC ST STG ATOM ATOMG RED REDG CCTL".split())
_WIDE = frozenset("64 U64 S64 F64 B64 WIDE TRANS64 64H".split())
_HMMA = {"16816": (4, 2), "1688": (2, 1), "1684": (4, 2)}
_DMMA = {"8x8x4": (2, 2, 4), "16x8x4": (4, 2, 8), "16x8x8": (8, 4, 8), "16x8x16": (16, 8, 8)}


@cache
def _rule(opcode: str) -> _Rule | None:
    op, *parts = opcode.split(".")
    wide = 2 if _WIDE & {*parts} else 1
    size = 8 if "256" in parts else 4 if "128" in parts else wide
    if op in _SINKS:
        return _Rule(0, 0, (size,), 8 if op[0] == "U" else 1)
    if op in _SIMPLE:
        return _Rule(1, wide, (wide,), wide)
    if op in ("SHF", "SYNCS"):  # of 64 bits, one half is made
        return _Rule(1, 1 if op == "SHF" else 2, (1,), 2)
    if op in _LOADS:
        half = size // 2 if "ENL2" in parts else size
        return _Rule(half, half, (size,), 1, 2 if "ENL2" in parts else 1)
    if op in _PAIRS:
        return _Rule(2, 2, (2,), 2)
    if op in ("IMAD", "UIMAD", "IMUL"):
        made = 2 if "WIDE" in parts else 1
        pair = 2 if "WIDE" in parts or "HI" in parts else 1
        return _Rule(made, made, (1, 1, pair), pair)
    if op == "CS2R":
        return _Rule(1 if "32" in parts else 2, 2)
    if op in _CONVERSIONS:
        both = 2 if "64" in opcode else 1
        return _Rule(1, both, (both,), both)
    if op in _JUMPS:
        return _Rule(0, 0, (2,), 2)
    if op in ("RED", "REDG", "REDAS"):
        return _Rule(0, 0, (4,))
    if op in _ATOMICS:
        plain = op == "ATOMS" or {"EXCH", "CAS"} & {*parts}
        return _Rule(size, size if plain else max(size, 4), (size if plain else 4,))
    if op in ("LDSM", "STSM"):
        count = 4 if "4" in parts else 2 if "2" in parts else 1
        return _Rule(count, count) if op == "LDSM" else _Rule(0, 0, (count,))
    if op in ("PLOP3", "UPLOP3", "R2P", "UR2UP", "FCHK") or op.endswith(("SETP", "SETP2")):
        both = 2 if op[0] == "D" else wide
        return _Rule(0, 0, (both,), both, tests=True)
    if op == "TLD":
        return _Rule(1, 2, (4,), 2, 2)
    return _products(op, opcode, parts)


def _products(op: str, opcode: str, parts: list[str]) -> _Rule | None:
    if op.endswith("GMMA") and (found := re.search(r"\.64x(\d+)x\d+\.(\w+)", opcode)):
        width = int(found[1]) // (4 if found[2] in ("F16", "BF16") else 2)
        return _Rule(width, width, (4, width, 1) if "SP" in parts else (4, width))
    if op == "HMMA" and (shape := next((each for each in parts if each in _HMMA), "")):
        left, right = (4, 2) if "TF32" in parts else _HMMA[shape]
        if "F32" in parts:
            return _Rule(4, 4, (left, right, 4))
        return _Rule(2, 2, (4, 2, 2)) if shape != "1684" else _Rule(1, 8, (8,))
    if op == "DMMA" and (shape := next((each for each in parts if each in _DMMA), "")):
        left, right, made = _DMMA[shape]
        return _Rule(made, made, (left, right, made))
    if op in ("IMMA", "QMMA") and {"16816", "16832"} & {*parts}:
        return _Rule(2 if "F16" in parts else 4, 4, (4, 2, 4))
    if op in ("LDTM", "STTM"):
        rows, times = re.search(r"\.16dp(\d+)bit(_\w+)?", opcode), re.search(r"\.x(\d+)\b", opcode)
        width = int(times[1] if times else 1) * max(int(rows[1]) // 64 if rows else 1, 1)
        part = op == "LDTM" and not (rows and rows[2])
        return _Rule(width * part, width * (op == "LDTM"), (1 if op == "LDTM" else width,))
    return _Rule(1, 8, (8,)) if op.endswith("MMA") and not op.startswith("UTC") else None


class _Operand(NamedTuple):
    kind: str  # R, UR, P, UP: one of these; PR: all predicates; "": anything else
    first: int = -1  # its bit; -1 for what is always zero, or true
    width: int = 1
    negated: bool = False
    reads: int = 0  # of anything else
    bare: int = 0  # what of that is a pair in an extended address


@cache
def _operand(text: str) -> _Operand:
    if found := _REGISTER.fullmatch(text):
        first = -1 if found[2] == "Z" else FILES[found[1]] + int(found[2])
        return _Operand(found[1], first, 2 if re.search(r"\.64\b|\.F32x2", found[3]) else 1)
    if found := _PREDICATE.fullmatch(text):
        first = -1 if found[3] == "T" else FILES[found[2]] + int(found[3])
        return _Operand(found[2], first, negated=bool(found[1]))
    if text in ("PR", "UPR"):
        return _Operand("PR", FILES[text[:-1]], 7)
    reads = bare = 0
    for file, number, parts in _INSIDE.findall(text):
        width = 1
        if file == "UR" and "[" in text:
            width = 4 if re.search(r"g(?:desc|mem)\[", text) else 2
        elif file == "R":
            width = 2 if ".64" in parts else 1
            bare |= 0 if ".64" in parts or ".U32" in parts else 1 << R + int(number)
        reads |= (1 << width) - 1 << FILES[file] + int(number)
    return _Operand("", reads=reads, bare=bare)


def effect(line: str) -> Effect:
    """Return what an instruction reads and writes; all of it, if that is not known."""
    if "(" in line or ".reuse" in line or "?" in line:
        line = _NOISE.sub("", line)
    guard, opcode, rest = _PARTS.match(line).groups()  # type: ignore[union-attr]
    rule, op = _rule(opcode), opcode.partition(".")[0]
    if guard in ("!PT", "!UPT") or op == "NOP":
        return Effect(0, 0, 0)
    if rule is None:
        return Effect(ALL, ALL, 0)
    texts = rest.strip().split(", ") if rest.strip() else []
    if op in _JUMPS:
        texts = [word for each in texts for word in each.split()]
    parts = [_operand(each.strip()) for each in texts]
    count = _defined(op, parts, rule)
    reads = writes = kills = number = 0
    for part in parts[:count]:
        if part.first >= 0:
            most = 1 if part.kind in ("P", "UP") else part.width if part.kind == "PR" else max(rule.most, part.width)
            least = 0 if part.kind == "PR" else 1 if part.kind in ("P", "UP") else rule.kills
            writes |= (1 << most) - 1 << part.first
            kills |= (1 << least) - 1 << part.first
    sources = [each for each in parts[count:] if each.kind in ("R", "UR") or not (each.kind or each.reads)]
    skipped = max(len(rule.sources) - len(sources), 0)
    for part in parts[count:]:
        width = part.width
        if part.kind in ("R", "UR") or not (part.kind or part.reads):
            own = rule.sources[min(number + skipped, len(rule.sources) - 1)]
            width = max(width, rule.uniform if part.kind == "UR" else own)
            number += 1
        reads |= (1 << width) - 1 << part.first if part.first >= 0 else part.reads
        reads |= part.bare << 1 if op in _EXTENDED and ".E." in f"{opcode}." else 0
    if op.startswith(("UTMA", "UBLK")):  # one operand names an address, a barrier and coordinates
        for _ in range(7):
            reads |= (reads & UNIFORM) << 1
    if guard:
        reads |= 1 << _operand(guard.lstrip("!")).first if guard[-1] != "T" else 0
        kills = kills if guard[-1] == "T" else 0
    return Effect(reads & ALL, writes & ALL, kills)


def _defined(op: str, parts: list[_Operand], rule: _Rule) -> int:
    """Return how many operands an instruction defines: these come first."""
    registers = predicates = 0
    for at, part in enumerate(parts):
        last = at == len(parts) - 1
        if part.kind == "PR":
            if at:
                return at
        elif part.kind in ("R", "UR"):
            if registers >= rule.count or not rule.most:
                return at
            registers += 1
        elif part.kind and not part.negated and predicates < 2 and (rule.most or rule.tests):
            behind = parts[at + 1 :]
            if op not in ("VOTE", "VOTEU") and registers and all(each.kind in ("P", "UP") for each in behind):
                return at
            if last:
                return at
            predicates += 1
        else:
            return at
    return len(parts)
