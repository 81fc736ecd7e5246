"""What is passed to the process that checks a kernel: two forms of it, and how it is launched.

All of it is bytes and numbers: the process shares nothing with the program but what is in here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ikp.checking.comparison import Buffer

ATTRIBUTE_BYTES: Final = 72
"""Of a launch's attribute: its number, in eight bytes, and 64 bytes of its value."""
_COOPERATIVE: Final = 2
KEPT: Final = (_COOPERATIVE, 4, 5, 11)
"""Attributes that change what a kernel may compute: whether all blocks run at once, clusters' size,
their order and their preferred size. Others name streams, events or memory of the program's
context, say when the kernel may begin, or are about speed."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How a kernel is launched, but for its arguments."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int  # bytes of dynamic shared memory
    attributes: bytes = b""  # as the driver takes them
    settings: tuple[tuple[int, int], ...] = ()  # what the program has set for the function
    limits: tuple[tuple[int, int], ...] = ()  # of the context: stack, heap, print buffer


@dataclass(frozen=True, slots=True)
class Code:
    """One form of a kernel, with what it is passed."""

    cubin: bytes
    parameters: bytes  # the values of all parameters, in one piece
    offsets: tuple[int, ...]  # where each begins
    constants: Mapping[str, bytes]  # of the module, by name

    def with_argument(self, offset: int, value: bytes) -> Code:
        """Return it with one more parameter, or another value for some of the last bytes."""
        packed = bytearray(self.parameters.ljust(offset + len(value), b"\0"))
        packed[offset : offset + len(value)] = value
        offsets = tuple(sorted({*self.offsets, offset}))
        return replace(self, parameters=bytes(packed), offsets=offsets)


@dataclass(frozen=True, slots=True)
class Request:
    """A launch that is to be checked."""

    name: str  # the kernel's, as the compiler wrote it
    shape: Shape
    plain: Code
    recorded: Code
    buffers: tuple[Buffer, ...]  # what a launch may write, and is compared
    beside: tuple[Buffer, ...] = ()  # memory that it needs beside: records, scratch

    @property
    def memory(self) -> tuple[Buffer, ...]:
        """All memory that is copied."""
        return *self.buffers, *self.beside


def kept_attributes(attributes: bytes, *, cooperative: bool) -> bytes:
    """Return the attributes of a launch with which another process can make it, too."""
    each = [
        attributes[at : at + ATTRIBUTE_BYTES] for at in range(0, len(attributes), ATTRIBUTE_BYTES)
    ]
    made = [one for one in each if _number(one) in KEPT]
    if cooperative and all(_number(one) != _COOPERATIVE for one in made):
        made.append(attribute(_COOPERATIVE, (1).to_bytes(4, "little")))
    return b"".join(made)


def _number(attribute_bytes: bytes) -> int:
    return int.from_bytes(attribute_bytes[:4], "little")


def attribute(which: int, value: bytes) -> bytes:
    """Return an attribute of a launch as the driver takes it."""
    return (which.to_bytes(8, "little") + value).ljust(ATTRIBUTE_BYTES, b"\0")


def packed(values: Sequence[tuple[int, bytes]]) -> tuple[bytes, tuple[int, ...]]:
    """Return parameters in one piece, and where each begins.

    Args:
        values: of each, where it begins and its bytes.
    """
    size = max((offset + len(value) for offset, value in values), default=0)
    made = bytearray(size)
    for offset, value in values:
        made[offset : offset + len(value)] = value
    return bytes(made), tuple(sorted(offset for offset, _ in values))
