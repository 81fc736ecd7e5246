"""``execute``: the effect of one instruction on the registers of all threads.

Integer arithmetic is evaluated. Loads, and instructions that are not evaluated, leave unknown
values that depend on what they read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache

import numpy as np

from ikp.sass.dataflow import lane_arithmetic as arithmetic
from ikp.sass.dataflow.lane_arithmetic import MASK, Numbers
from ikp.sass.dataflow.lane_state import (
    ASSUMED,
    BLOCK,
    CONSTANT,
    DATA,
    GUESSED,
    LANE,
    LANES,
    WARP,
    Threads,
    Value,
    offset_of,
    source_of,
    uniform,
)
from ikp.sass.disassembly.effects import FILES, Effects, members
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.values import ValueOrigin, definitions

Effect = dict[str, Value] | None
Parts = tuple[str, ...]

_SPECIAL = frozenset(("SR_TID.X", "SR_TID.Y", "SR_TID.Z", "SR_LANEID"))
_BLOCKS = {"SR_CTAID.X": 0, "SR_CTAID.Y": 1, "SR_CTAID.Z": 2}
_ZERO = ("SRZ", "SR_CgaCtaId")
"""Zero; the second without clusters."""


def execute(threads: Threads, each: Instruction, effects: Effects) -> None:
    """Execute an instruction: what it writes is known behind it, or unknown."""
    guard = threads.guard(each)
    for name, value in (_effect(threads, each) or _unknown(threads, each, effects)).items():
        threads.write(name, value, guard, guarded=bool(each.guard))


def name_of(bit: int) -> str:
    """Return the name of a register, by its bit."""
    return _NAMES[bit]


_NAMES = {
    each.first + number: f"{each.prefix}{number}"
    for each in FILES.values()
    for number in range(each.count)
}


@cache
def modifiers(opcode: str) -> tuple[str, ...]:
    """Return the modifiers of an opcode."""
    return tuple(opcode.split(".")[1:])


@lru_cache(maxsize=1 << 14)
def _is_predicate(text: str, *, negated: bool = True) -> bool:
    """Return whether an operand is a predicate, which a ``!`` may negate."""
    return re.fullmatch(r"!?U?P[\dT]" if negated else r"U?P[\dT]", text) is not None


def _effect(threads: Threads, each: Instruction) -> Effect:
    """Return the registers that an instruction writes; None where it is not evaluated."""
    made = definitions(each)
    if made and all(one.origin is ValueOrigin.CONSTANT for one in made.values()):
        return {name: threads.full(one.value) for name, one in made.items() if name[0] in "RU"}
    known = _EVALUATED.get(each.op)
    return known(threads, each, modifiers(each.opcode)) if known is not None else None


def _read_by(threads: Threads, effects: Effects) -> int:
    """Return what all registers that an instruction reads depend on, together."""
    depends = 0
    for bit in members(effects.reads):
        known = threads.state.get(_NAMES[bit])
        depends |= known.depends if known is not None else 0
    return depends


def _unknown(threads: Threads, each: Instruction, effects: Effects) -> dict[str, Value]:
    loads = each.op in _FROM_MEMORY
    depends = _read_by(threads, effects) | (DATA if loads else 0)
    if each.op == "LDL":  # one address of local memory is another place for each thread
        depends |= LANE
    if each.op in _ONE_VALUE and depends & LANE and _is_one(threads.address(each)):
        depends &= ~LANE
    if not loads and each.op not in _PURE:
        depends |= DATA | (0 if each.op in _OF_A_WARP else LANE)
    value = Value(None, depends)
    return {_NAMES[bit]: value for bit in members(effects.writes)}


def _is_one(address: Value) -> bool:
    """Whether the lanes of each warp have one address, as far as it is known; else they may not."""
    if address.bits is None or address.depends & GUESSED:
        return False
    if address.bits.shape[-1] == 1:
        return True
    lanes = address.bits.reshape(-1, LANES)
    return bool((lanes == lanes[:, :1]).all())


_LOADING = "LD LDG LDS LDL LDC LDCU ULDC LDSM LDGMC"
_FROM_MEMORY = frozenset(_LOADING.split())
_ONE_VALUE = frozenset(("LD", "LDG", "LDS", "LDC"))
"""Loads that bring all lanes with one address one value."""
_OF_A_WARP = frozenset(("REDUX", "VOTE", "VOTEU", "R2UR", "UP2UR", "CREDUX"))
_COMPUTING = (
    "FADD FMUL FFMA FSEL FSETP FMNMX FSET MUFU F2F F2FP F2I I2F I2FP HADD2 HMUL2 HFMA2 HSETP2 "
    "HSET2 HMNMX2 DADD DMUL DFMA DSETP POPC FLO BREV P2R R2P BMSK LOP3 PLOP3 IDP IDP4A ISETP "
    "UISETP IADD3 IMAD SHF LEA SEL PRMT SGXT IMNMX VIMNMX VIADD IABS MOV UMOV UIADD3 UIMAD ULEA "
    "ULOP3 USEL USHF UPLOP3 FCHK FRND UIMNMX VIMNMX3 VIADDMNMX VABSDIFF UPOPC UFLO"
)
_PURE = frozenset(_COMPUTING.split())
"""Instructions whose result depends on their operands alone."""


def _targets(each: Instruction) -> tuple[list[str], list[str]]:
    """Return the registers and predicates before the sources, and the sources."""
    operands, at = list(each.operands), 1
    while at < len(operands) and at < 3 and _is_predicate(operands[at], negated=False):
        at += 1
    return operands[:at], operands[at:]


def _joined(sources: list[Value]) -> int:
    depends = 0
    for each in sources:
        depends |= each.depends
    return depends


def _result(each: Instruction, words: tuple[Numbers, ...] | None, depends: int) -> Effect:
    """Return the words of a result, in the registers from the first operand on."""
    found = source_of(each.operands[0])
    if not found.file:
        return None
    if words is None:
        words_or_none: tuple[Numbers | None, ...] = (None,)
    else:
        words_or_none = words
    if found.number in "ZT":
        return {}
    first = int(found.number)
    return {f"{found.file}{first + n}": Value(w, depends) for n, w in enumerate(words_or_none)}


def _known(sources: list[Value]) -> list[Numbers] | None:
    bits = [each.bits for each in sources]
    return (
        None if any(each is None for each in bits) else [each for each in bits if each is not None]
    )


def _move(threads: Threads, each: Instruction, parts: Parts) -> Effect:
    source = each.operands[1]
    values = [threads.read(source)]
    if "64" in parts and each.op == "UMOV":
        values.append(threads.next(source))
    bits = _known(values)
    return _result(each, tuple(bits) if bits else None, _joined(values))


def _multiply(threads: Threads, each: Instruction, parts: Parts) -> Effect:
    sources = _targets(each)[1]
    if len(sources) < 3:
        return None
    a, b = (threads.read(one) for one in sources[:2])
    rest = [threads.read(sources[2])]
    if {"WIDE", "HI"} & {*parts}:
        rest.append(threads.next(sources[2]))
    if "X" in parts and len(sources) > 3:
        rest.append(threads.read(sources[3]))
    bits = _known([a, b, *rest])
    depends = _joined([a, b, *rest])
    return _result(each, arithmetic.multiply(parts, *bits) if bits else None, depends)


def _add(threads: Threads, each: Instruction, parts: Parts) -> Effect:
    targets, sources = _targets(each)
    numbers = [one for one in sources if not _is_predicate(one)]
    values = [threads.read(one) for one in numbers[:3]]
    while len(values) < 3:
        values.append(threads.full(0))
    carry = threads.full(0)
    if "X" in parts:
        given = [one for one in sources if _is_predicate(one)]
        carry = threads.read(given[0]) if given else carry
    depends = _joined([*values, carry])
    bits = _known([*values, carry])
    if bits is None:
        return _with_carries(each, targets, None, depends)
    total, over = arithmetic.add(*bits)
    return _with_carries(each, targets, (total, over), depends)


def _with_carries(
    each: Instruction, targets: list[str], made: tuple[Numbers, Numbers] | None, depends: int
) -> Effect:
    found = _result(each, made[:1] if made else None, depends)
    if found is None:
        return None
    for name in targets[1:]:
        if not name.endswith("T"):
            found[name] = Value(made[1] if made else None, depends)
    return found


def _lea(threads: Threads, each: Instruction, parts: Parts) -> Effect:
    targets, sources = _targets(each)
    carries = [one for one in sources if _is_predicate(one)]
    numbers = [one for one in sources if one not in carries]
    values = [threads.read(one) for one in numbers]
    carry = threads.read(carries[0]) if carries and "X" in parts else threads.full(0)
    depends, bits = _joined([*values, carry]), _known([*values, carry])
    if bits is None or len(values) < 3:
        return _with_carries(each, targets, None, depends)
    words = arithmetic.shift_and_add(parts, bits[:-1], bits[-1])
    return _with_carries(each, targets, (words[0], words[-1]), depends)


def _shift(threads: Threads, each: Instruction, parts: Parts) -> Effect:
    sources = each.operands[1:]
    if len(sources) < 3:
        return None
    values = [threads.read(one) for one in sources[:3]]
    bits = _known(values)
    return _result(each, arithmetic.shift(parts, *bits) if bits else None, _joined(values))


_FALSE = ("!PT", "!UPT")


def _logic(threads: Threads, each: Instruction, _: Parts) -> Effect:
    targets, sources = _targets(each)
    tests = bool(re.match(r"U?P\d$", each.operands[0]))  # whether the result is not zero
    if tests and (each.operands[1] not in ("RZ", "URZ") or each.operands[-1] not in _FALSE):
        return None
    sources = sources[1:] if tests else sources
    if len(sources) < 4 or not sources[3].startswith("0x"):
        return None
    values = [threads.read(one) for one in sources[:3]]
    depends, bits = _joined(values), _known(values)
    made = arithmetic.combine(int(sources[3], 16), *bits) if bits else None
    nonzero = None if made is None else (made != 0).astype(np.int64)
    if tests:
        return {each.operands[0]: Value(nonzero, depends)}
    return _with_carries(
        each, targets, None if made is None or nonzero is None else (made, nonzero), depends
    )


def _predicates(threads: Threads, each: Instruction, _: Parts) -> Effect:
    operands = list(each.operands)
    if len(operands) < 6 or not operands[5].startswith("0x"):
        return None
    values = [threads.read(one) for one in operands[2:5]]
    depends, bits = _joined(values), _known(values)
    made = arithmetic.combine(int(operands[5], 16), *bits) & 1 if bits else None
    return {operands[0]: Value(made, depends), **_also(operands[1], depends)}


def _also(name: str, depends: int) -> dict[str, Value]:
    return {} if name.endswith("T") else {name: Value(None, depends)}


def _compare(threads: Threads, each: Instruction, parts: Parts) -> Effect:
    operands = list(each.operands)
    if len(operands) < 5:
        return None
    values = [threads.read(one) for one in operands[2:5]]
    more = [threads.read(one) for one in operands[5:6]]
    depends, bits = _joined([*values, *more]), _known(values)
    low = more[0].bits if "EX" in parts and more else None
    made = _compared(parts, bits, low) if bits else None
    found = {operands[0]: Value(made, depends), **_also(operands[1], depends)}
    return {name: value for name, value in found.items() if not name.endswith("T")}


def _compared(parts: Parts, bits: Sequence[Numbers], low: Numbers | None) -> Numbers | None:
    """Return a comparison's result: with that of the low words, and with a third operand."""
    left, right, other = bits
    made = arithmetic.compare(parts, left, right)
    if made is None:
        return None
    if low is not None:
        made = np.where(left == right, low, made)
    return made | other if "OR" in parts else made & other


