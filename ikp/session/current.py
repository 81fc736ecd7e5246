"""The current session, which records a launch; the kill switch ``IKP=0``; this process's rank.

Each thread and task has its own sessions: those that it, or the task that created it, has opened.
They lie in a ``contextvars`` variable, innermost last. A new thread starts with an empty one
(Python 3.11 to 3.13): threads of a pool, and those in which torch runs ``backward``, lack the
session that they work for. So a thread without sessions takes the main thread's.
docs/decisions/0020 says what else was tried.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from os import PathLike
from typing import Any, Final, Protocol

from ikp.errors import ExportError, UsageError
from ikp.paths import path_text
from ikp.session import _foreign as foreign
from ikp.session.known_launch import revoke
from ikp.warning import warn


class Session(Protocol):
    """The interface of a session for launches: it hands out buffers, as ``ikp.profile`` does."""

    facts: dict[str, str]

    @property
    def held(self) -> int:
        """Bytes that the records take: on devices, and on the host once they are decoded."""

    def buffer(self, label: str, *args: Any, **options: Any) -> Any:
        """Return the ``prof`` argument for one kernel launch; None where it is not recorded."""

    def discard(self, prof: Any) -> None:
        """Forget the buffer of a launch that never happened."""


class Opening:
    """One opening of a session: its thread and process, and whether it still lasts.

    ``session`` is None once it has ended, and where no launch is to find it. ``origin`` is the
    object that ``ikp.profile`` returned: another one than the session where that decorates a
    function, each call of which has a session. ``everywhere`` says that ``start()`` opened it,
    whose end is in no block of the program's text.
    """

    __slots__ = (
        "around",
        "by_main",
        "everywhere",
        "lasts",
        "origin",
        "pid",
        "recording",
        "replays",
        "session",
    )

    def __init__(
        self, session: Session | None, origin: object = None, *, everywhere: bool = False
    ) -> None:
        self.session = session
        self.lasts = True
        self.origin = origin
        self.recording: object = None  # its Recording, for the session to find
        self.replays: Callable[..., None] | None = None  # keeps those of a CUDA graph
        self.everywhere = everywhere
        self.by_main = _in_main_thread()
        self.pid = os.getpid()
        self.around = lasting()

    @property
    def here(self) -> bool:
        """Whether this process opened it; False in a child forked since."""
        return self.pid == os.getpid()


_stack: ContextVar[tuple[Opening, ...]] = ContextVar("ikp_sessions", default=())
_open: list[Opening] = []  # of all threads, in the order in which they were opened


def opened(session: Session, origin: object, *, everywhere: bool) -> Opening:
    """Make a session the current one of this context."""
    opening = Opening(session, origin, everywhere=everywhere)
    _stack.set((*opening.around, opening))
    _open.append(opening)
    revoke()
    return opening


def closed(opening: Opening) -> None:
    """End an opening, in any context: the others find that it has ended."""
    opening.lasts = False
    opening.session = opening.recording = opening.replays = None
    if opening in _open:
        _open.remove(opening)
    _stack.set(lasting())
    revoke()


def lasting() -> tuple[Opening, ...]:
    """Return the openings that this context is in, innermost last."""
    return tuple(opening for opening in _stack.get() if opening.lasts)


def all_open() -> tuple[Opening, ...]:
    """Return the openings of all threads and tasks, in the order in which they were opened."""
    return tuple(_open)


def is_open(session: Session) -> bool:
    """Return whether a session is open, in any thread or task."""
    return any(opening.session is session for opening in tuple(_open))


def buffer(session: Session, label: str, options: dict[str, Any]) -> Any:
    """Take a buffer; None where another thread has ended the session since it was found open."""
    try:
        return session.buffer(label, **options)
    except UsageError:
        if is_open(session):
            raise
        return None


def current() -> Session | None:
    """Return the session that records a kernel launched here and now; None where there is none.

    It is the session that this thread or asyncio task, or the task that created it, opened last.
    Without one, it is the main thread's: for another thread any that is open there, for another
    task of the main thread one that ``start()`` opened. Where several might be meant, it is none of
    them, and a warning says so.
    """
    own = lasting()
    opening = own[-1] if own else _of_main_thread()
    return opening.session if opening is not None else None


def _of_main_thread() -> Opening | None:
    main = _in_main_thread()
    found = [each for each in tuple(_open) if each.by_main and (each.everywhere or not main)]
    if not found:
        return None
    last = found[-1]
    if set(found) <= {*last.around, last}:
        return last
    warn(
        "a kernel is launched in a thread that opened no session, while the main thread has "
        "several open that are not inside one another: it runs unrecorded. Name the session, "
        "ikp.instrument(kernel, prof=prof), or start the thread in the context of its session: "
        "contextvars.copy_context().run.",
        stacklevel=4,
    )
    return None


def _in_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


KILL_SWITCH = "IKP"
"""``IKP=0`` in the environment: every buffer is None, kernels compile as if ikp were not there."""

_state = {"export": True}


def enabled() -> bool:
    """Return whether the environment lets ikp record."""
    if not is_set(KILL_SWITCH):
        return True
    return os.environ.get(KILL_SWITCH, "1").strip().lower() not in {"0", "off", "false", "no"}


def is_set(name: str) -> bool:
    """Return whether a variable is in the environment; each launch asks for some.

    ``os.environ`` encodes the name in Python, and raises where there is no such variable: 1 us.
    """
    data = foreign.environment()
    return name in os.environ if data is None else _encoded(name) in data


_encoded = cache(os.fsencode)


def set_export(on: bool) -> None:
    """Write trace files at the end of sessions, or don't; recording goes on either way."""
    _state["export"] = bool(on)


