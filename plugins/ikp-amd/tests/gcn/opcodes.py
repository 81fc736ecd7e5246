"""Scalar and vector instructions of AMD's assembly, as functions for the simulated machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gcn.program import Instruction, Register
from tests.machines.ptx_program import FaultError

WORD = 0xFFFFFFFF
LONG = 0xFFFFFFFFFFFFFFFF


def _signed(value: int, bits: int = 32) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


# Result and carry bit of scalar arithmetic; None leaves the bit as it is.
_ARITHMETIC: dict[str, Callable[[int, int, int], tuple[int, int | None]]] = {
    "s_add_u32": lambda a, b, c: (a + b, a + b > WORD),
    "s_addc_u32": lambda a, b, c: (a + b + c, a + b + c > WORD),
    "s_add_i32": lambda a, b, c: (a + b, abs(_signed(a) + _signed(b) + 0.5) > 1 << 31),
    "s_sub_u32": lambda a, b, c: (a - b, a < b),
    "s_subb_u32": lambda a, b, c: (a - b - c, a < b + c),
    "s_sub_i32": lambda a, b, c: (a - b, abs(_signed(a) - _signed(b) + 0.5) > 1 << 31),
    "s_mul_i32": lambda a, b, c: (a * b, None),
    "s_mul_hi_u32": lambda a, b, c: (a * b >> 32, None),
    "s_min_u32": lambda a, b, c: (min(a, b), a < b),
    "s_max_u32": lambda a, b, c: (max(a, b), a > b),
    "s_bfm_b32": lambda a, b, c: ((1 << (a & 31)) - 1 << (b & 31), None),
    "s_cselect_b32": lambda a, b, c: (a if c else b, None),
}
for _shift in range(1, 5):
    _ARITHMETIC[f"s_lshl{_shift}_add_u32"] = lambda a, b, c, n=_shift: (  # type: ignore[misc]
        (a << n) + b,
        (a << n) + b > WORD,
    )

# Results whose carry bit says that they are not zero, by name without the size.
_LOGIC: dict[str, Callable[[int, int], int]] = {
    "s_and": lambda a, b: a & b,
    "s_or": lambda a, b: a | b,
    "s_xor": lambda a, b: a ^ b,
    "s_andn2": lambda a, b: a & ~b,
    "s_orn2": lambda a, b: a | ~b,
}
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "ne": lambda a, b: a != b,
}


def run_scalar(wave: Any, it: Instruction) -> None:
    """Run a scalar instruction that is no branch and no access to memory."""
    name, *kind = it.name.rsplit("_", 1)
    bits = 64 if kind and kind[0] in {"b64", "u64", "i64"} else 32
    most = LONG if bits == 64 else WORD
    values = [
        wave.read(o, bits) if not isinstance(o, str) else 0
        for o in (it.operands if name.startswith(("s_cmp", "s_bitcmp")) else it.operands[1:])
    ]
    into = it.operands[0]
    if it.name in _ARITHMETIC:
        result, carry = _ARITHMETIC[it.name](values[0], values[1], wave.scc)
        wave.write(into, result & WORD)
        wave.scc = wave.scc if carry is None else int(carry)
    elif name in _LOGIC:
        result = _LOGIC[name](*values) & most
        wave.write(into, result)
        wave.scc = int(result != 0)
    elif name.startswith(("s_cmp_", "s_cmpk_")):
        left, right = (v & WORD for v in values) if bits == 32 else values
        if kind[0] == "i32":
            left, right = _signed(left), _signed(right)
        wave.scc = int(_COMPARE[name.rsplit("_", 1)[1]](left, right))
    elif name in {"s_bitcmp0", "s_bitcmp1"}:
        wave.scc = int((values[0] >> (values[1] & 31) & 1) == int(name[-1]))
    elif it.name in {"s_mov_b32", "s_movk_i32", "s_mov_b64"}:
        wave.write(into, values[0] & most)
    elif it.name == "s_cselect_b64":
        wave.write(into, values[0] if wave.scc else values[1])
    elif it.name == "s_and_saveexec_b64":
        before = wave.exec
        wave.exec = before & values[0]
        wave.write(into, before)
        wave.scc = int(wave.exec != 0)
    elif it.name == "s_getreg_b32":
        wave.write(into, wave.hardware(str(it.operands[1])))
    else:
        _shift_or_count(wave, it, values, bits)


def _shift_or_count(wave: Any, it: Instruction, values: list[int], bits: int) -> None:
    name, into, most = it.name.rsplit("_", 1)[0], it.operands[0], (1 << bits) - 1
    if name in {"s_lshl", "s_lshr", "s_ashr"}:
        by = values[1] & bits - 1
        left = _signed(values[0], bits) if name == "s_ashr" else values[0]
        result = (left << by if name == "s_lshl" else left >> by) & most
        wave.write(into, result)
        wave.scc = int(result != 0)
    elif it.name == "s_bcnt1_i32_b32":
        wave.write(into, values[0].bit_count())
        wave.scc = int(values[0] != 0)
    elif it.name == "s_flbit_i32_b32":
        wave.write(into, 32 - values[0].bit_length() if values[0] else WORD)
    elif it.name == "s_bitset1_b32":
        wave.write(into, wave.read(into) | 1 << (values[0] & 31))
    elif it.name == "s_bitset0_b32":
        wave.write(into, wave.read(into) & ~(1 << (values[0] & 31)))
    elif it.name == "s_addk_i32":
        wave.write(into, (wave.read(into) + _signed(values[0] & 0xFFFF, 16)) & WORD)
    elif it.name == "s_mulk_i32":
        wave.write(into, wave.read(into) * _signed(values[0] & 0xFFFF, 16) & WORD)
    else:
        raise FaultError("this machine does not know the instruction")


def _f32(values: Any) -> Any:
    return values.astype(np.uint32).view(np.float32)


def _bits(values: Any) -> Any:
    return values.astype(np.float32).view(np.uint32).astype(np.uint64)


def _i32(values: Any) -> Any:
    return values.astype(np.uint32).view(np.int32).astype(np.int64)


def _reverse(values: Any) -> Any:
    return np.array([int(f"{int(v) & WORD:032b}"[::-1], 2) for v in values], np.uint64)


def _signed_field(value: Any, offset: Any, width: Any) -> Any:
    picked = [
        _signed(int(v) >> int(o) & (1 << int(w)) - 1, int(w)) & WORD
        for v, o, w in zip(value, offset, width, strict=True)
    ]
    return np.array(picked, np.uint64)


_VECTOR: dict[str, Callable[..., Any]] = {
    "v_mov_b32": lambda a: a,
    "v_mov_b64": lambda a: a,
    "v_add_u32": lambda a, b: a + b,
    "v_sub_u32": lambda a, b: a - b,
    "v_and_b32": lambda a, b: a & b,
    "v_or_b32": lambda a, b: a | b,
    "v_and_or_b32": lambda a, b, c: a & b | c,
    "v_lshl_or_b32": lambda a, b, c: a << (b & np.uint64(31)) | c,
    "v_lshlrev_b32": lambda a, b: b << (a & np.uint64(31)),
    "v_lshrrev_b32": lambda a, b: b >> (a & np.uint64(31)),
    "v_lshlrev_b64": lambda a, b: b << (a & np.uint64(63)),
    "v_lshl_add_u64": lambda a, b, c: (a << (b & np.uint64(7))) + c,
    "v_bfrev_b32": _reverse,
    "v_bfe_i32": _signed_field,
    "v_cvt_f32_u32": lambda a: _bits(a.astype(np.float32)),
    "v_cvt_u32_f32": lambda a: _f32(a).astype(np.uint64),
    "v_cvt_f16_f32": lambda a: _f32(a).astype(np.float16).view(np.uint16).astype(np.uint64),
    "v_cvt_f32_f16": lambda a: _bits(
        (a & np.uint64(0xFFFF)).astype(np.uint16).view(np.float16).astype(np.float32)
    ),
    "v_rcp_f32": lambda a: _bits(np.float32(1) / _f32(a)),
    "v_rcp_iflag_f32": lambda a: _bits(np.float32(1) / _f32(a)),
    "v_mul_f32": lambda a, b: _bits(_f32(a) * _f32(b)),
}


def run_vector(wave: Any, it: Instruction) -> None:
    """Run a vector instruction that does not access memory."""
    into, words = it.operands[0], 2 if it.name.endswith("64") else 1
    if it.name == "v_readlane_b32":
        assert isinstance(it.operands[1], Register)
        wave.write(into, wave.lane(it.operands[1], wave.read(it.operands[2])))
        return
    if it.name == "v_readfirstlane_b32":
        source = it.operands[1]
        assert isinstance(source, Register)
        first = (wave.exec & -wave.exec).bit_length() - 1 if wave.exec else 0
        wave.write(into, wave.lane(source, first))
        return
    values = [wave.vector(o, words) for o in it.operands[1:] if not isinstance(o, str)]
    if it.name.startswith("v_cmp_"):
        _, _, test, kind = it.name.split("_")
        left, right = (_i32(v) if kind == "i32" else v for v in values[:2])
        hits = _COMPARE[test](left, right)
        mask = sum(1 << lane for lane in range(len(hits)) if hits[lane])
        wave.write(into, mask & wave.exec)
    elif it.name == "v_cndmask_b32":
        mask = wave.read(it.operands[3])
        chosen = np.array([mask >> lane & 1 for lane in range(64)], bool)
        wave.write_vector(into, np.where(chosen, values[1], values[0]))
    elif it.name in _VECTOR:
        if it.flags.get("clamp") and it.name == "v_sub_u32":
            wave.write_vector(
                into, np.where(values[0] < values[1], np.uint64(0), values[0] - values[1])
            )
            return
        wave.write_vector(into, _VECTOR[it.name](*values), words)
    else:
        raise FaultError("this machine does not know the instruction")
