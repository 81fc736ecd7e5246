"""A recording session: hands out buffers, reads them back, decodes, exports."""

from __future__ import annotations

import functools
import inspect
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeVar

from ikp.core import abi, plugins, switches
from ikp.core.abi import ClockKind, OverflowMode
from ikp.core.arena import Arena
from ikp.core.checked import (
    check_target,
    checked_deduction,
    checked_mode,
    checked_shared,
    choice,
    region_table,
)
from ikp.core.decode import decode
from ikp.core.decoding.launch import read_launch_header
from ikp.core.device import (
    checked_device,
    device_facts,
    free_bytes,
    gpus_of,
    read_back,
    wait,
    write_selection,
)
from ikp.core.options import CLOCKS, OVERFLOWS
from ikp.core.overhead import Overhead
from ikp.core.ranks import current_rank, with_rank
from ikp.core.regions import checked_name, merge
from ikp.core.segment import Segment
from ikp.core.selection import EVERYTHING, Selection, select
from ikp.core.sizing import inferred, slots_of
from ikp.core.spec import Spec
from ikp.core.trace import Trace
from ikp.errors import DecodeError, ExportError, IkpError, IkpWarning, PluginError, UsageError
from ikp.version import __version__

BUILT_IN = {"triton": "triton", "cute": "cutlass"}
"""Built-in backends and the package each needs. Buffers of either serve all built-in languages."""

_Function = TypeVar("_Function", bound=Callable[..., Any])

_entered: list[profile] = []


def current() -> profile | None:
    """Return the session that was entered last and is still open."""
    return _entered[-1] if _entered else None


