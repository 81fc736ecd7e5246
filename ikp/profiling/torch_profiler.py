"""torch.profiler around a session: what the host and whole GPUs did, beside the session's trace."""

from __future__ import annotations

import ctypes
import os
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ikp.core.host_trace import HostTrace
from ikp.errors import UsageError
from ikp.host_traces import kineto
from ikp.session import launch_marks

_LEVEL: Final = "KINETO_LOG_LEVEL"
_CALLS: Final = ("cuda_runtime", "cuda_driver", "overhead")
HASTY_BYTES = 64 << 20
"""JSON of some 300,000 events, which take half a minute of a slow processor."""
_SILENT: Final = "6"
"""Above every level that Kineto prints of its own on stderr, which is the program's."""


class HostRecording:
    """A recording of torch.profiler.

    Args:
        everywhere: record all threads, and let any thread end it. Else the thread that begins it
            is recorded, and ends it.

    Raises:
        UsageError: a torch.profiler is active: a second one would end it without a word.
    """

    def __init__(self, *, everywhere: bool = False) -> None:
        import torch

        from ikp.profiling import foreign  # for --host alone: it takes 40 ms to import

        if torch.autograd._profiler_enabled():  # noqa: SLF001 - a public one there is not
            raise UsageError(
                "host=True begins a torch.profiler, and one is active already, which that would "
                "end. Leave host out, export the active one's trace with export_chrome_trace, and "
                "put both into one file: ikp join KERNEL.pftrace HOST.json."
            )
        self._cuda = torch.cuda
        self._lock = threading.Lock()
        self._until_ns: int | None = None
        self._devices: tuple[str, ...] = ()
        self._failed = ""  # why a kernel has failed: an error would hold its callers' tensors
        self._json: bytes | None = None  # what it exported, once it has ended
        self._host: HostTrace | None = None  # the same, read
        kinds = torch.profiler.ProfilerActivity
        self._kinds = {kinds.CPU, kinds.CUDA, kinds.XPU}  # all, or torch warns of some
        how = {"experimental_config": foreign.all_threads()} if everywhere else {}
        self._recording: Any = torch.profiler.profile(acc_events=True, **how)
        with _silent() if everywhere else ExitStack():
            self._recording.start()
        if foreign.TORCH.has(foreign.MARKS):
            launch_marks.begin(foreign.marker())

    def over(self, devices: Iterable[str]) -> None:
        """Leave out the calls from now on, which end the session, and what they start.

        Args:
            devices: the GPUs that the session has recorded; no other is synchronized.
        """
        if self._until_ns is None:
            self._until_ns = time.time_ns()
        self._devices = tuple(devices)

    def pause(self) -> None:
        """Record no more, without waiting for the GPU."""
        with self._lock:
            if self._json is None:
                self._recording.toggle_collection_dynamic(False, self._kinds)

    def halt(self) -> None:
        """End the recording after all kernels so far, and keep what it has seen.

        Raises:
            RuntimeError: a kernel has failed, or the program ended it.
        """
        with self._lock, ExitStack() as undo:
            if self._json is not None:
                return
            if self._failed:
                raise RuntimeError(self._failed)
            launch_marks.end()
            if self._cuda.is_available() and self._cuda.is_initialized():
                try:
                    self._wait()
                except Exception as error:
                    self._failed = str(error) or type(error).__name__
                    self._discard()
                    raise
                if self._devices:  # torch synchronizes the current device, which is the first GPU
                    undo.enter_context(self._cuda.device(self._devices[0]))  # in a new thread
            self._recording.stop()
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "host.json"
                self._recording.export_chrome_trace(str(path))
                self._json = path.read_bytes()
            self._recording = None

    def _wait(self) -> None:
        """Wait for all kernels so far: one that has not ended leaves no record."""
        for each in self._devices or (None,):
            self._cuda.synchronize(each)

    def _discard(self) -> None:
        """End torch's profiler where a kernel has failed: active at exit, it would crash there."""
        from ikp.profiling import foreign

        with suppress(RuntimeError):  # the program has ended it
            foreign.discard()

    def stop(self, *, hasty: bool = False) -> HostTrace:
        """End the recording, after all kernels so far, and return it.

        Args:
            hasty: a signal ends the process, which leaves a minute for all.

        Raises:
            RuntimeError: a kernel has failed, or the program ended it.
            UsageError: torch's file can't be read, or takes too long.
        """
        self.halt()
        size = len(self._json or b"")
        if hasty and size > HASTY_BYTES:
            raise UsageError(
                f"its {size >> 20:,} MiB take too long to write after a signal. Record "
                "less of it (--host-seconds)."
            )
        host = self._read()
        return host if self._until_ns is None else kineto.until(host, self._until_ns)

    def is_empty(self) -> bool:
        """End the recording, and return whether it has seen nothing but calls of CUDA.

        Raises:
            RuntimeError: a kernel has failed, or the program ended it.
            UsageError: torch's file can't be read.
        """
        self.halt()
        return all(each.category in _CALLS for each in self._read().slices)

    def _read(self) -> HostTrace:
        if self._host is None:
            content, self._json = self._json or b"", b""
            host = kineto.parse(content, "torch.profiler")
            self._host = replace(host, source="torch.profiler")
        return self._host


class NvtxRanges(threading.local):
    """NVTX ranges of this thread that are open, which torch.profiler shows as ranges, too."""

    def __init__(self) -> None:
        from ikp.profiling.foreign import named_range

        self._range = named_range
        self._open: list[AbstractContextManager[object]] = []

    def push(self, text: str) -> None:
        """Begin a range."""
        made = self._range(f"NVTX: {text}")
        made.__enter__()
        self._open.append(made)

    def pop(self) -> None:
        """End the last range, if there is any."""
        if self._open:
            self._open.pop().__exit__(None, None, None)


@contextmanager
def _silent() -> Iterator[None]:
    """Have Kineto, which reads the environment as it begins, print nothing of its own.

    Where the thread that begins is not the one that imported torch, it prints a line all the same.
    """
    before = os.environ.get(_LEVEL)
    if before is None:
        os.environ[_LEVEL] = _SILENT
    try:
        with _without_line(b"ERROR: External init callback must run in same thread"):
            yield
    finally:
        if before is None:
            os.environ.pop(_LEVEL, None)


@contextmanager
def _without_line(begin: bytes) -> Iterator[None]:
    """Leave lines that begin so out of what C code prints on ``stderr`` meanwhile.

    ``stderr`` of C is another stream meanwhile, in memory; Python and children write to the file
    descriptor. The stream stays open: another thread may be printing to it.
    """
    libc = ctypes.CDLL(None)
    text, size = ctypes.c_char_p(), ctypes.c_size_t()
    try:
        stderr, open_memory = ctypes.c_void_p.in_dll(libc, "stderr"), libc.open_memstream
    except (ValueError, AttributeError):  # another C library
        yield
        return
    open_memory.restype = ctypes.c_void_p
    before, memory = stderr.value, open_memory(ctypes.byref(text), ctypes.byref(size))
    stderr.value = memory or before
    try:
        yield
    finally:
        stderr.value = before
        if memory:
            libc.fflush(ctypes.c_void_p(memory))
            lines = ctypes.string_at(text, size.value).splitlines(keepends=True)
            kept = b"".join(each for each in lines if not each.startswith(begin))
            one, count = ctypes.c_size_t(1), ctypes.c_size_t(len(kept))
            libc.fwrite(kept, one, count, ctypes.c_void_p(before))
            libc.fflush(ctypes.c_void_p(before))