def _select(threads: Threads, each: Instruction, _: Parts) -> Effect:
    values = [threads.read(one) for one in each.operands[1:4]]
    bits = _known(values)
    if len(values) < 3:
        return None
    made = (np.where(bits[2] != 0, bits[0], bits[1]),) if bits else None
    return _result(each, made, _joined(values))


def _least(threads: Threads, each: Instruction, parts: Parts) -> Effect:
    sources = [one for one in each.operands[1:] if not one.endswith("P")]
    values = [threads.read(one) for one in sources[:3]]
    bits = _known(values)
    if bits is None or len(bits) < 3:
        return _result(each, None, _joined(values))
    pair = bits[:2] if "U32" in parts else [arithmetic.signed(one) for one in bits[:2]]
    made = np.where(bits[2] != 0, np.minimum(*pair), np.maximum(*pair)) & MASK
    return _result(each, (made,), _joined(values))


def _added_least(threads: Threads, each: Instruction, parts: Parts) -> Effect:
    """VIADDMNMX: the lesser, or the greater, of a sum and a third number."""
    values = [threads.read(one) for one in each.operands[1:5]]
    bits = _known(values)
    if bits is None or len(bits) < 4 or parts not in ((), ("U32",)):
        return None
    pair = [(bits[0] + bits[1]) & MASK, bits[2]]
    pair = pair if parts else [arithmetic.signed(one) for one in pair]
    made = np.where(bits[3] != 0, np.minimum(*pair), np.maximum(*pair)) & MASK
    return _result(each, (made,), _joined(values))


