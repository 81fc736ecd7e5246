"""The program's side of the process that checks kernels: its start, checks by request, its end.

``check`` is the entry point of the A/B check: it returns a verdict on a launch.
"""

from __future__ import annotations

import atexit
import ctypes
import mmap
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from ikp.checking.comparison import CheckResult, size_of
from ikp.checking.messages import (
    STAGED_BYTES,
    Content,
    Failure,
    Last,
    Ready,
    Request,
    RunKernels,
    RunTimes,
    Stage,
    StagedCopy,
)
from ikp.children import leave_behind
from ikp.driver import cuda, cuda_memory

_WHO: Final = "the process that checks kernels"
_BEGIN_S: Final = 60.0
_ANSWER_S: Final = 60.0
"""Seconds for an answer that should take less than one: then the process counts as dead."""
_ROOT: Final = str(Path(__file__).parents[2])
_CODE: Final = (
    f"import sys; sys.path.insert(0, {_ROOT!r}); "
    "from ikp.checking.child import begin; begin(sys.argv[1:])"
)
_NOT_FOR_IT: Final = (
    *("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "LD_PRELOAD"),
    *("CUDA_LAUNCH_BLOCKING", "CUDA_ENABLE_COREDUMP_ON_EXCEPTION"),
)
"""Variables of tools that observe the program, or that keep a kernel's end from being seen."""
_NO_SERVER: Final = {"CUDA_MPS_PIPE_DIRECTORY": "/dev/null", "IKP_FOLLOW": "0"}
"""Clients of one MPS server share faults: this process is to be none. It is no part of the program,
whose children ``ikp run`` records."""


class LostError(Exception):
    """The process has died, or answers no more; ``recorded``: while the kernel with records ran."""

    def __init__(self, text: str, *, recorded: bool = False) -> None:
        super().__init__(text)
        self.recorded = recorded


class AgainError(Exception):
    """Addresses are in use in a process, ``taken``, that may be free in another one."""

    def __init__(self, text: str, taken: tuple[int, int]) -> None:
        super().__init__(text)
        self.taken = taken


class CannotError(Exception):
    """A kernel can't be checked; the process goes on."""


class Process:
    """A process that checks kernels of one device."""

    def __init__(self, device: bytes, places: Sequence[tuple[int, int]] = ()) -> None:
        """Start the process.

        Args:
            device: the device's identity.
            places: ranges of addresses that its context must not take.

        Raises:
            LostError: it can't be started, or can't use the device.
        """
        self._recorded = False
        self._pid = 0
        shared = os.memfd_create("ikp-check", os.MFD_CLOEXEC)
        try:
            os.ftruncate(shared, STAGED_BYTES)
            self._staged = mmap.mmap(shared, STAGED_BYTES)
            self._connection = _started(shared, device, places)
        except OSError as error:
            raise LostError(f"no process can be started: {error}") from error
        finally:
            os.close(shared)
        try:
            self._pid = self._ready(_BEGIN_S)
            self._ready(_BEGIN_S)  # it has a context
        except BaseException:
            self.end()
            raise

    def check(self, request: Request) -> tuple[CheckResult | RunTimes, bytes]:
        """Have a kernel checked; return the verdict, and the result that the request asks for.

        Where it asks for times, these come in the verdict's place.

        Raises:
            LostError: the process died.
            AgainError: an address is taken in it.
            PatchError: the program's memory can't be read.
        """
        self._send(request)
        self._ready(_ANSWER_S)
        for each in request.memory:
            for at in range(0, each.nbytes, STAGED_BYTES):
                self._pass(each.address + at, min(STAGED_BYTES, each.nbytes - at))
        self._recorded = False
        self._send(RunKernels())
        limit = _ANSWER_S
        while isinstance(answer := self._answer(limit), Stage):
            self._recorded, limit = answer.recorded, answer.seconds + _ANSWER_S
        self._recorded, content = False, b""
        if isinstance(answer, Content):
            content, answer = self._staged[: answer.nbytes], self._answer(_ANSWER_S)
        if isinstance(answer, Last):
            self.end()
            return answer.verdict, content
        if not isinstance(answer, (CheckResult, RunTimes)):
            raise LostError(f"{_WHO} answers {answer!r}")
        return answer, content

    def _pass(self, address: int, nbytes: int) -> None:
        """Copy a piece of the program's memory to the process."""
        held = (ctypes.c_char * STAGED_BYTES).from_buffer(self._staged)
        cuda_memory.copy_to_host(ctypes.addressof(held), address, nbytes)
        self._send(StagedCopy(address, nbytes))
        self._ready(_ANSWER_S)

    def _ready(self, limit: float) -> int:
        answer = self._answer(limit)
        if not isinstance(answer, Ready):
            raise LostError(f"{_WHO} answers {answer!r}")
        return answer.pid

    def _send(self, message: object) -> None:
        try:
            self._connection.send(message)
        except OSError as error:
            raise LostError(f"{_WHO} has died") from error

    def _answer(self, limit: float) -> Any:
        try:
            if not self._connection.poll(limit):
                text = f"{_WHO} gave no answer in {limit:.0f} s"
                raise LostError(text, recorded=self._recorded)
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise LostError(f"{_WHO} has died", recorded=self._recorded) from error
        if isinstance(answer, Failure):
            if answer.taken is None:
                raise CannotError(answer.text)
            raise AgainError(answer.text, answer.taken)
        return answer

    def leave(self) -> None:
        """Close this end in a process that the program forked: only the program ends it."""
        with suppress(OSError):
            self._connection.close()

    def end(self) -> None:
        """End the process with SIGKILL."""
        if self._connection.closed:
            return
        with suppress(OSError):  # its end of the connection is open as long as it lives
            if self._pid and not self.gone:
                os.kill(self._pid, signal.SIGKILL)
        self._connection.close()

    @property
    def gone(self) -> bool:
        """Whether it has ended."""
        try:
            while not self._connection.closed and self._connection.poll(0):
                self._connection.recv()
        except (EOFError, OSError):
            return True
        return self._connection.closed


def _started(shared: int, device: bytes, places: Sequence[tuple[int, int]]) -> Connection:
    """Start the process; return the connection to it.

    Raises:
        OSError: it can't be started.
    """
    if not sys.executable:
        raise OSError("Python does not know where it lies itself")
    mine, its = socket.socketpair()
    with mine, its:
        command = [sys.executable, "-I", "-S", "-c", _CODE]
        bounds = " ".join(str(bound) for place in places for bound in place)
        passed = [str(its.fileno()), str(shared), device.hex(), bounds]
        env = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_IT}
        files = {each: each for each in (its.fileno(), shared)}
        ended = leave_behind([*command, *passed, *command], files, {**env, **_NO_SERVER})
        if ended:
            raise OSError(f"{sys.executable} ends with {ended}")
        return Connection(mine.detach())


