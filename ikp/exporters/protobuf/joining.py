"""``join``: encodes protobuf messages from columns, by shape: by ``join.c``, or else by numpy.

The bytes are the same. A shape becomes a list of the parts of ``join.c``: the last one first,
because it writes backwards.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.compiling import CFile, CompileError
from ikp.exporters.protobuf import shapes
from ikp.exporters.protobuf.shapes import Message, Stream, SubmessageGroup, Times
from ikp.exporters.protobuf.varints import WORD, MessagePart, Numbers

JOIN: Final = CFile(Path(__file__).with_name("join.c"), "libikp-join.so")
_END, _TEXT, _NUMBER, _TIME, _COLUMN, _GROUP, _SIZE = range(7)
_PART: Final = np.dtype(
    [
        *(("kind", "i2"), ("ends", "i2"), ("size", "i4"), ("text", "u8")),
        *(("data", "u8"), ("more", "u8"), ("width", "i8")),
    ]
)
_STREAM: Final = np.dtype([("parts", "u8"), ("places", "u8"), ("times", "u8"), ("rows", "i8")])
_MOST_VARINT: Final = 10
_AT_ONCE: Final = 128
"""Bytes that ``join.c`` stores at once, from the last one on: as many must be free in front."""
_DEPTH: Final = 32
"""Messages within messages that ``join.c`` has room for."""

Ints = NDArray[np.int64]

_compiled: list[Any] = []
"""The function ``ikp_join``, or None where it can't be compiled; empty before :func:`prepare`."""


def prepare() -> None:
    """Compile ``join.c`` if that was never done, and load it; where that fails, numpy serves."""
    if _compiled:
        return
    try:
        library = ctypes.CDLL(str(JOIN.library()))
    except (OSError, CompileError, RuntimeError):  # no compiler, no home: only speed is lost
        _compiled.append(None)
        return
    function = library.ikp_join
    number, address = ctypes.c_int64, ctypes.c_void_p
    function.argtypes = (address, number, address, number, ctypes.c_uint64, address)
    function.restype = number
    _compiled.append(function)


def join(*streams: Stream, before: int = 0) -> NDArray[np.uint8]:
    """Encode messages of several shapes, and lay them end to end.

    With each shape come the places of its messages in the whole sequence, ``0 .. n - 1`` in all.
    ``before`` is the time of the message in front of them.
    """
    if not _compiled or _compiled[0] is None:
        return shapes.join(streams, before)
    programs = [_Program(*stream) for stream in streams]
    table = np.array([program.stream for program in programs], _STREAM)
    order = np.empty(sum(program.rows for program in programs), np.uint64)
    room = _AT_ONCE + sum(program.room for program in programs)
    out = np.empty(room, np.uint8)
    size = _compiled[0](
        *(table.ctypes.data, len(table), order.ctypes.data, len(order)),
        *(before % (1 << 64), out.ctypes.data + room),
    )
    if size < 0:
        raise MemoryError(f"no memory to lay out {len(order):,} packets")
    return out[room - size :]


class _Program:
    """The parts of a shape for ``join.c``, and the arrays that they point to."""

    def __init__(self, shape: Message, places: Ints) -> None:
        self._held: list[object] = []  # the owners of the memory that parts point to
        self._found: list[tuple[int, int, bytes, int, int, int]] = []
        self._ends = 0  # messages that end in front of the last part found
        self._each = self._rest = 0
        self._times = 0  # their address; 0 for messages without times
        self._message(shape, 1)
        self._add(_END)
        self._parts = np.array([_row(*one) for one in self._found], _PART)
        self.rows = len(places)
        self.stream = (
            self._parts.ctypes.data,
            self._address(places, np.int64),
            self._times,
            self.rows,
        )

    @property
    def room(self) -> int:
        """How many bytes the messages may take."""
        return self._each * self.rows + self._rest

    def _message(self, shape: Message, depth: int) -> None:
        if depth > _DEPTH:
            raise ValueError(f"more than {_DEPTH} messages within each other")
        self._ends += 1
        for part in reversed(shape.parts):
            if isinstance(part, Message):
                self._message(part, depth + 1)
            elif isinstance(part, bytes):
                self._text(part)
            else:
                self._column(part)
        self._each += _MOST_VARINT
        self._add(_SIZE, more=int(_has_columns(shape)))
        self._text(shape.tag)
        if _has_columns(shape):  # its tag is left out with it: bytes in front are a part apart
            self._add(_TEXT)

    def _add(self, kind: int, data: int = 0, more: int = 0, width: int = 0) -> None:
        self._found.append((kind, self._ends, b"", data, more, width))
        self._ends = 0

    def _text(self, text: bytes) -> None:
        """Put constant bytes in front of the last part."""
        self._each += len(text)
        while text:
            if self._ends or not self._found or len(self._found[-1][2]) == WORD:
                self._add(_TEXT)
            kind, ends, behind, *rest = self._found[-1]
            text, end = text[: len(behind) - WORD], text[len(behind) - WORD :]
            self._found[-1] = (kind, ends, end + behind, *rest)  # type: ignore[assignment]

    def _column(self, part: MessagePart | Numbers | Times | SubmessageGroup) -> None:
        if isinstance(part, SubmessageGroup):
            bounds = np.append(part.first, part.count)
            inner = _Program(part.shape, np.arange(part.count))
            self._held.append(inner)
            self._rest += inner.room
            self._add(_GROUP, inner.stream[0], self._address(bounds, np.int64))
        elif isinstance(part, MessagePart):
            sizes = np.ascontiguousarray(part.sizes, np.int64)
            self._rest += int(sizes.sum())
            words, width = self._address(part.words, np.uint64), part.words.shape[1] * WORD
            self._add(_COLUMN, words, self._address(sizes, np.int64), width)
        else:
            self._each += _MOST_VARINT
            if isinstance(part, Times):
                self._times = self._address(part.values, np.int64)
                self._add(_TIME)
                return
            given = 0 if part.given is None else self._address(part.given, np.bool_)
            self._add(_NUMBER, self._address(part.values, np.uint64), given)

    def _address(self, values: NDArray[Any], dtype: type[Any]) -> int:
        held = np.ascontiguousarray(values, dtype)
        self._held.append(held)
        return int(held.ctypes.data)


def _row(kind: int, ends: int, text: bytes, *rest: int) -> tuple[int, ...]:
    return kind, ends, len(text), int.from_bytes(text.rjust(WORD, b"\0"), "little"), *rest


def _has_columns(shape: Message) -> bool:
    return any(
        _has_columns(part) if isinstance(part, Message) else not isinstance(part, bytes)
        for part in shape.parts
    )
