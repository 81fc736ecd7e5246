"""A second reading of what instructions read and write, which shares nothing with that of ``ikp``.

The patcher and the verifier take both from one table: here a wrong entry is found. Sets of
registers are bits: R0 is the first; then predicates, uniform registers, uniform predicates. Where
a width is not known, an instruction is taken to read more, and to overwrite less.
"""

from __future__ import annotations

import re
from collections.abc import Callable
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
    """The disassembly of a kernel: lines, labels and words."""

    lines: list[str]  # an instruction each
    labels: dict[str, int]  # name -> the number of the instruction behind it
    words: NDArray[np.uint64]


class Effect(NamedTuple):
    """The registers that an instruction reads and writes, as sets."""

    reads: int
    writes: int  # at most
    kills: int  # at least


def read(text: str, kernel: str) -> Text:
    """Return the code of a kernel in a disassembly; ValueError: it is not there, or not whole."""
    found = re.search(rf"^//-+ \.text\.{re.escape(kernel)} +-+$", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"the disassembly has no code of {kernel}")
    end = text.find("\n//--", found.end())
    lines: list[str] = []
    labels: dict[str, int] = {}
    digits: list[str] = []
    end = len(text) if end < 0 else end
    for address, line, low, high, label in _LINE.findall(text, found.end(), end):
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
    """Return the labels that an instruction names."""
    return [one or other for one, other in _LABEL.findall(_NOISE.sub("", line))]


class _Rule(NamedTuple):
    """The widths of an opcode's operands, in registers."""

    kills: int = 1
    most: int = 1
    sources: tuple[int, ...] = (1,)  # in their order, the last for all others
    uniform: int = 1
    targets: int = 1  # how many registers it defines
    tests: bool = False  # it defines predicates, and no register


_Maker = Callable[[frozenset[str], int, int], _Rule]
"""Makes a rule of an opcode's modifiers, and of their sizes: up to 8 registers; up to 2."""


def _named(opcodes: str, make: _Maker) -> dict[str, _Maker]:
    return dict.fromkeys(opcodes.split(), make)


def _multiplied(parts: frozenset[str], _: int, wide: int) -> _Rule:
    pair = 2 if "HI" in parts else wide
    return _Rule(wide, wide, (1, 1, pair), pair)


def _atomic(parts: frozenset[str], size: int, _: int) -> _Rule:
    plain = bool({"EXCH", "CAS"} & parts)
    return _Rule(size, size if plain else max(size, 4), (size if plain else 4,))


def _matrices(parts: frozenset[str], _: int, __: int) -> _Rule:
    count = 4 if "4" in parts else 2 if "2" in parts else 1
    return _Rule(count, count, (count,))


def _half(parts: frozenset[str], size: int, _: int) -> _Rule:
    two = "ENL2" in parts
    return _Rule(size >> two, size >> two, (size,), 1, 1 + two)


