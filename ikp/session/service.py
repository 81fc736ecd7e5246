"""The service of a device: a thread of ikp's own for each GPU, which runs jobs on its memory.

Allocating, zeroing, copying and reading for a launch must not happen in the launching thread,
inside its call into CUDA. There a copy gets the correlation id of the program's launch (CUPTI),
memory comes from the pool of the program's CUDA graph (torch), and much is forbidden while a graph
is captured. The host's memory needs no thread: jobs run in the caller's.
"""

from __future__ import annotations

import _thread
import os
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from ikp.errors import PatchError
from ikp.session.device import Device, device_of
from ikp.session.storage import HostStorage, Storage, storage_of

_Result = TypeVar("_Result")
_Key = TypeVar("_Key")
_Made = TypeVar("_Made")
_END_S = 5.0
"""The longest wait for the end of a thread."""
Job: TypeAlias = Callable[[], float | None]
"""A step of some work; returns the seconds until it is to be called again, None if it is done."""


class Service(Protocol):
    """A runner of jobs on the memory of one device, one after another."""

    storage: Storage

    def call(self, job: Callable[[], _Result]) -> _Result:
        """Run a job, wait for it, and return its result or raise its error."""

    def post(self, job: Job) -> None:
        """Run a job later, again and again until it returns None. It must not raise."""

    def look(self) -> None:
        """Run the waiting jobs again."""


class Here:
    """The service of the host's memory: runs jobs in the caller's thread."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._lock = threading.RLock()
        self._waiting: list[Job] = []

    def call(self, job: Callable[[], _Result]) -> _Result:
        """Run a job."""
        with self._lock:
            return job()

    def post(self, job: Job) -> None:
        """Run a job, and keep it if it has to wait."""
        with self._lock:
            while (again := job()) is not None:
                if again > 0:
                    self._waiting.append(job)
                    return

    def look(self) -> None:
        """Run the waiting jobs again."""
        with self._lock:
            some, self._waiting = self._waiting, []
            for job in some:
                self.post(job)


class Worker:
    """A thread that runs jobs, one after another.

    It is no thread of Python's ``threading``: a program may count those, or ask that none is left.
    """

    def __init__(self) -> None:
        # Here, and for programs with jobs alone: a finder of the program's may wait for the caller,
        # which waits for the thread.
        from ikp.session.own_objects import lie_apart

        self._lie_apart = lie_apart
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._open = True
        self._over = ""  # why no job is taken any more
        self._gate = threading.RLock()  # a job that is taken is run
        self._runs = threading.Lock()  # held by the thread
        self._runs.acquire()
        self._ident = 0
        _thread.start_new_thread(self._run, ())

    def stop(self) -> None:
        """End the thread after the jobs posted before."""
        self._jobs.put(partial(setattr, self, "_open", False))

    def end(self, why: str) -> None:
        """Take no more jobs, drop those that wait to be called again, and end the thread.

        Args:
            why: the reason, for later callers.
        """
        with self._gate:
            self._over = self._over or why
        self.stop()
        if self._ident != threading.get_ident() and self._runs.acquire(timeout=_END_S):
            self._runs.release()

    @property
    def alive(self) -> bool:
        """Whether the thread has not ended."""
        return self._runs.locked()

    def call(self, job: Callable[[], _Result]) -> _Result:
        """Run a job in the thread, wait for it, and return its result or raise its error.

        Raises:
            PatchError: the thread has ended.
        """
        if threading.get_ident() == self._ident:
            return job()
        answer: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

        def answered() -> None:
            try:
                answer.put((job(), None))
            except BaseException as error:  # noqa: BLE001 - it is raised in the calling thread
                answer.put((None, error))

        with self._gate:
            if self._over:
                raise PatchError(self._over)
            self._jobs.put(answered)
        found, error = answer.get()
        try:
            if error is not None:
                raise error
        finally:
            del error  # else it and this frame hold each other, and the program's variables
        made: _Result = found
        return made

    def post(self, job: Job) -> None:
        """Run a job in the thread, if that has not ended."""
        with self._gate:
            if not self._over:
                self._jobs.put(job)

    def _run(self) -> None:
        self._ident = threading.get_ident()
        try:
            self._run_jobs()
        finally:
            self._ident = 0  # a later thread may get the number
            self._runs.release()

    def _run_jobs(self) -> None:
        waiting: list[tuple[float, Job]] = []  # the time of each job's next call, and the job

        def run(job: Job) -> None:
            again = None
            self._lie_apart()
            try:
                again = job()
            except Exception:  # noqa: BLE001 - launches would wait for this thread for ever
                traceback.print_exc()
            if again is not None:
                waiting.append((time.monotonic() + again, job))

        def run_due() -> float | None:
            """Run what is to be called again now; return the seconds until the next, if any."""
            now = time.monotonic()
            due = [job for when, job in waiting if when <= now]
            waiting[:] = [each for each in waiting if each[0] > now]
            for job in due:
                run(job)
            return min((max(0.0, when - time.monotonic()) for when, _ in waiting), default=None)

        # While it waits, no variable of this frame holds a job, and a session's memory with it.
        while self._open:
            left = run_due()
            with suppress(Empty):
                run(self._jobs.get(timeout=left))


class DeviceService(Worker):
    """The service of a GPU's memory: a thread for its jobs, which never waits for a kernel."""

    storage: Storage

    def __init__(self, device: Device) -> None:
        super().__init__()
        self._device = device
        try:
            self.call(self._begin)
        except BaseException:
            self.stop()
            raise

    def _begin(self) -> None:
        self.storage = storage_of(self._device, partial(self._jobs.put, self._sweep))

    def _sweep(self) -> None:
        with suppress(PatchError):  # a kernel of the program's has failed: no call works any more
            self.storage.sweep()

    def look(self) -> None:
        """Do nothing: the thread runs waiting jobs by itself."""


class Each(Generic[_Key, _Made]):
    """One object for each key, per process: a forked child has none of its parent's threads.

    Args:
        make: makes the object of a key.
    """

    def __init__(self, make: Callable[[_Key], _Made]) -> None:
        self._make = make
        self._begin_anew()
        os.register_at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self) -> None:
        self._made: dict[_Key, _Made] = {}
        self._making = threading.Lock()  # another thread may have held the one before a fork

    def of(self, key: _Key) -> _Made:
        """Return the object of a key, made at first use."""
        if key not in self._made:
            with self._making:
                if key not in self._made:
                    self._made[key] = self._make(key)
        return self._made[key]

    def every(self) -> list[tuple[_Key, _Made]]:
        """Return what was made, with the keys."""
        return list(self._made.items())


def _service(device: Device) -> Service:
    return Here(HostStorage()) if device.type == "cpu" else DeviceService(device)


_services = Each(_service)


def service_of(device: Any) -> Service:
    """Return the service of a device, torch's or ikp's: one for all sessions."""
    return _services.of(device_of(device))


def services() -> list[tuple[Device, Service]]:
    """Return the devices that have a service in this process, and their services."""
    return _services.every()


def end_services(why: str) -> None:
    """End the threads of all devices; jobs that wait are dropped.

    Args:
        why: the reason, for later callers.
    """
    for _, each in services():
        if isinstance(each, DeviceService):
            each.end(why)
