"""A recording session: its options, its life, and what it tells."""

from __future__ import annotations

import atexit
import copy
import functools
import inspect
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from ikp.core.decoding.decode import decode
from ikp.core.overhead import Overhead
from ikp.core.regions import checked_name
from ikp.core.segment import Segment
from ikp.core.selection import select
from ikp.core.trace import Trace
from ikp.errors import ExportError, IkpWarning, UsageError
from ikp.session import current, switches
from ikp.session.checked import check_target, region_table
from ikp.session.current import Opening
from ikp.session.device import device_facts
from ikp.session.provenance import provenance
from ikp.session.ranks import current_rank, with_rank
from ikp.session.recorder import Recording
from ikp.session.wishes import Wishes

_Function = TypeVar("_Function", bound=Callable[..., Any])


class profile:
    """Record kernels and keep or write the trace.

    As a context manager::

        with ikp.profile("gemm.pftrace") as prof:
            gemm[grid](a, b, c, prof.buffer("gemm"))
        print(prof.trace.stats())

    As a decorator, it records each call; a parameter named ``prof`` is filled in::

        @ikp.profile("step.pftrace", force=True)
        def step(x, prof): ...

    Any thread may take buffers of a session. ``ikp.instrument`` finds the session of the thread or
    asyncio task that launches, or else the main thread's. A process that is forked while a session
    is open is not recorded, and never writes the session's trace.

    Args:
        path: where to write the trace when the session ends; the suffix chooses the format. None
            keeps it in ``trace`` only. ``{rank}`` in it becomes the rank of this process, so that
            each of several writes a file of its own: ``"x.{rank}.pftrace"``.
        force: overwrite an existing file.
        clock: ``"cycles"`` (SM cycles, finest) or ``"globaltimer"`` (one axis in ns, coarse steps):
            32 bits of it in each record, so that a single range longer than 2**32 of them (about
            2 s of cycles, 4 s of ns) is shown short. ``"cycles64"`` and ``"globaltimer64"`` record
            all 64, in records of 32 bytes instead of 16.
        mode: ``"timeline"`` records each range; ``"totals"`` only how often each region occurred in
            each warp and how long it took in all, which costs less and needs hardly any room. Then
            payloads are left out, and ``index=`` and region numbers known only at run time refused.
        overflow: when a warp's slot is full, ``"stop"`` keeps its first records, ``"wrap"`` its
            latest.
        buffer_size: size in bytes of each buffer. None is 32 MiB, 8 MiB for totals, or more where
            ``prof.buffer`` is told the launch's grid.
        device: torch device of the buffers; None takes the current CUDA device, or the CPU where
            there is none or Triton interprets kernels.
        backend: name of the backend plugin whose kernels take the buffers. None takes a built-in
            one that is installed: its buffers serve Triton, Gluon and CuTe kernels alike.
        schedule: on NVIDIA GPUs, let the compiler hook place clock reads and stores where they cost
            least.
        sched_barriers: on AMD GPUs, let the compiler's scheduler move nothing across a clock read:
            a range then holds the work that was written in it. False costs less.
        deduct_overhead: True measures what recording costs on the device when the session ends
            (once in a process) and deducts it, as ``ikp.edit.deduct_overhead`` does; so does what
            ``ikp.calibrate`` measured before. Where that can't be done, a warning says why, and the
            trace stays as it was recorded.
        enabled: False makes every buffer None.

    Raises:
        UsageError: an option is unknown.
        ExportError: the trace can't be written to ``path``, or that names a ``{rank}`` and there is
            none; told before any kernel runs.
    """

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        *,
        force: bool = False,
        clock: str = "cycles",
        mode: str = "timeline",
        overflow: str = "stop",
        buffer_size: int | None = None,
        device: Any = None,
        backend: str | None = None,
        schedule: bool = True,
        sched_barriers: bool = True,
        deduct_overhead: bool | Overhead = False,
        enabled: bool = True,
    ) -> None:
        if path is not None and not isinstance(path, (str, PathLike)):
            raise UsageError(
                f"ikp.profile takes the path of the trace, not {path!r}. As a decorator it needs "
                f"brackets: @ikp.profile('x.pftrace') or @ikp.profile()."
            )
        self._path, self._force = path, force
        self._wishes = Wishes(
            clock=clock,
            mode=mode,
            overflow=overflow,
            buffer_size=buffer_size,
            device=device,
            backend=backend,
            schedule=schedule,
            sched_barriers=sched_barriers,
            deduct_overhead=deduct_overhead,
        )
        self._enabled = enabled
        self.export = True
        self.facts: dict[str, str] = {}
        self._origin: object = self
        self._lock = threading.Lock()
        self._recording: Recording | None = None  # where this session is open
        self._ended: list[Recording] = []  # the last one, of this or of a call that it decorates
        self._ended_of_origin = self._ended
        self._target: str | None = None

    def buffer(
        self,
        label: str,
        *,
        size: int | None = None,
        regions: Mapping[int, str] | Sequence[str] | None = None,
        grid: Any = None,
        num_warps: int | None = None,
        device: Any = None,
        warps: Iterable[int] | None = None,
        blocks: range | None = None,
        granularity: int | str = "warp",
        backend: str | None = None,
        enabled: bool = True,
    ) -> Any:
        """Return the ``prof`` argument for one kernel launch.

        Take a new one for each launch whose records you want to keep: a launch overwrites what an
        earlier one left in the same buffer.

        Args:
            label: what to call the launch in the trace.
            size: bytes, 224 to 2**31 - 16; None takes the session's ``buffer_size``. The kernel
                divides it among its warps, whatever the grid.
            grid: blocks of the launch, one to three integers. With ``num_warps``, and where no size
                is given, the buffer gets room for 512 records in each warp (32 totals), if that is
                more than the default: up to 256 MiB, and an eighth of the device's free memory.
            num_warps: warps of each block.
            regions: names for regions that the kernel gives as integers, like ``{0: "load"}``; a
                list names 0, 1, 2, ...
            device: torch device; None takes the session's.
            warps: record only these warps of each block, by their number in it. Their slots get
                all the room. Another choice needs no other compilation.
            blocks: record only these blocks, a range of linear block ids, such as
                ``range(0, 1024, 8)``.
            granularity: ``"warp"``, ``"block"``, or a number of warps (2, 4, 8, 16) of which the
                first records.
            backend: name of the backend plugin of this kernel; None takes the session's.
            enabled: False runs the same compiled kernel with recording off.

        Raises:
            UsageError: the session is not open, or an argument can't be used.
            BufferError: no memory, no GPU, or a CUDA graph is being captured.
            PluginError: the backend can't be loaded.
        """
        checked_name(label, "a buffer's label")
        table = region_table(regions)
        recording = self._now("prof.buffer")
        if not (self._enabled and switches.enabled()):
            return None
        if not recording.opening.here:
            self._tell(_FORKED, None)
            return None
        wishes, selection = self._wishes, select(warps, blocks, granularity)
        chosen = wishes.chosen_backend(backend)
        where = wishes.device(device, chosen)
        spec = wishes.spec(where, selection)
        name, rate = device_facts(where)

        def described(data: Any) -> Segment:
            return Segment(
                label=label,
                data=data,
                spec=spec,
                backend=chosen,
                device_name=name,
                clock_rate_hz=rate,
                regions=table,
                selection=selection,
                enabled=enabled,
                rank=current_rank(),
            )

        nbytes = wishes.size(spec, where, selection, size, grid, num_warps)
        segment = recording.take(where, nbytes, described)
        prof = wishes.backend(chosen).argument(segment)
        if prof is None:  # the language can't record, and has said why
            self.discard(segment)
        return prof

    def discard(self, prof: Any) -> None:
        """Forget the buffer of a launch that never happened."""
        recording = self._open_recording()
        if recording is not None:  # else it ended meanwhile, in another thread
            recording.forget(prof.data)

    @property
    def trace(self) -> Trace:
        """What was recorded. Inside the session, so far: it waits for the device and decodes anew.

        Raises:
            DecodeError: a buffer was overwritten by something else. When the session ends, this is
                raised after the other launches are decoded and written.
            UsageError: the session was opened by the process that this one was forked from.
        """
        recording = self._open_recording() or next(iter(self._ended), None)
        if recording is None:
            return decode([], {}, provenance([]))
        if recording.trace is not None and not recording.opening.lasts:
            return recording.trace
        _check_here(recording, "prof.trace")
        trace, broken = recording.read(self.facts)
        if broken is not None:
            raise broken
        return trace

    def print_stats(self) -> None:
        """Print the table of :attr:`trace` on stdout, in colour on a terminal."""
        self.trace.print_stats()

    def reset(self) -> None:
        """Wait for the kernels launched so far, and forget what they recorded.

        Buffers handed out before are empty again and can be launched with; those that nobody holds
        any more are forgotten, and their memory is given back.

        Raises:
            UsageError: the session is not open, or was opened by the process that this one was
                forked from.
        """
        recording = self._now("prof.reset")
        _check_here(recording, "prof.reset")
        recording.empty()

    def start(self) -> Self:
        """Open the session without a ``with`` block: for notebooks, and trainers' callbacks.

        Started in the main thread, it is also the session of every thread and task that has none
        of its own. If the program ends before :meth:`stop`, the trace is written then.

        Returns:
            The session.

        Raises:
            UsageError: it is open already.
            ExportError: the trace can't be written to the session's path.
        """
        self._begin(everywhere=True)
        atexit.register(self._stop_at_exit)
        return self

    def stop(self) -> Trace:
        """End a session that :meth:`start` opened, as the end of a ``with`` block does.

        Returns:
            The trace.

        Raises:
            UsageError: the session is not open: it was stopped before, or never started.
            DecodeError: a buffer was overwritten by something else; the other launches are decoded
                and written.
        """
        if self._recording is None:
            raise UsageError(
                "prof.stop was called, and the session is not open: it was stopped before, or "
                "never started. Call prof.start() first."
            )
        atexit.unregister(self._stop_at_exit)
        self._end(self._recording, None)
        return self.trace

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

    def __call__(self, function: _Function) -> _Function:
        """Return ``function`` recorded: one session per call.

        Calls in several threads have a session each. A call inside of another, as of a function
        that calls itself, belongs to the outermost one's.
        """
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise UsageError(
                f"{function.__qualname__} is a coroutine or a generator: its body runs after the "
                "call. Record inside it: with ikp.profile() as prof."
            )
        wants = "prof" in inspect.signature(function).parameters

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            with self._call() as prof:
                return function(*args, **kwargs, **({"prof": prof} if wants else {}))

        return recorded  # type: ignore[return-value]

    @contextmanager
    def _call(self) -> Iterator[profile]:
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
                # The process group may be gone at the end, and the program in another folder.
                target = with_rank(self._path)
                check_target(target, self._force)
                self._target = os.path.abspath(target)  # noqa: PTH100 - resolve() follows links
            opening = current.opened(self, self._origin, everywhere=everywhere)
            opening.recording = self._recording = Recording(opening, self._wishes)

    def _end(self, recording: Recording, error: BaseException | None) -> None:
        """Read back, write and tell. What the program raised matters more than what fails here."""
        self._recording = None
        self._ended[:] = self._ended_of_origin[:] = [recording]
        current.closed(recording.opening)
        if not recording.opening.here:
            return  # the process that opened it writes the trace
        broken: Exception | None = None
        kept = ""
        try:
            trace, broken = recording.read(self.facts)
            recording.release()
            kept = self._save(trace, failed=error is not None)
        except Exception as lost:
            if error is None:
                raise
            broken = lost
        if broken is not None:
            if error is None:
                raise broken
            self._tell(f"the session failed, and so did its trace: {broken}", error)
        for text in filter(None, [*recording.losses(ended=error is None), kept]):
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

    def _open_recording(self) -> Recording | None:
        """Return what records now: this session, or that of the decorated call that runs here."""
        if self._recording is not None:
            return self._recording
        return next((each.recording for each in current.lasting() if self._opened(each)), None)

    def _now(self, verb: str) -> Recording:
        recording = self._open_recording()
        if recording is None:
            raise UsageError(
                f"{verb} was called outside the session. Call it inside: with ikp.profile() as "
                "prof; or between prof.start() and prof.stop()."
            )
        return recording

    def _save(self, trace: Trace, *, failed: bool) -> str:
        """Write the trace; return why not, where a failed run has nothing to replace a file by."""
        if self._path is None or not self._exporting():
            return ""
        target = self._target or with_rank(self._path)
        if failed and _is_empty(trace) and Path(target).exists():
            return (
                f"nothing was recorded before the program failed, so {target} stays as it was: it "
                "is of an earlier run."
            )
        try:
            trace.save(target, force=self._force)
        except ExportError as lost:
            raise ExportError(
                f"{lost} What was recorded is still there: prof.trace.save(path) writes it "
                "elsewhere."
            ) from lost
        return ""

    def _exporting(self) -> bool:
        recording = self._enabled and switches.enabled()
        return recording and self.export and switches.exporting()

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


def _check_here(recording: Recording, verb: str) -> None:
    if not recording.opening.here:
        raise UsageError(
            f"{verb} was called in a process that was forked while the session was open: what is "
            "recorded is in the process that opened it. Open a session of its own here."
        )


def _is_empty(trace: Trace) -> bool:
    return not len(trace.events) and not len(trace.totals)
