"""``ikp.profile``: a recording session as context manager, decorator, or ``start`` and ``stop``."""

from __future__ import annotations

import atexit
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from ikp.core.abi import OverflowMode
from ikp.core.overhead import Overhead
from ikp.core.regions import checked_name, region_table
from ikp.core.segment import Selection, Tensor, select
from ikp.core.trace import of_class
from ikp.errors import UsageError
from ikp.profiling._life import NO_LABELS, Life, check_here
from ikp.profiling.steps import Cycles, Phase, Schedule
from ikp.session.current import current_rank
from ikp.session.handed import Held
from ikp.session.known_launch import SlowError, revoke
from ikp.session.memory import BufferSize
from ikp.session.provenance import provenance
from ikp.session.recorder import BufferRequest
from ikp.session.replays import REPLAYS
from ikp.session.stock import Stock
from ikp.session.termination import hold
from ikp.session.wishes import Wishes
from ikp.trace import Trace

if TYPE_CHECKING:
    from ikp.analysis.snapshot import Snapshot

_Function = TypeVar("_Function", bound=Callable[..., Any])
_MOST_REQUESTS: Final = 1024
"""After so many different requests for buffers, what follows from them is forgotten."""
_LASTING: Final = frozenset({str, int, float, bool, type(None), range, Selection})
"""Types of which a value that is equal later is the same request."""


