"""``ProcessHost``: when torch.profiler begins, steps aside and ends, for ``ikp run --host``.

It begins as torch initialises CUDA, and not earlier: a process that has loaded CUPTI can't be
forked for one that uses the GPU, and launchers such as torchrun import torch, too. Without a GPU it
begins at the first launch.
"""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Final

from ikp.after_import import stepping_into
from ikp.errors import UsageError
from ikp.running._installed import installed
from ikp.signals import deferred, pass_on

if TYPE_CHECKING:
    from ikp.profiling.profile import profile
    from ikp.profiling.torch_profiler import HostRecording

_NO_TORCH: Final = (
    "the program does not import torch, whose profiler does it. A report of Nsight Systems can be "
    "put beside the trace: ikp join TRACE.pftrace REPORT.sqlite"
)
_NO_CUDA: Final = "torch has not initialised CUDA in this process"
_LACKS: Final = "this version of torch lacks names that ikp uses"
_FORKED: Final = "it was forked from a process of which the host is recorded"
_RESET: Final = "the program has reset a GPU (cudaDeviceReset)"
_THEIRS: Final = (
    "the program begins a torch.profiler of its own. Put what that exports beside the trace: "
    "ikp join TRACE.pftrace HOST.json"
)


class ProcessHost:
    """The recording of what one process does on the host.

    Args:
        seconds: how long it records: its memory grows with each operator and call.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.RLock()
        self._beside: HostRecording | None = None
        self._session: profile | None = None
        self._off = _NO_TORCH  # why it does not record, or no more
        self._over = threading.Event()
        self._limited = False

    def has_any(self) -> bool:
        """End it where it has begun, and return whether it has recorded anything.

        A process that only asks for the properties of a GPU, as compilers' workers do, has not.
        """
        with self._lock:
            if self._beside is None:
                return False
            try:
                return not self._beside.is_empty()
            except Exception as error:  # noqa: BLE001 - the end says what became of it
                pass_on(error)
                return True

    @property
    def off(self) -> str:
        """Why it does not record, or no more; empty where it does."""
        return self._off

    def stepping_in(self) -> AbstractContextManager[None]:
        """Await torch, until the context is left."""
        from ikp.profiling import foreign

        steps = {
            foreign.CUDA: self._await,
            foreign.PROFILERS: self._watch,
            foreign.NVTX: _show_nvtx,
        }
        return stepping_into(steps)

    def _await(self, cuda: ModuleType) -> Callable[[], None]:
        from ikp.profiling import foreign

        there = foreign.on_first_use(cuda, self._begin)
        self._off = _NO_CUDA if there else _LACKS
        return lambda: None

    def _watch(self, profilers: ModuleType) -> Callable[[], None]:
        from ikp.profiling import foreign

        return foreign.before_profilers(profilers, self._step_aside)

    def accompany(self, session: profile) -> None:
        """Have the recording, now or once it begins, go into the file of an open session."""
        with self._lock:
            self._session = session
            if self._beside is not None:
                session.accompany(self._beside)

    def at_launch(self) -> None:
        """Begin at the first launch, where torch finds no GPU."""
        torch = sys.modules.get("torch")
        if self._off == _NO_CUDA and torch is not None and not torch.cuda.is_available():
            self._begin()

    def _begin(self) -> None:
        """Begin; no error of it reaches the program."""
        from ikp.profiling import foreign
        from ikp.profiling.torch_profiler import HostRecording
        from ikp.session import leaving

        with self._lock:
            if self._off != _NO_CUDA or self._over.is_set():
                return
            try:
                with deferred(), installed():
                    if not foreign.TORCH.has(foreign.HOST):
                        self._off = _LACKS
                        return
                    self._beside = HostRecording(everywhere=True)
                    self._off = ""
                    leaving.before.append(self._before_reset)
                    if self._session is not None:
                        self._session.accompany(self._beside)
            except Exception as error:  # noqa: BLE001 - the program goes on
                pass_on(error)
                self._off = _THEIRS if isinstance(error, UsageError) else f"it failed: {error}"
        if self._beside is not None:
            _thread.start_new_thread(self._limit, (self._over,))  # as no thread of the program's

    def _limit(self, over: threading.Event) -> None:
        """Record no more after the limit; the GPU is not waited for, as a graph may be captured."""
        if over.wait(self._seconds):
            return
        with self._lock:
            if self._beside is not None and not self._off:
                try:
                    self._beside.pause()
                    self._limited = True
                except Exception as error:  # noqa: BLE001 - it goes on
                    pass_on(error)
                    self._off = f"it does not end at its limit: {error}"

    def _step_aside(self) -> None:
        """End before a profiler of the program's begins, which this would disturb.

        That ikp's own begins comes here, too, and is undone where it has begun.
        """
        with self._lock:
            if self._off != _THEIRS:
                self._off = _THEIRS
                self._halt()

    def _before_reset(self) -> None:
        """End before the program resets a GPU: torch's objects on it, and the profiler's, end."""
        with self._lock:
            if not self._off:
                self._off = _RESET
                self._halt()

    def _halt(self) -> None:
        if self._beside is not None:
            try:
                self._beside.halt()
            except Exception as error:  # noqa: BLE001 - the program goes on
                pass_on(error)

    def end(self, *, waits: bool) -> None:
        """Begin no more; end what goes into no file, unless a signal ends the process."""
        self._over.set()
        if waits:  # a thread that holds the lock may wait for a kernel that never ends
            with self._lock:
                if self._session is None:
                    self._halt()

    def forked(self) -> None:
        """Begin anew in a child that the program forked."""
        began = self._beside is not None
        self._lock, self._over = threading.RLock(), threading.Event()
        self._beside = self._session = None
        self._limited = False
        if began:
            self._off = _FORKED

    def lines(self) -> list[str]:
        """Return what is to be said of it at the end."""
        if self._off:
            how = "not recorded" if self._beside is None else "recorded in part"
            return [f"--host: what the host did is {how}: {self._off}."]
        if self._limited:
            seconds = f"{self._seconds:g} s"
            return [f"--host: what the host did is recorded for {seconds} (--host-seconds)."]
        return []


def _show_nvtx(nvtx: ModuleType) -> Callable[[], None]:
    """Have torch.profiler show NVTX ranges that the program opens by torch."""
    from ikp.profiling import foreign
    from ikp.profiling.torch_profiler import NvtxRanges

    if not foreign.TORCH.has(foreign.RANGES):
        return lambda: None
    ranges = NvtxRanges()
    return foreign.beside_nvtx(nvtx, ranges.push, ranges.pop)