_RULES: dict[str, _Maker] = {
    **_named(
        "ACQBULK ARRIVES BAR BPT BRA BREAK BSSY BSYNC CCTL CCTLL CCTLT CGAERRBAR DEPBAR ERRBAR "
        "EXIT FENCE JMP KILL LDGDEPBAR LDGSTS MEMBAR NANOSLEEP PREEXIT RTT ST STAS STG STL STS "
        "PMTRIG WARPGROUP WARPGROUPSET WARPSYNC YIELD SETCTAID ENDCOLLECTIVE",
        lambda _, size, __: _Rule(0, 0, (size,)),
    ),
    **_named(
        "UBLKCP UBLKPF UBLKRED UCGABAR_ARV UCGABAR_WAIT USETMAXREG UTMACCTL UTMACMDFLUSH UTMALDG "
        "UTMAPF UTMAREDG UTMASTG UVIRTCOUNT USETSHMSZ UTCBAR UTCCP UTCHMMA UTCIMMA UTCOMMA UTCQMMA "
        "UTCSHIFT UGETNEXTWORKID",
        lambda _, size, __: _Rule(0, 0, (size,), 8),
    ),
    **_named(
        "BMSK BREV F2FP FADD FADD32I FFMA FFMA32I FLO FMNMX FMNMX3 FMUL FMUL32I FSEL FSET "
        "FSWZADD HADD2 HADD2_32I HFMA2 HFMA2_32I HMNMX2 HMUL2 HMUL2_32I HSET2 I2FP IABS IADD "
        "IADD3 IADD32I IMNMX LEA LOP LOP3 LOP32I MOV MOV32I MOVM P2R POPC PRMT R2UR S2R S2UR "
        "SEL SGXT SHL SHR SHFL VOTE VOTEU VABSDIFF VABSDIFF4 VHMNMX VIADD VIADDMNMX VIMNMX "
        "VIMNMX3 IDP IDP4A REDUX CREDUX MATCH ELECT UP2UR UCLEA B2R CS2UR QSPC BMOV I2IP F2IP "
        "R2B ISCADD ISET UBMSK UBREV UF2FP UFADD UFFMA UFMNMX UFMUL UFSEL UFSET UFLO UIABS "
        "UIADD3 UIMNMX ULEA ULOP ULOP3 ULOP32I UMOV UPOPC UPRMT USEL USGXT USHF USHL USHR "
        "UVIADD UVIMNMX UI2FP UTCATOMSWS",
        lambda _, __, wide: _Rule(1, wide, (wide,), wide),
    ),
    **_named(
        "F2F F2I I2F I2I FRND MUFU UI2F UFRND", lambda _, __, wide: _Rule(1, wide, (wide,), wide)
    ),
    **_named(
        "DADD DMUL DFMA DMNMX FADD2 FMUL2 FFMA2 LEPC GETLMEMBASE", lambda *_: _Rule(2, 2, (2,), 2)
    ),
    **_named("LD LDG LDS LDL LDC LDCU ULDC LDGMC", _half),
    **_named("SHF", lambda *_: _Rule(1, 1, (1,), 2)),  # of 64 bits, one half is made
    **_named("SYNCS", lambda *_: _Rule(1, 2, (1,), 2)),
    **_named("IMAD UIMAD IMUL", _multiplied),
    **_named("CS2R", lambda parts, *_: _Rule(*([1] * 2 if "32" in parts else [2] * 2))),
    **_named("RET BRX BRXU JMX JMXU CALL", lambda *_: _Rule(0, 0, (2,), 2)),
    **_named("RED REDG REDAS", lambda *_: _Rule(0, 0, (4,))),
    **_named("ATOMS", lambda _, size, __: _Rule(size, size, (size,))),
    **_named("ATOM ATOMG", _atomic),
    **_named("LDSM", _matrices),
    **_named("STSM", lambda parts, *_: _matrices(parts, 0, 0)._replace(kills=0, most=0)),
    **_named("PLOP3 UPLOP3 R2P UR2UP FCHK", lambda *_: _Rule(0, 0, tests=True)),
    **_named("TLD", lambda *_: _Rule(1, 2, (4,), 2, 2)),
}
_VOTES = ("VOTE", "VOTEU")
_JUMPS = ("RET", "BRX", "BRXU", "JMX", "JMXU", "CALL")
_EXTENDED = ("LD", "LDG", "LDGMC", "ST", "STG", "ATOM", "ATOMG", "RED", "REDG", "CCTL")
"""Operations whose address is a pair with ``.E``, though ``.64`` is not always written there."""
_WIDE = frozenset(("64", "U64", "S64", "F64", "B64", "WIDE", "TRANS64", "64H"))
_TILES = {
    "HMMA.16816.F32": (4, 4, 2, 4), "HMMA.1688.F32": (4, 2, 1, 4),
    "HMMA.1688.F32.TF32": (4, 4, 2, 4), "HMMA.1684.F32": (4, 4, 2, 4),
    "HMMA.1684.F32.TF32": (4, 4, 2, 4), "HMMA.16816.F16": (2, 4, 2, 2),
    "HMMA.1688.F16": (2, 4, 2, 2), "DMMA.8x8x4": (4, 2, 2, 4), "DMMA.16x8x4": (8, 4, 2, 8),
    "DMMA.16x8x8": (8, 8, 4, 8), "DMMA.16x8x16": (8, 16, 8, 8), "IMMA.16816": (4, 4, 2, 4),
    "IMMA.16832": (4, 4, 2, 4), "QMMA.16816": (4, 4, 2, 4), "QMMA.16832": (4, 4, 2, 4),
    "QMMA.16816.F16": (2, 4, 2, 4), "QMMA.16832.F16": (2, 4, 2, 4),
}  # fmt: skip
"""Tile products: the registers of the result, and of each source."""


@cache
def _rule(opcode: str) -> _Rule | None:
    op, *rest = opcode.split(".")
    parts = frozenset(rest)
    wide = 2 if _WIDE & parts else 1
    size = 8 if "256" in parts else 4 if "128" in parts else wide
    if op in ("F2F", "F2I", "I2F", "I2I", "FRND", "MUFU") and "64" in opcode:
        wide = 2  # as in RCP64H
    if (make := _RULES.get(op)) is not None:
        return make(parts, size, wide)
    if op.endswith(("SETP", "SETP2")):
        both = 2 if op[0] == "D" else wide
        return _Rule(0, 0, (both,), both, tests=True)
    return _product(op, opcode, parts)


