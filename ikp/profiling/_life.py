"""A session's state and its end: opening, read-back, writing the trace, warnings of losses."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from functools import partial
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from ikp.core.host_trace import HostTrace
from ikp.core.overhead import Overhead
from ikp.core.segment import Segment
from ikp.core.trace import Launch, holds_nothing, of_class
from ikp.core.trace import Trace as Columns
from ikp.errors import DecodeError, FaultError, IkpError, IkpWarning, UsageError
from ikp.profiling.steps import Cycles
from ikp.profiling.writing import losses_of, lost_ranges, placed_on, save, with_code_facts
from ikp.registry import check_target
from ikp.session import current
from ikp.session.current import Opening, Session, with_rank
from ikp.session.recorder import Recording
from ikp.session.segment_sources import gpus_of
from ikp.session.termination import PATIENCE_S, hold, on_termination
from ikp.session.wishes import Wishes
from ikp.signals import pass_on
from ikp.trace import Trace
from ikp.warning import warn

if TYPE_CHECKING:
    from ikp.profiling.torch_profiler import HostRecording
    from ikp.session.copies import Copies


NO_LABELS: Final = frozenset[str]()


class Recorded(Recording):
    """The recording of one opening of ``ikp.profile``, with the trace that its user gets."""

    beside: HostRecording | None = None  # torch.profiler's, where the host is recorded, too
    final: Trace | None = None  # as it was when the session ended
    unwatched: Callable[[], None] = staticmethod(lambda: None)  # takes back the signal handling
    _decoded: tuple[Launch, ...] = ()  # of ``final``, without the notes that code facts add
    _undeducted = ""  # why overhead could not be deducted
    _lost: tuple[str, ...] = ()  # ranges that do not hold in machine code what they are about

    def trace(
        self, facts: Mapping[str, str], *, last: bool = False, patience_s: float | None = None
    ) -> tuple[Trace, DecodeError | FaultError | None]:
        """Wait for all kernels; return their trace, and the error of segments that are not sound.

        Args:
            facts: further provenance of the trace.
            last: end the opening first, and give the memory back.
            patience_s: seconds to wait for kernels at most; None waits for ever.
        """
        if last:
            current.closed(self.opening)
        columns, broken = self.read(facts, last=last, patience_s=patience_s)
        if self.wishes.deduct:
            columns, self._undeducted = _without_overhead(columns, self.wishes, self.segments)
        trace = of_class(Trace, columns)
        if last:
            self._decoded = trace.launches
            self.final = trace = with_code_facts(trace)
            self._lost = lost_ranges(trace)
            self.close()
        return trace, broken

    def losses(self, *, failed: bool) -> list[str]:
        """Return what was lost, in words; not kernels that a failure kept from running."""
        texts = [*losses_of(self._decoded), *self._lost, *self.cut, *self.beyond]
        if self._undeducted:
            texts.append(self._undeducted)
        if self.running:
            texts.append(_RUNNING)
        return texts if failed else [*texts, *self.unheard]


_RUNNING = (
    f"a kernel had not ended {PATIENCE_S} s after the signal: the trace has what its warps had "
    "recorded by then."
)


def _without_overhead(
    trace: Columns, wishes: Wishes, segments: list[Segment]
) -> tuple[Columns, str]:
    """Return the trace with the overhead of recording deducted; or as it was, and why."""
    from ikp.calibration.calibrate import of_session
    from ikp.edit.deduct import deduct_overhead

    how = (
        wishes.clock.name.lower(),
        wishes.overflow.name.lower(),
        wishes.schedule,
    )
    try:
        if isinstance(wishes.deduct, Overhead):
            return deduct_overhead(trace, wishes.deduct), ""
        gpus = sorted(gpus_of(segments))
        return deduct_overhead(trace, *(of_session(each, *how) for each in gpus)), ""
    except (IkpError, ImportError, RuntimeError) as error:
        # Nothing that was recorded is lost for want of a calibration.
        return trace, f"recording's overhead was not deducted: {error}"


class Life(Session):
    """The base class of ``ikp.profile``: opening, ending, writing. It may be opened repeatedly."""

    def __init__(
        self,
        path: str | PathLike[str] | None,
        force: bool,
        wishes: Wishes,
        enabled: bool,
        cycles: Cycles,
        *,
        host: bool = False,
    ) -> None:
        self._host = host
        self.export = True
        self.prepared_later = False  # the opener calls ``registry.prepare`` at its first launch
        self.patience_s: float | None = None  # the longest wait for kernels at the session's end
        self.most_warps: int | None = None  # that the end decodes; None decodes all
        self.facts: dict[str, str] = {}
        self.joined = ""  # how the host's part lies in the file that was written, in words
        self._path, self._force = path, force
        self._wishes, self._enabled = wishes, enabled
        self._origin: object = self
        self._lock = threading.Lock()
        self._ending = threading.RLock()  # a signal may end what the program is ending
        self._recording: Recorded | None = None  # while this session is open
        self._plain: AbstractSet[str] = NO_LABELS  # labels that run plain in this step
        self._ended: list[Recorded] = []  # the last one, of this session or of a decorated call
        self._ended_of_origin = self._ended
        self._target: str | None = None
        self._cycles = cycles
        cycles.check(path)

    def accompany(self, beside: HostRecording) -> None:
        """Have a recording of the host end with this open session, and go into its file."""
        self._now("prof.accompany").beside = beside

    @property
    def held(self) -> int:
        """Bytes that the records take: on devices, and on the host once they are decoded."""
        recording = self._recording or self._open_recording()
        return 0 if recording is None else recording.held

    def __enter__(self) -> Self:
        self._begin(everywhere=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        hold()
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
        own["_plain"] = NO_LABELS
        own["_ending"] = threading.RLock()
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
                # Now: later, the process group may be gone, the program in another folder.
                target = self._cycles.path(with_rank(self._path))
                check_target(target, self._force, later=self.prepared_later)
                self._target = os.path.abspath(target)  # noqa: PTH100 - resolve() follows links
            beside = None
            if self._host and self._target is not None:
                from ikp.profiling.torch_profiler import HostRecording  # with readers of its traces

                beside = HostRecording()
            opening = current.opened(self, self._origin, everywhere=everywhere)
            opening.recording = self._recording = recorded = Recorded(opening, self._wishes)
            recorded.beside, recorded.most_warps = beside, self.most_warps
            recorded.keep_known_graphs()
            if self._target is not None:
                recorded.unwatched = on_termination(partial(self._terminate, recorded))

    def _terminate(self, recording: Recorded) -> None:
        """End the session because a signal ends the process."""
        with self._ending:
            if self._recording is recording:
                self.patience_s = PATIENCE_S
                self._end(recording, None)

    def _end(self, recording: Recorded, error: BaseException | None) -> None:
        """Read back, write, and warn of losses. The program's own error precedes those of ikp."""
        texts: list[str] = []
        try:
            with self._ending:
                if self._recording is recording:
                    texts = self._losses_at_end(recording, error)
        finally:
            recording.unwatched()
        for text in texts:
            self._tell(text, error)

    def end_with_copies(self) -> tuple[Copies, str, bool] | None:
        """End the session without decoding.

        Returns what it recorded, the file for it, and whether that replaces an existing one.

        None where the session has to end in this process: it has no path, its kernels did not all
        end well, or facts on their code are known here alone. Then it is still to be ended.
        """
        from ikp.inspection.facts_of_trace import any_loaded

        with self._ending:
            recording = self._recording
            if recording is None or self._path is None or not self._exporting():
                return None
            if recording.beside is not None or recording.wishes.deduct or any_loaded():
                return None
            current.closed(recording.opening)
            copies = recording.copies(self.facts)
            if copies is None:
                return None
            target = os.path.abspath(self._target or with_rank(self._path))  # noqa: PTH100
            self._recording, self._plain = None, NO_LABELS
            self._ended[:] = self._ended_of_origin[:] = [recording]
            recording.close()
        recording.unwatched()
        return copies, target, self._force

    def _losses_at_end(self, recording: Recorded, error: BaseException | None) -> list[str]:
        """Read back and write; return the messages for the user."""
        self._recording, self._plain = None, NO_LABELS
        self._ended[:] = self._ended_of_origin[:] = [recording]
        if not recording.opening.here:
            current.closed(recording.opening)
            return []  # the process that opened it writes the trace
        if not (self.export or recording.segments):  # ``trace`` decodes nothing if it is asked
            self._close_empty(recording)
            return []
        broken: Exception | None = None
        losses: list[str] = []
        if recording.beside is not None:
            recording.beside.over(sorted(gpus_of(recording.segments)))
        try:
            patient = self.patience_s is None
            host, lost_host = _of_host(recording) if patient else (None, "")
            trace, broken = recording.trace(self.facts, last=True, patience_s=self.patience_s)
            if not patient:  # torch waits for all kernels: for ever, where one does not end
                host, lost_host = _of_host(recording, hasty=True)
            losses = recording.losses(failed=error is not None)
            losses += filter(
                None, [lost_host, self._save(trace, failed=error is not None, host=host)]
            )
        except Exception as lost:
            pass_on(lost)
            if error is None:
                raise
            broken = lost
        if broken is not None and error is None:
            raise broken
        return [*_said_of(broken), *losses]

    def _close_empty(self, recording: Recorded) -> None:
        """Close a recording that no file gets."""
        current.closed(recording.opening)
        recording.close()
        if recording.beside is not None and self.patience_s is None:
            with suppress(Exception):  # what it has seen is in no file
                recording.beside.halt()

    def _end_cycle(self, recording: Recorded) -> None:
        """Read back a cycle's launches, write them, and give their memory back.

        Without a place for the step in the path and without a function that takes the trace, all
        cycles are in the session's one trace.
        """
        keeps = self._path is not None and self._exporting() and self._cycles.has_place(self._path)
        if not keeps and self._cycles.on_trace_ready is None:
            return
        check_here(recording, "prof.step")
        with self._ending:  # a signal that ends the session now writes the same file
            if any(each is recording for each in self._ended):
                return
            trace, broken = recording.trace(self.facts)
            recording.empty()
            trace = with_code_facts(trace)
            if keeps and self._path is not None and not holds_nothing(trace):
                target = os.path.abspath(self._cycles.path(with_rank(self._path)))  # noqa: PTH100
                save(trace, target, force=self._force, failed=False)
                self._cycles.wrote(target)
        if self._cycles.on_trace_ready is not None:
            self._cycles.on_trace_ready(trace)
        if broken is not None:
            raise broken

    def _stop_at_exit(self) -> None:
        """End a session that is still open at exit; in a forked process, do nothing."""
        hold()
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
        """Return the recording that is open: this session's, or that of the decorated call here."""
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

    def _save(self, trace: Trace, *, failed: bool, host: HostTrace | None = None) -> str:
        """Write the trace; return why it was not written, if that is no error."""
        if self._path is None or not self._exporting():
            return ""
        target = self._target or with_rank(self._path)
        if self._cycles.written:
            if holds_nothing(trace):
                return ""
            target = os.path.abspath(self._cycles.path(with_rank(self._path)))  # noqa: PTH100
        placed, misfit = (None, "") if host is None else placed_on(trace, host, target)
        text = save(trace, target, force=self._force, failed=failed, placed=placed)
        self.joined = "" if placed is None or text else placed.report
        return text or misfit

    def _records(self, recording: Recorded) -> bool:
        if not (self._enabled and current.enabled()):
            return False
        here = recording.opening.here
        if not here:
            self._tell(_FORKED, None)
        return here

    def _exporting(self) -> bool:
        recording = self._enabled and current.enabled()
        return recording and self.export and current.exporting()

    def _tell(self, text: str, error: BaseException | None) -> None:
        try:
            warn(text, stacklevel=4)
        except IkpWarning:  # warnings are errors here
            if error is None:
                raise
            error.add_note(text)


