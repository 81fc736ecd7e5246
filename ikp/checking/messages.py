"""Messages between a program and the process that checks its kernels, and their order.

The process begins with ``Ready``, and again when it has a context. Then, for each kernel, comes a
``Request``, answered by ``Ready``; a ``Piece`` for each piece of memory, answered by ``Ready``; and
``Run``, answered by a ``Stage`` before each run, and by a ``Verdict``, or ``Last`` with it. Before
the verdict comes a ``Content`` if the request asks for a result; where it asks for times, ``Timed``
comes in the verdict's place. Instead of any answer, ``Failure`` may come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ikp.checking.comparison import Verdict

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
class Piece:
    """So many of the staged bytes are to be copied to an address."""

    address: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Run:
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
class Timed:
    """The seconds that each run took, in turn."""

    plain: tuple[float, ...]
    other: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Last:
    """The last verdict: the process ends, because a kernel has failed in it."""

    verdict: Verdict