def _permute(threads: Threads, each: Instruction, parts: Parts) -> Effect:
    values = [threads.read(one) for one in each.operands[1:4]]
    bits = _known(values)
    made = (arithmetic.permute(*bits),) if bits and len(parts) == 0 and len(bits) == 3 else None
    return _result(each, made, _joined(values))


def _extend(threads: Threads, each: Instruction, parts: Parts) -> Effect:
    values = [threads.read(one) for one in each.operands[1:3]]
    bits = _known(values)
    return _result(each, (arithmetic.extend(parts, *bits),) if bits else None, _joined(values))


def _absolute(threads: Threads, each: Instruction, _: Parts) -> Effect:
    value = threads.read(each.operands[1])
    made = None if value.bits is None else (np.abs(arithmetic.signed(value.bits)) & MASK,)
    return _result(each, made, value.depends)


def _floats(threads: Threads, each: Instruction, parts: Parts) -> Effect:
    value = threads.read(each.operands[1])
    made = None if value.bits is None else arithmetic.of_floats(parts, each.op, value.bits)
    return None if made is None else _result(each, (made,), value.depends)


def _special(threads: Threads, each: Instruction, parts: Parts) -> Effect:
    name, places = each.operands[-1], threads.launch.places
    if name in _SPECIAL:
        bits = places[name]
        varies = bits.reshape(-1, LANES)
        depends = LANE * bool(np.ptp(varies, axis=1).any()) | WARP * (name != "SR_LANEID")
        return _result(each, (bits,), depends)
    if name in _BLOCKS:
        wide = threads.launch.shape.grid[_BLOCKS[name]] > 1
        return _result(each, (places[name],), BLOCK * wide)
    if name in _ZERO:
        pair = each.op == "CS2R" and "32" not in parts
        zero = uniform(0)
        return _result(each, (zero, zero) if pair else (zero,), 0)
    return None


