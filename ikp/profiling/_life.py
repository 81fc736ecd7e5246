"""A session's life: opened, ended, its trace written, and what was lost told."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from types import TracebackType
from typing import Any, Self

from ikp.errors import IkpWarning, UsageError
from ikp.profiling._recorded import Recorded, save, target_of
from ikp.session import current
from ikp.session.current import Opening, Session
from ikp.session.ranks import with_rank
from ikp.session.wishes import Wishes
from ikp.trace import Trace


class Life(Session):
    """What ``ikp.profile`` is behind what its user calls. It may be opened again and again."""

    def __init__(
        self, path: str | PathLike[str] | None, force: bool, wishes: Wishes, enabled: bool
    ) -> None:
        self.export = True
        self.facts: dict[str, str] = {}
        self._path, self._force = path, force
        self._wishes, self._enabled = wishes, enabled
        self._origin: object = self
        self._lock = threading.Lock()
        self._recording: Recorded | None = None  # where this session is open
        self._ended: list[Recorded] = []  # the last one, of this or of a call that it decorates
        self._ended_of_origin = self._ended
        self._target: str | None = None

    def __enter__(self) -> Self:
        self._begin(everywhere=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._recording is not None:  # else stopped inside of the block
            self._end(self._recording, error)

    @contextmanager
    def _call(self) -> Iterator[Session]:
        """Record one call of a decorated function, unless a call around it is recorded already."""
        around = [each.session for each in current.lasting() if self._opened(each)]
        if around and around[0] is not None:
            yield around[0]
            return
        session = copy.copy(self)
        own: dict[str, Any] = {"_lock": threading.Lock(), "_recording": None, "_ended": []}
        vars(session).update(own, facts=dict(self.facts))
        with session:
            yield session

    def _opened(self, opening: Opening) -> bool:
        return opening.origin is self._origin and opening.here

    def _begin(self, *, everywhere: bool) -> None:
        with self._lock:
            if self._recording is not None:
                raise UsageError("this session is already open: make a new one with ikp.profile().")
            self._target = None
            if self._path is not None and self._exporting():
                self._target = target_of(self._path, self._force)
            opening = current.opened(self, self._origin, everywhere=everywhere)
            opening.recording = self._recording = Recorded(opening, self._wishes)

    def _end(self, recording: Recorded, error: BaseException | None) -> None:
        """Read back, write and tell. What the program raised matters more than what fails here."""
        self._recording = None
        self._ended[:] = self._ended_of_origin[:] = [recording]
        current.closed(recording.opening)
        if not recording.opening.here:
            return  # the process that opened it writes the trace
        broken: Exception | None = None
        kept = ""
        try:
            trace, broken = recording.end(self.facts)
            kept = self._save(trace, failed=error is not None)
        except Exception as lost:
            if error is None:
                raise
            broken = lost
        if broken is not None:
            if error is None:
                raise broken
            self._tell(f"the session failed, and so did its trace: {broken}", error)
        for text in filter(None, [*recording.losses(failed=error is not None), kept]):
            self._tell(text, error)

    def _stop_at_exit(self) -> None:
        """End a session that nobody stopped; a process that was forked has no say in it."""
        recording = self._recording
        if recording is None or not recording.opening.here:
            return
        self._end(recording, None)
        if self._path is None:
            self._tell(
                "a session was started, and the program ended before prof.stop(): it has no path, "
                "so what it recorded is lost. Stop it, or give it a path.",
                None,
            )

    def _open_recording(self) -> Recorded | None:
        """Return what records now: this session, or that of the decorated call that runs here."""
        if self._recording is not None:
            return self._recording
        calls = (each.recording for each in current.lasting() if self._opened(each))
        return next((each for each in calls if isinstance(each, Recorded)), None)

    def _now(self, verb: str) -> Recorded:
        recording = self._open_recording()
        if recording is None:
            raise UsageError(
                f"{verb} was called outside the session. Call it inside: with ikp.profile() as "
                "prof; or between prof.start() and prof.stop()."
            )
        return recording

    def _save(self, trace: Trace, *, failed: bool) -> str:
        """Write the trace; return why not, if there is a reason that is no error."""
        if self._path is None or not self._exporting():
            return ""
        target = self._target or with_rank(self._path)
        return save(trace, target, force=self._force, failed=failed)

    def _records(self, recording: Recorded) -> bool:
        if not (self._enabled and current.enabled()):
            return False
        if not recording.opening.here:
            self._tell(_FORKED, None)
        return recording.opening.here

    def _exporting(self) -> bool:
        recording = self._enabled and current.enabled()
        return recording and self.export and current.exporting()

    def _tell(self, text: str, error: BaseException | None) -> None:
        try:
            warnings.warn(text, IkpWarning, stacklevel=4)
        except IkpWarning:  # warnings are errors here
            if error is None:
                raise
            error.add_note(text)


_FORKED = (
    "this process was forked while the session was open, and is not recorded: the session can't "
    "see what kernels write here. Open one in this process, with a path of its own."
)


def check_here(recording: Recorded, verb: str) -> None:
    """Refuse what only the process that opened a session can do."""
    if not recording.opening.here:
        raise UsageError(
            f"{verb} was called in a process that was forked while the session was open: what is "
            "recorded is in the process that opened it. Open a session of its own here."
        )