def exporting() -> bool:
    """Return whether sessions write their trace files."""
    return _state["export"]


LAUNCHERS: Final = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),  # MVAPICH2
    ("SLURM_PROCID", "SLURM_NTASKS"),  # srun
)
"""Environment variables of launchers beside torch's: the rank, and how many there are."""
PID: Final = "{pid}"
STEP: Final = "{step}"
PLACE: Final = "{rank}"
"""The placeholders in a path: of a process's number, of a cycle's first step, of the rank."""


def distributed() -> Any:
    """Return torch.distributed if this process is in a process group; None otherwise."""
    found = sys.modules.get("torch.distributed")  # imported where there is a process group
    return found if found and _has_groups(found) and found.is_initialized() else None


@cache
def _has_groups(distributed: Any) -> bool:
    """Return whether torch was built with process groups."""
    return bool(distributed.is_available())


def current_rank() -> int | None:
    """Return the rank of this process, None if it has none.

    It is the process group's. Before there is one, it is ``RANK`` in the environment, if a
    ``WORLD_SIZE`` above it is set, too, as by torchrun: ``RANK`` alone may mean anything. Else it
    is the one that another launcher had set when this was first asked.
    """
    if (dist := distributed()) is not None:
        return int(dist.get_rank())
    if not is_set("WORLD_SIZE"):
        return launched_as()
    return _numbered("RANK", "WORLD_SIZE")


@cache
def launched_as() -> int | None:
    """Return the rank that MPI's or Slurm's launcher gave this process; None if there is none."""
    found = (_numbered(*each, least=2) for each in LAUNCHERS)  # any Slurm job has these
    return next((rank for rank in found if rank is not None), None)


def _numbered(name: str, count: str, *, least: int = 1) -> int | None:
    """Return the rank in a variable, if it is below the number of ranks in another one."""
    rank, size = os.environ.get(name, ""), os.environ.get(count, "")
    if rank.isdecimal() and size.isdecimal() and int(rank) < int(size) >= least:
        return int(rank)
    return None


def with_rank(path: str | PathLike[str]) -> str:
    """Return the path with this process's rank for each ``{rank}`` in it, and pid for ``{pid}``.

    Raises:
        ExportError: it has a ``{rank}``, and this process has none.
    """
    text = path_text(path).replace(PID, str(os.getpid()))
    if PLACE not in text:
        return text
    rank = current_rank()
    if rank is None:
        raise ExportError(
            f"{text} wants the rank of this process, which has none. Call "
            "torch.distributed.init_process_group before the session begins, start the program "
            f"with torchrun, or leave {PLACE} out."
        )
    return text.replace(PLACE, str(rank))
