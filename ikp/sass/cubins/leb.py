"""LEB128, DWARF's integers of variable length: decode, skip and encode."""

from __future__ import annotations


def unsigned(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return an unsigned number and the offset behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def signed(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return a signed number and the offset behind it."""
    value, after = unsigned(data, at)
    top = 1 << 7 * (after - at) - 1
    return value - 2 * (value & top), after


def end(data: bytes | bytearray, at: int) -> int:
    """Return the offset behind a number, signed or not."""
    while data[at] >= 0x80:
        at += 1
    return at + 1


def encoded(value: int) -> bytes:
    """Return the bytes of an unsigned number."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