def _product(op: str, opcode: str, parts: frozenset[str]) -> _Rule | None:
    """Return the operand widths of a product, or of a load or store of tensor memory."""
    if op.endswith("GMMA") and (found := re.search(r"\.64x(\d+)x\d+\.(\w+)", opcode)):
        width = int(found[1]) // (4 if found[2] in ("F16", "BF16") else 2)
        return _Rule(width, width, (4, width, 1) if "SP" in parts else (4, width))
    fitting = [tile for tile in _TILES if {op, *parts} >= {*tile.split(".")}]
    if fitting:
        made, *taken = _TILES[max(fitting, key=len)]
        return _Rule(made, max(made, 4) if op[0] in "IQ" else made, tuple(taken))
    if op in ("LDTM", "STTM"):
        rows, times = re.search(r"\.16dp(\d+)bit(_\w+)?", opcode), re.search(r"\.x(\d+)\b", opcode)
        width = int(times[1] if times else 1) * max(int(rows[1]) // 64 if rows else 1, 1)
        part, load = rows is not None and bool(rows[2]), op == "LDTM"
        return _Rule(width * (load and not part), width * load, (1 if load else width,))
    return _Rule(1, 8, (8,)) if op.endswith("MMA") and not op.startswith("UTC") else None


class _Operand(NamedTuple):
    kind: str  # R, UR, P, UP: one register; PR: all predicates; number; "": anything else
    first: int = -1  # its bit; -1 for RZ, URZ, PT and UPT
    width: int = 1
    negated: bool = False
    reads: int = 0  # registers inside of any other operand
    bare: int = 0  # of these, first halves of a pair in an extended address


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
    number = not reads and not re.fullmatch(r"(gsb|SB|B)\d+", text)
    return _Operand("number" if number else "", reads=reads, bare=bare)


def effect(line: str) -> Effect:
    """Return the registers that an instruction reads and writes; all, if its opcode is unknown."""
    if "(" in line or ".reuse" in line or "?" in line:
        line = _NOISE.sub("", line)
    found = _PARTS.match(line)
    if found is None:
        raise ValueError(f"the disassembly has the instruction {line!r}")
    guard, opcode, rest = found.groups()
    rule, op = _rule(opcode), opcode.partition(".")[0]
    if guard in ("!PT", "!UPT") or op == "NOP":
        return Effect(0, 0, 0)
    if rule is None:
        return Effect(ALL, ALL, 0)
    texts = rest.replace(" ", ", ").split(", ") if op in _JUMPS else rest.split(", ")
    parts = [_operand(each.strip()) for each in texts]
    count = _defined(op, parts, rule)
    writes, kills = _written(parts[:count], rule)
    reads = _read(parts[count:], rule, op in _EXTENDED and ".E." in f"{opcode}.")
    for _ in range(7 if op.startswith(("UTMA", "UBLK")) else 0):
        reads |= (reads & UNIFORM) << 1  # one names an address, a barrier and coordinates
    if guard and guard[-1] != "T":
        return Effect(reads | 1 << _operand(guard.lstrip("!")).first, writes, 0)
    return Effect(reads & ALL, writes & ALL, kills)


def _written(parts: list[_Operand], rule: _Rule) -> tuple[int, int]:
    writes = kills = 0
    for part in parts:
        register = part.kind in ("R", "UR")
        if part.first >= 0:
            most = max(rule.most, part.width) if register else part.width
            least = rule.kills if register else int(part.kind != "PR")
            writes |= (1 << most) - 1 << part.first
            kills |= (1 << least) - 1 << part.first
    return writes, kills


def _read(parts: list[_Operand], rule: _Rule, extended: bool) -> int:
    numbers = [each.kind in ("R", "UR") or each.kind == "number" for each in parts]
    at = max(len(rule.sources) - sum(numbers), 0)  # the first source may be missing
    reads = 0
    for part, number in zip(parts, numbers, strict=True):
        width = part.width
        if number:
            own = rule.sources[min(at, len(rule.sources) - 1)]
            width = max(width, rule.uniform if part.kind == "UR" else own)
            at += 1
        reads |= (1 << width) - 1 << part.first if part.first >= 0 else part.reads
        reads |= part.bare << 1 if extended else 0
    return reads


def _defined(op: str, parts: list[_Operand], rule: _Rule) -> int:
    """Return how many operands an instruction writes: these come first."""
    registers = predicates = 0
    for at, part in enumerate(parts):
        behind = parts[at + 1 :]
        if part.kind == "PR":
            defined = not at
        elif part.kind in ("R", "UR"):
            defined = registers < rule.targets and bool(rule.most)
            registers += 1
        else:
            defined = bool(part.kind and behind and (rule.most or rule.tests)) and predicates < 2
            defined = (
                defined and not part.negated and (op in _VOTES or not registers or _words(behind))
            )
            predicates += 1
        if not defined:
            return at
    return len(parts)


def _words(parts: list[_Operand]) -> bool:
    """Whether there are operands other than predicates."""
    return any(each.kind not in ("P", "UP") for each in parts)