class profile:
    """Record kernels and keep or write the trace.

    As a context manager::

        with ikp.profile("gemm.pftrace") as prof:
            gemm[grid](a, b, c, prof.buffer("gemm"))
        print(prof.trace.stats())

    As a decorator, it records each call; a parameter named ``prof`` is filled in::

        @ikp.profile("step.pftrace", force=True)
        def step(x, prof): ...

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
        shared_bytes: stage records in so many bytes of shared memory per block, and copy them to
            the buffer when the warp ends; a multiple of 16, at most 49152. A warp keeps what its
            part of them holds. 0 writes records straight to the buffer, which is faster.
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
        shared_bytes: int = 0,
        deduct_overhead: bool | Overhead = False,
        enabled: bool = True,
    ) -> None:
        if path is not None and not isinstance(path, (str, PathLike)):
            raise UsageError(
                f"ikp.profile takes the path of the trace, not {path!r}. As a decorator it needs "
                f"brackets: @ikp.profile('x.pftrace') or @ikp.profile()."
            )
        self._path, self._force = path, force
        self._clock = choice(ClockKind, clock, "clock", CLOCKS)
        self._overflow = choice(OverflowMode, overflow, "overflow", OVERFLOWS)
        self._totals = checked_mode(mode, overflow, shared_bytes, self._clock) == "totals"
        self._buffer_size = buffer_size
        self._device_wish = device
        self._backend_wish, self._schedule = backend, schedule
        self._barriers = sched_barriers
        self._shared_bytes = checked_shared(shared_bytes)
        self._deduct = checked_deduction(deduct_overhead, self._totals)
        self._undeducted = ""  # why overhead could not be deducted
        self._enabled = enabled
        self.export = True
        self.facts: dict[str, str] = {}
        self._segments: list[Segment] = []
        self._arenas: dict[Any, Arena] = {}
        self._backends: dict[str, plugins.Backend] = {}
        self._target: str | None = None
        self._trace: Trace | None = None
        self._silent: set[str] = set()  # labels of buffers that nobody wrote to
        self._open = False

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
        if not self._open:
            raise UsageError(
                "prof.buffer was called outside the session. Call it inside: with ikp.profile() "
                "as prof."
            )
        if not (self._enabled and switches.enabled()):
            return None
        selection = select(warps, blocks, granularity)
        chosen = self._backend_name(backend)
        where = self._device(device, chosen)
        spec = self._spec(where, selection)
        arena = self._arenas.setdefault(where, Arena(where))
        data = arena.take(self._size(spec, where, selection, size, grid, num_warps))
        if spec.select:
            write_selection(data, selection)
        name, rate = device_facts(where)
        segment = Segment(
            label=label,
            data=data,
            spec=spec,
            backend=chosen,
            device_name=name,
            clock_rate_hz=rate,
            regions=table,
            sequence=len(self._segments),
            selection=selection,
            enabled=enabled,
            rank=current_rank(),
        )
        self._segments.append(segment)
        self._trace = None
        prof = self._load_backend(chosen).argument(segment)
        if prof is None:  # the language can't record, and has said why
            self.discard(segment)
        return prof

    def discard(self, prof: Any) -> None:
        """Forget the buffer of a launch that never happened."""
        self._segments = [each for each in self._segments if each.data is not prof.data]

    @property
    def trace(self) -> Trace:
        """What was recorded. Inside the session, so far: it waits for the device and decodes anew.

        Raises:
            DecodeError: a buffer was overwritten by something else. When the session ends, this is
                raised after the other launches are decoded and written.
        """
        if self._open or self._trace is None:
            self._trace, broken = self._collect()
            if broken is not None:
                raise broken
        return self._trace

    def print_stats(self) -> None:
        """Print the table of :attr:`trace` on stdout, in colour on a terminal."""
        self.trace.print_stats()

    def reset(self) -> None:
        """Forget every buffer and record so far; buffers handed out before are no longer read."""
        self._segments.clear()
        self._arenas.clear()
        self._trace = None

    def __enter__(self) -> Self:
        if self._open:
            raise UsageError("this session is already open: make a new one with ikp.profile().")
        self._target = None
        if self._path is not None and self._exporting():
            # The process group may be gone at the end, and the program in another folder.
            target = with_rank(self._path)
            check_target(target, self._force)
            self._target = os.path.abspath(target)  # noqa: PTH100 - resolve() follows links
        self.reset()
        self._open = True
        _entered.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open = False
        _entered.remove(self)
        broken: Exception | None = None
        try:
            self._trace, broken = self._collect()
            self._save(self._trace)
        except Exception as lost:
            if error is None:
                raise
            broken = lost
        if broken is not None:
            if error is None:
                raise broken
            # The user's own exception matters more: tell, and let it pass.
            self._tell(f"the session failed, and so did its trace: {broken}", error)
        for text in self._losses(ended=error is None):
            self._tell(text, error)

    def __call__(self, function: _Function) -> _Function:
        """Return ``function`` recorded: one session per call."""
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise UsageError(
                f"{function.__qualname__} is a coroutine or a generator: its body runs after the "
                "call. Record inside it: with ikp.profile() as prof."
            )
        wants = "prof" in inspect.signature(function).parameters

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            with self as prof:
                return function(*args, **kwargs, **({"prof": prof} if wants else {}))

        return recorded  # type: ignore[return-value]

    def _save(self, trace: Trace) -> None:
        if self._path is not None and self._exporting():
            target = self._target or with_rank(self._path)
            try:
                trace.save(target, force=self._force)
            except ExportError as error:
                raise ExportError(
                    f"{error} What was recorded is still there: prof.trace.save(path) writes it "
                    "elsewhere."
                ) from error

    def _exporting(self) -> bool:
        recording = self._enabled and switches.enabled()
        return recording and self.export and switches.exporting()

    def _losses(self, *, ended: bool) -> list[str]:
        """Say what was lost. Kernels that a failure kept from running are not missed."""
        launches = self._trace.launches if self._trace else ()
        texts = [f"{each.label}: {'; '.join(each.notes)}." for each in launches if each.notes]
        if self._undeducted:
            texts.append(self._undeducted)
        if ended and self._silent:
            labels = ", ".join(map(repr, sorted(self._silent)))
            texts.append(
                f"nothing was recorded for {labels}: the kernel never ran, or it has no "
                "ikp.init(prof) with this buffer."
            )
        return texts

    def _tell(self, text: str, error: BaseException | None) -> None:
        try:
            warnings.warn(text, IkpWarning, stacklevel=3)
        except IkpWarning:  # warnings are errors here
            if error is None:
                raise
            error.add_note(text)

    def _collect(self) -> tuple[Trace, DecodeError | None]:
        """Read back and decode what is sound; return it, and what is wrong with the rest."""
        sources, broken = [], None
        self._silent = set()
        wait(self._segments)
        began = time.perf_counter()
        for segment in self._segments:
            source = read_back(segment)
            try:
                launched = read_launch_header(source.data, source.label) is not None
            except DecodeError as error:
                broken = error
                continue
            sources.append(source)
            if segment.enabled and not launched:
                self._silent.add(segment.label)
        names = merge(backend.names() for backend in self._backends.values())
        copied = time.perf_counter()
        trace = decode(sources, names, _provenance(self._segments) | self.facts)
        costs = {
            "copied_out_s": f"{copied - began:.4f}",
            "decoded_s": f"{time.perf_counter() - copied:.4f}",
        }
        trace = replace(trace, provenance={**trace.provenance, **costs})
        return self._without_overhead(trace) if self._deduct else trace, broken

    def _without_overhead(self, trace: Trace) -> Trace:
        """Deduct what recording cost; where that isn't known, keep the trace and the reason."""
        from ikp.calibration.calibrate import of_session
        from ikp.edit.overhead import deduct_overhead

        self._undeducted = ""
        options = (
            self._clock.name.lower(),
            self._overflow.name.lower(),
            self._schedule,
            self._shared_bytes,
        )
        try:
            if isinstance(self._deduct, Overhead):
                return deduct_overhead(trace, self._deduct)
            devices = sorted(gpus_of(self._segments))
            return deduct_overhead(trace, *(of_session(each, *options) for each in devices))
        except (IkpError, ImportError, RuntimeError) as error:
            # Nothing that was recorded is lost for want of a calibration.
            self._undeducted = f"recording's overhead was not deducted: {error}"
            return trace

    def _backend_name(self, wish: str | None) -> str:
        if wish is None and self._backend_wish is None:
            self._backend_wish = _installed_backend()
        return wish or self._backend_wish or ""

    def _load_backend(self, name: str) -> plugins.Backend:
        if name not in self._backends:
            self._backends[name] = plugins.load(plugins.BACKENDS, name)
        return self._backends[name]

    def _spec(self, device: Any, selection: Selection) -> Spec:
        from ikp.targets.revision import revision

        return Spec(
            clock=self._clock,
            overflow=self._overflow,
            device=device.type,
            schedule=self._schedule,
            barriers=self._barriers,
            select=selection != EVERYTHING,
            stage=self._shared_bytes,
            totals=self._totals,
            revision=revision(),
        )

    def _size(
        self, spec: Spec, device: Any, chosen: Selection, size: Any, grid: Any, num_warps: Any
    ) -> Any:
        """Return a buffer's size as it was given; else what suits the launch, or any."""
        known = grid is not None or num_warps is not None
        slots = slots_of(grid, num_warps, chosen) if known else 0
        if size is None:
            size = self._buffer_size
        return inferred(spec, slots, lambda: free_bytes(device)) if size is None else size

    def _device(self, wish: Any, backend: str) -> Any:
        wish = self._device_wish if wish is None else wish
        if wish is None:
            wish = self._load_backend(backend).device_type()
        device = checked_device(wish)
        if device.type == "cpu" and self._shared_bytes:
            raise UsageError(
                "shared_bytes stages records in a GPU's shared memory, and the buffer is on the "
                "CPU. Leave shared_bytes out: the interpreter writes straight to the buffer."
            )
        if device.type == "cpu" and self._deduct:
            raise UsageError(
                "deduct_overhead takes out what recording costs on a GPU, and the buffer is on the "
                "CPU, where the interpreter itself takes most of the time. Leave deduct_overhead "
                "out."
            )
        return device


def _installed_backend() -> str:
    """Return a built-in backend whose language is installed.

    Raises:
        PluginError: none is.
    """
    from importlib.util import find_spec

    for name, package in BUILT_IN.items():
        if find_spec(package) is not None:
            return name
    raise PluginError(
        "no kernel language is installed. Do: pip install 'ikp[triton]' (Triton and Gluon) or "
        "pip install 'ikp[cute]' (CuTe DSL)."
    )


def _provenance(segments: list[Segment]) -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    facts = {
        "ikp": __version__,
        "abi": str(abi.ABI_VERSION),
        "python": platform.python_version(),
        "host": platform.platform(),
        "command": " ".join(sys.argv)[:1000],
        "recorded": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "devices": ", ".join(sorted({segment.device_name for segment in segments})),
    }
    for package in ("triton", "nvidia-cutlass-dsl", "torch"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            continue
    return facts