_FORKED = (
    "this process was forked while the session was open, and is not recorded: the session can't "
    "see what kernels write here. Open one in this process, with a path of its own."
)


def check_here(recording: Recorded, verb: str) -> None:
    """Raise a UsageError in any process but the one that opened the session."""
    if not recording.opening.here:
        raise UsageError(
            f"{verb} was called in a process that was forked while the session was open: what is "
            "recorded is in the process that opened it. Open a session of its own here."
        )


def _said_of(broken: Exception | None) -> Iterator[str]:
    """Yield the message on what ended a trace, beside the error of the program itself."""
    if isinstance(broken, FaultError):  # the program's error says so, too
        yield str(broken)
    elif broken is not None:
        yield f"the session failed, and so did its trace: {broken}"


def _of_host(recording: Recorded, *, hasty: bool = False) -> tuple[HostTrace | None, str]:
    """End the recording of the host, if there is one; return it, or why there is none."""
    if recording.beside is None:
        return None, ""
    if recording.running:
        return None, "what torch.profiler saw of the host is lost: a kernel had not ended."
    try:
        return recording.beside.stop(hasty=hasty), ""
    except Exception as lost:  # noqa: BLE001 - the session's own trace is whole
        pass_on(lost)
        return None, f"what torch.profiler saw of the host is lost: {lost}"
