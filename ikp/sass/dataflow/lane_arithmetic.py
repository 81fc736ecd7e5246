"""Integer arithmetic of SASS on many threads at once, as far as addresses are made of it.

Each function takes the operands' 32-bit values as int64 arrays, whose shapes numpy broadcasts to a
number for each thread, and the opcode's modifiers. It returns the words of the result, the low one
first.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Words = tuple[Numbers, ...]

MASK = 0xFFFFFFFF
_SIGN = 0x80000000
_WORD = 32


def signed(value: Numbers) -> Numbers:
    """Return 32-bit values as signed numbers."""
    return (value ^ _SIGN) - _SIGN


def _pair(low: Numbers, high: Numbers) -> Numbers:
    return low | high << _WORD


def multiply(parts: Sequence[str], a: Numbers, b: Numbers, *rest: Numbers) -> Words:
    """IMAD: a product and a sum; ``rest`` is the addend's words, then a carry."""
    unsigned = "U32" in parts
    if "WIDE" in parts or "HI" in parts:
        left, right = (a, b) if unsigned else (signed(a), signed(b))
        whole = left * right + _pair(rest[0], rest[1])
        high = whole >> _WORD & MASK
        return (high,) if "HI" in parts else (whole & MASK, high)
    return ((a * b + sum(rest)) & MASK,)


def add(a: Numbers, b: Numbers, c: Numbers, carry: Numbers) -> Words:
    """IADD3: the sum, and its carry."""
    whole = a + b + c + carry
    return whole & MASK, (whole >> _WORD > 0).astype(np.int64)


def shift(parts: Sequence[str], a: Numbers, count: Numbers, c: Numbers) -> Words:
    """SHF: a pair of registers, shifted; its low or its high word."""
    long = "U64" in parts or "S64" in parts
    by = np.minimum(count, 63 if long else _WORD)
    if "L" in parts:
        if "HI" not in parts:
            return (a << by & MASK,)
        moved = _pair(a, c) << by
        return (moved >> _WORD & MASK,)
    top = signed(c) if "S32" in parts or "S64" in parts else c
    if "HI" in parts:
        return (top >> np.minimum(by, _WORD) & MASK,)
    if not long:
        return (a >> by & MASK,)
    near = a >> by | top << np.maximum(_WORD - by, 0)
    return (np.where(by < _WORD, near, top >> np.maximum(by - _WORD, 0)) & MASK,)


def shift_and_add(parts: Sequence[str], operands: Sequence[Numbers], carry: Numbers) -> Words:
    """LEA: the first operand, shifted by the last, plus the second; and the carry."""
    a, b, *more = operands
    count = more[-1]
    if "HI" not in parts:
        whole = ((a << count) & MASK) + b
        return whole & MASK, (whole >> _WORD > 0).astype(np.int64)
    top = signed(a) >> _WORD - count if "SX32" in parts else a >> _WORD - count | more[0] << count
    return ((top & MASK) + b + carry & MASK,)


def combine(table: int, a: Numbers, b: Numbers, c: Numbers) -> Numbers:
    """LOP3: a bitwise function of three operands, by its table of eight bits."""
    found: Numbers = np.zeros((1, 1), np.int64)
    for number in range(8):
        if table >> number & 1:
            one = a if number & 4 else ~a
            two = b if number & 2 else ~b
            found = found | one & two & (c if number & 1 else ~c)
    return found & MASK


_COMPARED: dict[str, Callable[[Numbers, Numbers], NDArray[np.bool_]]] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}


def compare(parts: Sequence[str], a: Numbers, b: Numbers) -> Numbers | None:
    """ISETP without its further predicate: 1 where the comparison holds; None for another."""
    found = next((_COMPARED[each] for each in parts if each in _COMPARED), None)
    if found is None:
        return None
    pair = (a, b) if "U32" in parts else (signed(a), signed(b))
    return found(*pair).astype(np.int64)


def permute(a: Numbers, selector: Numbers, b: Numbers) -> Numbers:
    """PRMT: bytes of two registers, by a selector of four digits."""
    both, found = _pair(a, b), np.zeros((1, 1), np.int64)
    for place in range(4):
        digit = selector >> 4 * place & 15
        byte = both >> 8 * (digit & 7) & 0xFF
        byte = np.where(digit & 8, np.where(byte & 0x80, 0xFF, 0), byte)
        found = found | byte << 8 * place
    return found


def extend(parts: Sequence[str], a: Numbers, count: Numbers) -> Numbers:
    """SGXT: the lowest bits, extended by their sign, or by zeros."""
    low = a & ((1 << count) - 1)
    if "U32" in parts:
        return low
    sign = 1 << np.maximum(count - 1, 0)
    return (low ^ sign) - sign & MASK


def of_floats(parts: Sequence[str], op: str, a: Numbers) -> Numbers | None:
    """I2F, MUFU.RCP and F2I of 32 bits, of which compilers make divisions; None for others."""
    wide = {"64", "F64", "S64", "U64", "RCP64H"} & {*parts}
    if wide:
        return None
    with np.errstate(all="ignore"):
        if op == "I2F":
            number = a if "U32" in parts else signed(a)
            return _bits(number.astype(np.float32))
        if op == "MUFU" and "RCP" in parts:
            return _bits(np.float32(1) / a.astype(np.uint32).view(np.float32))
        if op == "F2I":
            known = np.nan_to_num(a.astype(np.uint32).view(np.float32).astype(np.float64))
            return np.trunc(np.clip(known, -(2.0**31), 2.0**32 - 1)).astype(np.int64) & MASK
    return None


def _bits(numbers: NDArray[np.float32]) -> Numbers:
    return numbers.view(np.uint32).astype(np.int64)