class profile(Life):
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
            each warp and how long it took in all, which needs hardly any memory: whether it costs
            the kernel less or more than a timeline depends on the kernel. Then payloads are left
            out, and ``index=`` and region numbers known only at run time refused.
        overflow: when a warp's slot is full, ``"stop"`` keeps its first records, ``"wrap"`` its
            latest. ``"stream"`` is a ring that the host reads while the kernel runs, for kernels
            that run long: the trace has all records that it came to read. No kernel waits for the
            host; records that are overwritten too early are dropped, and counted.
        buffer_size: size in bytes of each buffer. None is 32 MiB, 8 MiB for totals, or what suits
            the launch where ``prof.buffer`` gets its grid.
        device: torch device of the buffers; None takes the current CUDA device, or the CPU where
            there is none or Triton interprets kernels.
        backend: name of the backend plugin whose kernels take the buffers. None takes a built-in
            one that is installed: its buffers serve Triton, Gluon and CuTe kernels alike.
        schedule: on NVIDIA GPUs, let the compiler hook place clock reads and stores where they cost
            least.
        target_options: options of packages for other GPUs, by name, such as
            ``{"sched_barriers": False}``; each package's README has them.
        deduct_overhead: True measures what recording costs on the device when the session ends
            (once in a process) and deducts it, as ``ikp.edit.deduct_overhead`` does; so does what
            ``ikp.calibrate`` measured before. Where that can't be done, a warning says why, and the
            trace stays as it was recorded.
        replays: how many replays of each CUDA graph are kept, of those that are captured inside a
            session with buffers: the first ones; with 0, the last one.
        host: record with torch.profiler, too, and write what it saw into the same file: Python's
            ``record_function``, operators, CUDA calls, kernels and copies, with arrows to launches.
            Begin and end the session in one thread.
        enabled: False makes every buffer None.
        steps: which steps are recorded, by ``ikp.schedule``; ``prof.step()`` ends each. None
            records all.
        on_trace_ready: called with the trace of each cycle of ``steps``, as it ends.
        disk: bytes that the files of cycles may take: the oldest are deleted, the latest is kept.
            None keeps all. For paths with ``{step}``, for which each cycle has its first recorded
            step.

    Raises:
        UsageError: an option is unknown, or a path has a ``{step}`` and there are no ``steps``.
        ExportError: the trace can't be written to ``path``, or that names a ``{rank}`` and there is
            none; raised before any kernel runs.
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
        target_options: Mapping[str, bool] | None = None,
        deduct_overhead: bool | Overhead = False,
        replays: int = REPLAYS,
        host: bool = False,
        enabled: bool = True,
        steps: Schedule | None = None,
        on_trace_ready: Callable[[Trace], object] | None = None,
        disk: int | None = None,
    ) -> None:
        if path is not None and not isinstance(path, (str, PathLike)):
            raise UsageError(
                f"ikp.profile takes the path of the trace, not {path!r}. As a decorator it needs "
                f"brackets: @ikp.profile('x.pftrace') or @ikp.profile()."
            )
        wishes = Wishes(
            clock=clock,
            mode=mode,
            overflow=overflow,
            buffer_size=buffer_size,
            device=device,
            backend=backend,
            schedule=schedule,
            target_options=target_options,
            deduct_overhead=deduct_overhead,
            replays=replays,
        )
        if host and not str(path or "").endswith((".pftrace", ".perfetto-trace")):
            raise UsageError(
                f"host=True puts what the host did beside the trace in its file: give the path of "
                f"a .pftrace, not {path!r}."
            )
        if host and steps is not None:
            raise UsageError(
                "host=True records the host from begin to end, and steps= records parts: give one "
                "of the two."
            )
        cycles = Cycles(steps, on_trace_ready, disk)
        super().__init__(path, force, wishes, enabled, cycles, host=host)

    def step(self) -> None:
        """End a step of the program, as an iteration of training: the schedule counts them.

        At the last recorded step of a cycle, kernels are waited for. The cycle's trace is written
        where the path has a ``{step}``, and passed to ``on_trace_ready``; its memory is given back.

        Raises:
            UsageError: the session is not open.
            ExportError: the trace can't be written.
        """
        recording = self._now("prof.step")
        if self._cycles.ends:
            self._end_cycle(recording)
        before = self._cycles.phase
        self._cycles.next_step()
        if before is not Phase.WAIT or self._cycles.phase is not Phase.WAIT:
            self._plain = NO_LABELS
            revoke()

    def buffer(
        self,
        label: str,
        size: int | None = None,  # by name, as all below: without `*`, Python's call takes half
        regions: Mapping[int, str] | Sequence[str] | None = None,
        grid: Any = None,
        num_warps: int | None = None,
        device: Any = None,
        warps: Iterable[int] | None = None,
        blocks: range | None = None,
        granularity: int | str = "warp",
        backend: str | None = None,
        enabled: bool = True,
        kernel: str = "",
    ) -> Any:
        """Return the ``prof`` argument for one kernel launch.

        Take a new one for each launch whose records you want to keep: a launch overwrites the
        records of an earlier one in the same buffer.

        Args:
            label: name of the launch in the trace. Pass all others by name.
            size: bytes, 224 to 2**31 - 16; None takes the session's ``buffer_size``. The kernel
                divides it among its warps, for any grid.
            grid: blocks of the launch, one to three integers. Where no size is given, it and
                ``num_warps`` set it. Each warp gets room for 512 records (32 totals), or a quarter
                more than the busiest warp of earlier launches like this attempted. If that takes
                less than 32 MiB (8 MiB for totals), the size is raised: to 8,192 records a warp
                (512 totals), or to 32 MiB where that is less. If it takes more, the size is cut: to
                256 MiB, or to an eighth of the device's free memory where that is less, but not
                below 32 MiB. Until a launch like this was read back, the size is at least 32 MiB,
                while unread buffers take less than 256 MiB. Without ``grid`` it is 32 MiB.
            num_warps: warps of each block.
            regions: names for regions that the kernel gives as integers, like ``{0: "load"}``; a
                list names 0, 1, 2, ...
            device: torch device; None takes the session's.
            warps: record only these warps of each block, by their number in it. Their slots get
                all the room. Another choice needs no other compilation.
            blocks: record only these blocks, a range of linear block ids, such as
                ``range(0, 1024, 7)``. A step that shares no factor with the grid comes everywhere.
            granularity: ``"warp"``, ``"block"``, or a number of warps (2, 4, 8, 16) of which the
                first records.
            backend: name of the backend plugin of this kernel; None takes the session's.
            enabled: False runs the same compiled kernel with recording off.
            kernel: the kernel's full name, where ``label`` is a short one. The trace keeps it, and
                a comparison finds the same kernel by it.

        Raises:
            UsageError: the session is not open, or an argument can't be used.
            BufferError: no memory, no GPU, or a CUDA graph is being captured.
            PluginError: the backend can't be loaded.
        """
        try:
            if label in self._plain and regions is None:  # most launches of a long program
                return None
        except TypeError:  # it can't be hashed
            checked_name(label, "a buffer's label")
        recording = self._recording or self._now("prof.buffer")
        phase = self._cycles.phase
        if phase is Phase.WAIT or not self._records(recording):
            _ = checked_name(label, "a buffer's label"), region_table(regions)
            recording.labels.add(label)
            if phase is Phase.WAIT:
                self._plain = recording.labels
            return None
        key = (label, size, grid, num_warps, device, warps, blocks, granularity, backend, kernel)
        asked = None
        if regions is None:
            try:
                asked = recording.requests.get(key)
            except TypeError:  # a part can change
                asked = None
        if asked is None:
            checked_name(label, "a buffer's label")
            table = region_table(regions)
            chosen, room = select(warps, blocks, granularity), BufferSize(size, grid, num_warps)
            asked = BufferRequest(label, table, chosen, room, device, backend, kernel)
            if regions is None and _lasts(key, (grid, warps)):
                if len(recording.requests) >= _MOST_REQUESTS:
                    recording.requests.clear()
                recording.requests[key] = asked
                asked.again = self._again if enabled else None
                asked.ahead = self._ahead if enabled else None
                asked.unread = self._unread if enabled else None
        enabled = enabled and phase is Phase.ACTIVE
        return recording.buffer(asked, enabled=enabled, rank=current_rank())

    def _again(self, asked: BufferRequest) -> Held | None:
        """Take another buffer; see ``BufferRequest.again``."""
        recording = self._recording
        if recording is None:
            raise SlowError
        phase = self._cycles.phase
        if phase is Phase.WAIT or not self._records(recording):
            return None
        return recording.memory(asked, enabled=phase is Phase.ACTIVE, rank=current_rank())

    def _ahead(self, asked: BufferRequest, most: int, stream: int) -> Stock | None:
        """Take buffers for launches to come; see ``BufferRequest.ahead``."""
        recording = self._recording
        if recording is None or self._cycles.phase is not Phase.ACTIVE:
            return None
        if not self._records(recording):
            return None
        return recording.stock(asked, most, stream, current_rank())

    def _unread(self, asked: BufferRequest) -> Tensor | None:
        """Take memory that the session does not read; see ``BufferRequest.unread``."""
        recording = self._recording
        if recording is None or self._cycles.phase is not Phase.ACTIVE:
            return None
        if not self._records(recording):
            return None
        return recording.unread(asked, rank=current_rank())

    def discard(self, prof: Any) -> None:
        """Forget the buffer of a launch that never happened."""
        recording = self._open_recording()
        if recording is not None:  # else it ended meanwhile, in another thread
            recording.forget(prof.data)

    @property
    def trace(self) -> Trace:
        """The session's trace. Inside the session, so far: waits for the device and decodes anew.

        Raises:
            DecodeError: a buffer was overwritten by something else. When the session ends, this is
                raised after the other launches are decoded and written.
            FaultError: a kernel failed on the GPU. So it is when the session ends: the trace holds
                the launches that were read back before.
            UsageError: the session was opened by the process that this one was forked from.
        """
        recording = self._open_recording() or next(iter(self._ended), None)
        if recording is None:
            from ikp.core.decoding.decode import decode

            return of_class(Trace, decode([], {}, provenance([])))
        if recording.final is not None and not recording.opening.lasts:
            return recording.final
        check_here(recording, "prof.trace")
        trace, broken = recording.trace(self.facts)
        if broken is not None:
            raise broken
        return trace

    def snapshot(self) -> Snapshot:
        """Return what the session's kernels have recorded so far, and where each warp is now.

        For sessions with ``overflow="stream"``. It waits for no kernel, so it also shows one that
        never ends: print it, or save its trace. Of a kernel that has not ended, a session with
        ``clock="globaltimer"`` has the truest times.

        Returns:
            The trace so far, and the place of each warp: its open range, or the last one.

        Raises:
            UsageError: the session is not open, has no streams, or was opened by the process that
                this one was forked from.
        """
        from ikp.analysis.snapshot import Snapshot, places

        recording = self._now("prof.snapshot")
        check_here(recording, "prof.snapshot")
        if recording.wishes.overflow is not OverflowMode.STREAM:
            raise UsageError(
                "prof.snapshot() needs a session that reads records while kernels run: open it "
                "with ikp.profile(overflow='stream')."
            )
        columns, taken_ns, opened = recording.snapshot(self.facts)
        trace = of_class(Trace, columns)
        return Snapshot(trace, taken_ns, tuple(places(trace, taken_ns, opened)))

    def print_stats(self) -> None:
        """Print the table of :attr:`trace` on stdout, in colour on a terminal."""
        self.trace.print_stats()

    def reset(self) -> None:
        """Wait for the kernels launched so far, and discard their records.

        Buffers handed out before are empty again and can be launched with. Those to which the
        program has no reference any more are dropped, and their memory is given back.

        Raises:
            UsageError: the session is not open, or was opened by the process that this one was
                forked from.
        """
        recording = self._now("prof.reset")
        check_here(recording, "prof.reset")
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
        hold()
        if self._recording is None:
            raise UsageError(
                "prof.stop was called, and the session is not open: it was stopped before, or "
                "never started. Call prof.start() first."
            )
        atexit.unregister(self._stop_at_exit)
        self._end(self._recording, None)
        return self.trace

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


def _lasts(key: tuple[object, ...], several: tuple[object, ...]) -> bool:
    """Return whether an equal key is the same request later: no part of it can change.

    Args:
        key: the request.
        several: parts of it that may be tuples.
    """
    kinds = set(map(type, key))
    if tuple in kinds:
        kinds.discard(tuple)
        for each in several:
            if isinstance(each, tuple):
                kinds.update(map(type, each))
    return kinds <= _LASTING
