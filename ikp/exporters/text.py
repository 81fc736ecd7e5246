"""Text of many rows at a time, as matrices of bytes: digits of numbers, names, constant bytes.

A part holds one piece of each row's text in a matrix of bytes; where a row's piece is shorter than
the matrix is wide, it has zeros, anywhere. Parts are laid side by side, and the zeros dropped: that
takes two passes over memory and no loop in Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Part = NDArray[np.uint8]
"""Bytes of one piece of each row's text: rows x width."""

_CHUNK: Final = 10_000
_DIGITS: Final = 4
"""Digits per look-up in a table."""


def _chunks() -> NDArray[np.uint32]:
    """Return the text of 0 to 9999: bare, then padded with zeros to four digits."""
    bare = [b"%d" % i for i in range(_CHUNK)]
    padded = [b"%04d" % i for i in range(_CHUNK)]
    rows = [text.rjust(_DIGITS, b"\0") for text in bare] + padded
    return np.frombuffer(b"".join(rows), np.uint32)


_CHUNKS: Final = _chunks()
_THOUSANDTHS: Final = np.frombuffer(b"".join(b".%03d" % i for i in range(1000)), np.uint32)


def integers(values: NDArray[np.integer[Any]]) -> Part:
    """Return integers of up to 64 bits as decimal digits, with a minus where they are negative."""
    negative = values < 0 if values.dtype.kind == "i" else None
    if negative is None or not negative.any():
        return _digits(values.astype(np.uint64, copy=False))
    size = values.astype(np.int64).view(np.uint64)
    minus = np.where(negative, np.uint8(ord("-")), np.uint8(0))
    return np.column_stack([minus, _digits(np.where(negative, ~size + np.uint64(1), size))])


def _digits(values: NDArray[np.uint64]) -> Part:
    most = int(values.max(initial=0))
    if most < 1 << 32:
        values = values.astype(np.uint32)  # divides twice as fast
    chunks = -(-len(str(most)) // _DIGITS)
    out = np.empty((len(values), chunks), np.uint32)
    chunk = values.dtype.type(_CHUNK)
    for place in range(chunks - 1, 0, -1):
        above = values // chunk
        low = (values - above * chunk).astype(np.int64)
        low += (above > 0) * _CHUNK
        text = _CHUNKS[low]
        if place < chunks - 1:
            text[values == 0] = 0
        out[:, place] = text
        values = above
    text = _CHUNKS[values.astype(np.int64)]
    if chunks > 1:
        text[values == 0] = 0
    out[:, 0] = text
    return out.view(np.uint8)


def thousandths(values: NDArray[np.int64]) -> Part:
    """Return integers that are not negative, divided by 1000: with three decimals, exactly."""
    whole = values // 1000
    decimals = _THOUSANDTHS[values - whole * 1000]
    return np.concatenate([integers(whole), decimals[:, None].view(np.uint8)], axis=1)


def reals(values: NDArray[np.float64]) -> Part:
    """Return floats as the shortest digits that read back as the same float."""
    return texts([repr(value).encode() for value in values.tolist()])


def texts(values: Sequence[bytes]) -> Part:
    """Return byte strings, none of which may hold a zero."""
    width = max(map(len, values), default=0) or 1
    return np.array(values, f"S{width}").view(np.uint8).reshape(-1, width)


class Texts:
    """Byte strings without zeros, looked up by number: ``texts[numbers]`` is a part.

    All are kept as one part where they are about as long as each other. Else a part is made of
    those that occur in it, and as wide as the longest of these.
    """

    def __init__(self, values: Sequence[bytes]) -> None:
        self._values = values
        self.sizes = np.fromiter(map(len, values), np.int64, len(values))
        in_vain = int(self.sizes.max(initial=0)) * len(values) - int(self.sizes.sum())
        self._part = texts(values) if in_vain <= _NARROW * len(values) else None

    def __getitem__(self, numbers: NDArray[np.integer[Any]]) -> Part:
        """Return the text of each row."""
        if self._part is not None:
            return np.asarray(self._part[numbers])
        used, at = np.unique(numbers, return_inverse=True)
        return np.asarray(texts([self._values[one] for one in used.tolist()])[at])


_NARROW: Final = 64
"""Bytes of padding that each text may take on average."""


def where(chosen: NDArray[np.bool_], part: bytes | Part) -> Part:
    """Return a part with the rows outside ``chosen`` empty."""
    row = np.frombuffer(part, np.uint8) if isinstance(part, bytes) else part
    return row * chosen.view(np.uint8)[:, None]


def lay(*parts: bytes | Part) -> Part:
    """Lay parts side by side; bytes are the same in all rows."""
    rows = next(len(part) for part in parts if not isinstance(part, bytes))
    widths = [len(part) if isinstance(part, bytes) else part.shape[1] for part in parts]
    out = np.empty((rows, sum(widths)), np.uint8)
    at = 0
    for part, width in zip(parts, widths, strict=True) if rows else ():
        # As one element of so many bytes, which numpy copies in one go.
        piece = np.ndarray((rows,), f"V{width}", out, at, out.strides[:1])
        if isinstance(part, bytes):
            piece[:] = np.void(part)
        else:
            piece[:] = np.ascontiguousarray(part).view(f"V{width}")[:, 0]
        at += width
    return out


def join(*parts: bytes | Part) -> bytes:
    """Return the text of all rows, one after another."""
    return lay(*parts).tobytes().translate(None, b"\0")


def cut(sizes: NDArray[np.int64], most: int = 1 << 20) -> Iterator[slice]:
    """Yield parts of rows of so many bytes, each of which takes at most ``most`` as a matrix.

    A row that is longer is a part of its own: one long text makes no other row longer.
    """
    low, ends = 0, [len(sizes)]
    while low < len(sizes):
        part = slice(low, ends[-1])
        rows = part.stop - low
        if rows > 1 and rows * int(sizes[part].max()) > most:
            ends.append(low + rows // 2)
            continue
        yield part
        low = ends.pop()


def some_at_once(sizes: Sequence[int], count: int) -> Iterator[slice]:
    """Yield parts of at most ``count`` rows of so many bytes, and of fewer where one is long."""
    for low in range(0, len(sizes), count):
        for part in cut(np.array(sizes[low : low + count], np.int64)):
            yield slice(low + part.start, low + part.stop)


def at_once(widest: int, budget: int = 1 << 19) -> int:
    """Return how many rows of at most ``widest`` bytes to make together: they fit into a cache."""
    return max(1, budget // max(1, widest))
