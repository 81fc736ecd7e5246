"""Messages between a program and the process that checks its kernels, above all the request.

A request has a kernel's plain and other form, its launch shape and its buffers, to compare both
forms or to time them. Messages are bytes and numbers alone: the process that checks shares no
objects with the program.

The process begins with ``Ready``, and again when it has a context. Then, for each kernel, comes a
``Request``, and a ``StagedCopy`` for each piece of memory. ``Ready`` answers each of these. Then
comes ``RunKernels``, answered by a ``Stage`` before each run, and by a ``CheckResult``, or ``Last``
with it. Before the result comes a ``Content`` if the request asks for one; where it asks for times,
``RunTimes`` comes in the result's place. Instead of any answer, ``Failure`` may come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ikp.checking.comparison import Buffer, CheckResult

ATTRIBUTE_BYTES: Final = 72
"""The size of a launch attribute: its number, in eight bytes, and 64 bytes of its value."""
_COOPERATIVE: Final = 2
KEPT: Final = (_COOPERATIVE, 4, 5, 11)
"""Attributes that change what a kernel may compute: whether all blocks run at once, clusters' size,
their order and their preferred size. Others name streams, events or memory of the program's
context, say when the kernel may begin, or are about speed."""


@dataclass(frozen=True, slots=True)
class LaunchConfiguration:
    """The configuration of a launch, without its arguments."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int  # bytes of dynamic shared memory
    attributes: bytes = b""  # as the driver takes them
    settings: tuple[tuple[int, int], ...] = ()  # the function's attributes that the program set
    limits: tuple[tuple[int, int], ...] = ()  # of the context: stack, heap, print buffer


@dataclass(frozen=True, slots=True)
class KernelForm:
    """One form of a kernel, plain or with records, with its parameters and constants."""

    cubin: bytes
    parameters: bytes  # the values of all parameters, in one piece
    offsets: tuple[int, ...]  # of each parameter
    constants: Mapping[str, bytes]  # of the module, by name

    def with_argument(self, offset: int, value: bytes) -> KernelForm:
        """Return the code with one more parameter, or another value for some of the last bytes."""
        packed = bytearray(self.parameters.ljust(offset + len(value), b"\0"))
        packed[offset : offset + len(value)] = value
        offsets = tuple(sorted({*self.offsets, offset}))
        return replace(self, parameters=bytes(packed), offsets=offsets)


@dataclass(frozen=True, slots=True)
class Request:
    """A launch whose plain and other form are to be compared, or timed in turn."""

    name: str  # the kernel's, as the compiler wrote it
    shape: LaunchConfiguration
    plain: KernelForm
    recorded: KernelForm
    buffers: tuple[Buffer, ...]  # memory that a launch may write, and that is compared
    beside: tuple[Buffer, ...] = ()  # other memory that it needs: records, scratch
    result: Buffer | None = None  # of these: what is returned after the run with probes
    rounds: int = 0  # both forms are timed in turn so often, in place of being compared

    @property
    def memory(self) -> tuple[Buffer, ...]:
        """All memory that is copied."""
        return *self.buffers, *self.beside


def kept_attributes(attributes: bytes, *, cooperative: bool) -> bytes:
    """Return the attributes of a launch that another process can use, too."""
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
    """Return parameters in one piece, and the offset of each.

    Args:
        values: the offset and bytes of each.
    """
    size = max((offset + len(value) for offset, value in values), default=0)
    made = bytearray(size)
    for offset, value in values:
        made[offset : offset + len(value)] = value
    return bytes(made), tuple(sorted(offset for offset, _ in values))


STAGED_BYTES: Final = 64 << 20
"""The size of the memory that both processes share, through which copies go."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The process is ready for the next message. ``pid`` is its own."""

    pid: int


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a kernel can't be checked.

    ``taken`` is the range of addresses that are in use, and may be free in a new process.
    """

    text: str
    taken: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class StagedCopy:
    """So many of the staged bytes are to be copied to an address."""

    address: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class RunKernels:
    """All memory is copied: run the kernels."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Which kernel runs next, plain or with records, and how many seconds it may take."""

    recorded: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Content:
    """So many of the staged bytes are the result that the request asks for."""

    nbytes: int


@dataclass(frozen=True, slots=True)
class RunTimes:
    """The seconds that each run took, in turn."""

    plain: tuple[float, ...]
    other: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Last:
    """The last verdict: the process ends, because a kernel has failed in it."""

    verdict: CheckResult