def _constant(threads: Threads, each: Instruction, parts: Parts) -> Effect:
    found = CONSTANT.match(each.operands[1])
    if found is None or int(found[1], 16) != 0:
        return None
    count = 4 if "128" in parts else 2 if "64" in parts else 1
    words, assumed = [], False
    for n in range(count):
        number, guess = threads.launch.constant(offset_of(found[2]) + 4 * n)
        words.append(uniform(number))
        assumed |= guess
    return _result(each, tuple(words), ASSUMED * assumed)


def _lane_read(threads: Threads, operands: Sequence[str], parts: Parts) -> int | None:
    """Return the lane that all lanes read with a SHFL; None where they read several, or unknown."""
    chosen = threads.read(operands[2])
    if "IDX" not in parts or chosen.bits is None or np.ptp(chosen.bits):
        return None
    return int(chosen.bits[0, 0]) % LANES


def _from_one(threads: Threads, each: Instruction, parts: Parts) -> Effect:
    """A value of one lane, in all lanes: SHFL.IDX by a constant, and R2UR."""
    operands = [one for one in each.operands if not re.match(r"U?P[\dT]$", one)]
    value = threads.read(operands[1])
    lane = _lane_read(threads, operands, parts) if each.op == "SHFL" else 0
    if lane is None:
        return None
    made = value.bits
    if made is not None and made.shape[1] > 1:
        made = np.repeat(made.reshape(len(made), -1, LANES)[:, :, lane], LANES, axis=1)
    found = source_of(operands[0])
    if not found.file or found.number in "ZT":
        return {}
    return {found.file + found.number: Value(made, value.depends & ~LANE)}


def _elect(threads: Threads, each: Instruction, _: Parts) -> Effect:
    """A thread that is chosen: the first lane."""
    names = [one for one in each.operands if re.match(r"U?P\d$", one)]
    first = (threads.launch.places["SR_LANEID"] == 0).astype(np.int64)
    return {name: Value(first, LANE) for name in names[:1]}


_EVALUATED: dict[str, Callable[[Threads, Instruction, Parts], Effect]] = {
    **dict.fromkeys(("MOV", "UMOV", "MOV32I"), _move),
    **dict.fromkeys(("IMAD", "UIMAD"), _multiply),
    **dict.fromkeys(("IADD3", "UIADD3", "VIADD", "IADD", "UVIADD"), _add),
    **dict.fromkeys(("LEA", "ULEA"), _lea),
    **dict.fromkeys(("SHF", "USHF"), _shift),
    **dict.fromkeys(("LOP3", "ULOP3"), _logic),
    **dict.fromkeys(("PLOP3", "UPLOP3"), _predicates),
    **dict.fromkeys(("ISETP", "UISETP"), _compare),
    **dict.fromkeys(("SEL", "USEL"), _select),
    **dict.fromkeys(("IMNMX", "VIMNMX", "UIMNMX"), _least),
    "VIADDMNMX": _added_least,
    **dict.fromkeys(("PRMT", "UPRMT"), _permute),
    **dict.fromkeys(("SGXT", "USGXT"), _extend),
    "IABS": _absolute,
    **dict.fromkeys(("I2F", "MUFU", "F2I"), _floats),
    **dict.fromkeys(("S2R", "S2UR", "CS2R"), _special),
    **dict.fromkeys(("LDC", "ULDC", "LDCU"), _constant),
    **dict.fromkeys(("SHFL", "R2UR"), _from_one),
    "ELECT": _elect,
}
