"""Files that appear whole or not at all, and what exporters that write them share."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np

from ikp.core.abi import Kind, PayloadType
from ikp.core.flows import is_flow
from ikp.errors import ExportError
from ikp.paths import checked_target
from ikp.plugins import INTERFACE

if TYPE_CHECKING:
    from ikp.core.trace import Column, Trace

DRAFT: Final = ".ikp-draft"
"""What drafts' names end in. One is locked while its writer lives."""


class FileExporter(ABC):
    """Writes a trace, whatever it holds, as one file."""

    interface = INTERFACE
    totals = True
    suffixes: tuple[str, ...]

    def write(self, trace: Trace, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write ``trace`` to ``path``: all of it, or nothing, and then what was there stays.

        Raises:
            ExportError: the file exists and ``force`` is false, the path can't be written, or the
                trace contradicts itself.
            UsageError: the format is a table, and the trace has rows of two kinds.
        """
        check(trace)
        with replacing(path, force=force) as file:
            self._put(trace, file, fspath(path))

    @abstractmethod
    def _put(self, trace: Trace, file: BinaryIO, name: str) -> None:
        """Write a trace to an open file, which will be called ``name``."""


def check(trace: Trace) -> None:
    """Refuse a trace that contradicts itself: a file made of it would be garbage.

    Raises:
        ExportError: says in what.
    """
    if found := faults(trace):
        raise ExportError(
            f"the trace can't be written, because it contradicts itself: {'; '.join(found)}. "
            "ikp's own decoder never makes such a trace: repair what built or changed it."
        )


def faults(trace: Trace) -> list[str]:
    """Return in what a trace contradicts itself."""
    events, slots, totals = trace.events, trace.slots, trace.totals
    count, rows, sums = len(events), len(slots), len(totals)
    found = {
        "a slot names a launch that there is not": _outside(slots.launch, 0, len(trace.launches)),
        "a slot names a role that there is not": _outside(slots.role, 0, len(trace.roles)),
        "an event names a slot that there is not": _outside(events.slot, 0, rows),
        "an event names a region that there is not": _outside(events.region, 0, len(trace.regions)),
        "an event is neither range nor instant": _outside(
            events.kind, Kind.RANGE, Kind.INSTANT + 1
        ),
        "a payload's type is unknown": _outside(
            events.payload_type, PayloadType.NONE, PayloadType.F32 + 1
        ),
        "events are not sorted by slot": bool(np.any(events.slot[1:] < events.slot[:-1])),
        "an event ends before it starts": bool(np.any(events.end_ns < events.start_ns)),
        "an instant has a duration": bool(
            np.any((events.end_ns != events.start_ns) & (events.kind == Kind.INSTANT))
        ),
        "a time is negative": _outside(events.start_ns, 0, None)
        or _outside(slots.start_ns, 0, None),
        "a total names a slot that there is not": _outside(totals.slot, 0, rows),
        "a total names a region that there is not": _outside(totals.region, 0, len(trace.regions)),
        "a total is of neither ranges nor instants": _outside(
            totals.kind, Kind.RANGE, Kind.INSTANT + 1
        ),
        "a total is negative": any(
            _outside(values, 0, None) for values in (totals.count, totals.ticks, totals.total_ns)
        ),
        "totals are not sorted by slot": bool(np.any(totals.slot[1:] < totals.slot[:-1])),
        "an argument's column is not as long as the events": any(
            len(column) != count for column in trace.args.values()
        ),
        "an arrow's number is no integer": any(
            column.given.any() and column.values.dtype.kind != "i"
            for name, column in trace.args.items()
            if is_flow(name)
        ),
    }
    if sums and not any(found.values()):
        mixed = np.intersect1d(slots.launch[events.slot], slots.launch[totals.slot])
        found["a launch has both events and totals"] = bool(len(mixed))
    return [fault for fault, there in found.items() if there]


def _outside(values: Column, low: int, high: int | None) -> bool:
    if not len(values):
        return False
    return int(values.min()) < low or (high is not None and int(values.max()) >= high)


@contextlib.contextmanager
def replacing(path: str | PathLike[str], *, force: bool) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the place of ``path`` when the block ends well.

    If the block raises, ``path`` is as it was. So it is after a crash or a power cut, or else it is
    the new file. Without ``force``, of several processes that write to one path, one succeeds.

    Raises:
        ExportError: ``path`` exists and ``force`` is false, or it can't be written.
    """
    target = checked_target(path, force)
    try:
        _sweep(target.parent)
        # Beside the target: only within one file system can a file be put in place in one go.
        draft, file = _open_draft(target.parent)
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                _place(draft, target, force)
        finally:
            draft.unlink(missing_ok=True)
        _sync_folder(target.parent)
    except FileExistsError as error:
        raise ExportError(
            f"{target} appeared while it was being written, and was left as it is: name another "
            "file, or pass force=True (on the command line: --force)."
        ) from error
    except OSError as error:
        raise ExportError(
            f"{target} can't be written: {error.strerror or error}. "
            "Choose another path, or make room and check the folder's permissions."
        ) from error


def _open_draft(folder: Path) -> tuple[Path, BinaryIO]:
    """Return a new file, locked, so that others can tell that its writer lives."""
    while True:
        draft = folder / f".{secrets.token_hex(8)}{DRAFT}"
        file = draft.open("xb")
        with contextlib.suppress(OSError):  # not every file system has locks: then nobody sweeps
            fcntl.flock(file, fcntl.LOCK_EX)
        if draft.exists():  # else it was swept before it was locked
            return draft, file
        file.close()


def _sweep(folder: Path) -> None:
    """Remove the drafts of writers that were killed."""
    for draft in folder.glob(f".*{DRAFT}"):
        with contextlib.suppress(OSError):
            handle = os.open(draft, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                draft.unlink()
            finally:
                os.close(handle)


def _place(draft: Path, target: Path, force: bool) -> None:
    """Give a finished draft its name, in one step that fails if, without force, there is one."""
    if force:
        draft.replace(target)
        return
    try:
        target.hardlink_to(draft)
    except FileExistsError:
        raise
    except OSError:  # no links here: reserve the name, then take the place
        target.open("xb").close()
        draft.replace(target)


def _sync_folder(folder: Path) -> None:
    """Let the new name outlast a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # not every file system can
            os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def packed(file: BinaryIO, name: str) -> Iterator[BinaryIO]:
    """Return what to write to, so that ``file`` is compressed if ``name`` ends in ``.gz``."""
    if not name.endswith(".gz"):
        yield file
        return
    from isal import igzip

    with igzip.IGzipFile("", "wb", _FAST, file, mtime=0) as out:
        yield out


_FAST = 1
"""Levels above are slower, and gain little where rows are so much alike."""