_processes: dict[bytes, Process] = {}
_taken: dict[bytes, list[tuple[int, int]]] = {}
"""Addresses of the program's memory that a context of the process had taken, by device."""
_lock = threading.Lock()


@contextmanager
def process_for(device: bytes) -> Iterator[Process]:
    """Lend the process of a device; start it where there is none. After an error, it is ended.

    Args:
        device: the device's identity.

    Raises:
        LostError: it can't be started.
    """
    with _lock:
        made = _processes.get(device)
        if made is None or made.gone:
            drop(device)
            made = _kept(device)
        try:
            yield made
        except CannotError:
            raise
        except AgainError as error:
            _taken.setdefault(device, []).append(error.taken)
            drop(device)
            raise
        except BaseException:
            drop(device)
            raise


def _kept(device: bytes) -> Process:
    _watch_ends()
    made = _processes[device] = Process(device, _taken.get(device, ()))
    return made


@cache
def _watch_ends() -> None:
    atexit.register(end_all)
    os.register_at_fork(after_in_child=_leave_all)


def _leave_all() -> None:
    global _lock  # noqa: PLW0603 - another thread may have held it
    _lock = threading.Lock()
    for each in _processes.values():
        each.leave()
    _processes.clear()


def drop(device: bytes) -> None:
    """End the process of a device."""
    if (gone := _processes.pop(device, None)) is not None:
        gone.end()


def end_all() -> None:
    """End all processes: the program ends."""
    for each in tuple(_processes):
        drop(each)


_LIMIT: Final = 2 << 30
"""The most bytes of memory that are copied: the device must have room for three times as many."""
_MIB: Final = 1 << 20
_TRIES: Final = 5
"""How many processes are tried until the addresses are free in one."""


def check(request: Request, limit: int = _LIMIT) -> CheckResult:
    """Compare a kernel with records with the plain one; see ``run_apart``."""
    answer = run_apart(request, limit)[0]
    assert isinstance(answer, CheckResult)  # noqa: S101 - no times were asked for
    return answer


def run_apart(request: Request, limit: int = _LIMIT) -> tuple[CheckResult | RunTimes, bytes]:
    """Run a kernel's other form and the plain one, on copies of the memory that both reach.

    The program's memory is only read. All launches before must have ended.

    Args:
        request: the launch.
        limit: the most bytes that are copied.

    Returns:
        The verdict, or times if the request asks for these; and the result that it asks for, b""
        where there is none.

    Raises:
        PatchError: the driver refuses to read memory.
    """
    if sum(each.nbytes for each in request.memory) > limit:
        text = (
            f"not checked: its {size_of(request.memory)} are more than the {limit / _MIB:,.0f} MiB "
            "that are copied to compare them"
        )
        return CheckResult(text), b""
    device, refused = cuda.identity(), ""
    for _ in range(_TRIES):
        try:
            with process_for(device) as process:
                return process.check(request)
        except AgainError as error:
            refused = str(error)
        except CannotError as error:
            return CheckResult(f"not checked: {error}"), b""
        except LostError as error:
            if error.recorded:
                return CheckResult(f"with records, {error}", refused=True), b""
            return CheckResult(f"not checked: {error}"), b""
    return CheckResult(f"not checked: {refused}"), b""
