"""What a program and the process that checks its kernels say to each other, and in which order.

The process begins with ``Ready``, and again when it has a context. Then, for each kernel, comes a
``Request``, answered by ``Ready``; a ``Piece`` for each piece of memory, answered by ``Ready``; and
``Run``, answered by a ``Stage`` before each run, and by a ``Verdict``, or ``Last`` with it. Instead
of any answer, ``Failure`` may come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ikp.checking.comparison import Verdict

STAGED_BYTES: Final = 64 << 20
"""Memory that both processes have, through which copies go."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Go on. ``pid`` is of the process."""

    pid: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A kernel can't be checked: why.

    ``taken`` is where addresses begin and end that are in use, and may be free in a new process.
    """

    text: str
    taken: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """So many of the staged bytes belong at an address."""

    address: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Run:
    """All memory is there."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What is run next, and how many seconds that may take."""

    recorded: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Last:
    """What was found; the process ends, because a kernel has failed in it."""

    verdict: Verdict
