"""A thread of ikp's own for each GPU, in which all is done that a launch needs beside itself.

What is allocated, zeroed, copied or read for a launch must not be done in the thread that launches,
inside its call into CUDA: there a copy gets the number of the program's launch (CUPTI), memory
comes from the pool of the program's CUDA graph (torch), and much is forbidden while a graph is
captured. For the host's memory there is no thread: jobs run where they are given.
"""

from __future__ import annotations

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
from ikp.session.storage import HostStorage, Storage, storage_of

_Result = TypeVar("_Result")
_Key = TypeVar("_Key")
_Made = TypeVar("_Made")
Job: TypeAlias = Callable[[], float | None]
"""Does a part of something; returns after how many seconds it is to be called again, if it is."""


class Service(Protocol):
    """Where jobs run that concern the memory of one device, one after another."""

    storage: Storage

    def call(self, job: Callable[[], _Result]) -> _Result:
        """Run a job, wait for it, and return or raise what it does."""

    def post(self, job: Job) -> None:
        """Run a job later, as often as it says. It must not raise."""

    def look(self) -> None:
        """Run those again that wait for something."""


class Here:
    """Runs jobs in the thread that gives them."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._lock = threading.RLock()
        self._waiting: list[Job] = []

    def call(self, job: Callable[[], _Result]) -> _Result:
        """Run a job."""
        with self._lock:
            return job()

    def post(self, job: Job) -> None:
        """Run a job, and keep it where it has to wait."""
        with self._lock:
            while (again := job()) is not None:
                if again > 0:
                    self._waiting.append(job)
                    return

    def look(self) -> None:
        """Run those again that have to wait."""
        with self._lock:
            some, self._waiting = self._waiting, []
            for job in some:
                self.post(job)


class Worker:
    """A thread that runs jobs, one after another."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._open = True
        self._thread = threading.Thread(target=self._run, name=f"ikp: {name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, once it has done what was asked before."""
        self._jobs.put(partial(setattr, self, "_open", False))

    def call(self, job: Callable[[], _Result]) -> _Result:
        """Run a job there, wait for it, and return or raise what it does."""
        if threading.current_thread() is self._thread:
            return job()
        answer: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

        def told() -> None:
            try:
                answer.put((job(), None))
            except BaseException as error:  # noqa: BLE001 - it is raised where it was asked for
                answer.put((None, error))

        self._jobs.put(told)
        found, error = answer.get()
        if error is not None:
            raise error
        made: _Result = found
        return made

    def post(self, job: Job) -> None:
        """Run a job there."""
        self._jobs.put(job)

    def _run(self) -> None:
        waiting: list[tuple[float, Job]] = []  # and when each is to be called again

        def run(job: Job) -> None:
            again = None
            try:
                again = job()
            except Exception:  # noqa: BLE001 - launches would wait for this thread for ever
                traceback.print_exc()
            if again is not None:
                waiting.append((time.monotonic() + again, job))

        while self._open:
            now = time.monotonic()
            due = [job for when, job in waiting if when <= now]
            waiting[:] = [each for each in waiting if each[0] > now]
            for job in due:
                run(job)
            left = [max(0.0, when - time.monotonic()) for when, _ in waiting]
            with suppress(Empty):
                run(self._jobs.get(timeout=min(left, default=None)))


class Beside(Worker):
    """Runs jobs in a thread of its own, which never waits for a kernel."""

    storage: Storage

    def __init__(self, device: Any) -> None:
        super().__init__(f"memory of {device}")
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
        """The thread does so by itself."""


class Each(Generic[_Key, _Made]):
    """Makes one of something for each key, in this process: a forked child has none of its threads.

    Args:
        make: makes that of a key.
    """

    def __init__(self, make: Callable[[_Key], _Made]) -> None:
        self._make = make
        self._begin_anew()
        os.register_at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self) -> None:
        self._made: dict[_Key, _Made] = {}
        self._making = threading.Lock()  # another thread may have held the one before a fork

    def of(self, key: _Key) -> _Made:
        """Return that of a key."""
        if key not in self._made:
            with self._making:
                if key not in self._made:
                    self._made[key] = self._make(key)
        return self._made[key]


def _service(device: Any) -> Service:
    host = getattr(device, "type", "cpu") == "cpu"
    return Here(HostStorage()) if host else Beside(device)


_services = Each(_service)


def service_of(device: Any) -> Service:
    """Return where jobs for a torch device run: one place for all sessions."""
    return _services.of(device)
