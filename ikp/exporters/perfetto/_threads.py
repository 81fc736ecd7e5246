"""Work in threads whose results are used in the order in which it was handed out."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final

Job = Callable[[], Any]
Use = Callable[[Any], None]

_MOST_THREADS: Final = 4
_WAITING: Final = 2
"""Jobs beyond those in the threads. What they hold stays in memory until its turn comes."""


def spare_threads() -> int:
    """Return how many threads may work beside this one: none on a single core."""
    return min(_MOST_THREADS, len(os.sched_getaffinity(0)) - 1)


class Ordered:
    """Runs jobs, and hands what they return to functions, one after another, in this thread.

    Deflating releases Python's lock, so it gains from threads. Without any, jobs run at once.
    """

    def __init__(self, threads: int) -> None:
        self._most = threads
        self._threads: list[Thread] = []
        self._todo: SimpleQueue[tuple[Job, Future[Any]] | None] = SimpleQueue()
        self._running: deque[tuple[Future[Any], Use]] = deque()

    def run(self, job: Job, use: Use) -> None:
        """Let ``job`` run, and ``use`` what it returns when its turn has come.

        Raises whatever an earlier job or its use did.
        """
        if not self._has_threads():
            self.finish()
            use(job())
            return
        future: Future[Any] = Future()
        self._todo.put((job, future))
        self._running.append((future, use))
        while len(self._running) > len(self._threads) + _WAITING:
            self._use_next()

    def finish(self) -> None:
        """Wait for all jobs, and use what they return."""
        while self._running:
            self._use_next()

    def close(self) -> None:
        """End the threads; what was not used is lost."""
        for future, _ in self._running:
            future.cancel()
        for _ in self._threads:
            self._todo.put(None)
        for thread in self._threads:
            thread.join()

    def _use_next(self) -> None:
        future, use = self._running.popleft()
        use(future.result())

    def _has_threads(self) -> bool:
        """Start a thread if more may run; a process that is ending starts none any more."""
        if len(self._threads) < self._most:
            thread = Thread(target=self._work, name="ikp-writer", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                self._most = len(self._threads)
            else:
                self._threads.append(thread)
        return bool(self._threads)

    def _work(self) -> None:
        while (item := self._todo.get()) is not None:
            job, future = item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(job())
                except BaseException as error:  # noqa: BLE001 - raised where it is asked for
                    future.set_exception(error)


@contextmanager
def ordered(threads: int) -> Iterator[Ordered]:
    """Run jobs until the block ends; if it ends well, all of them are done and used."""
    jobs = Ordered(threads)
    try:
        yield jobs
        jobs.finish()
    finally:
        jobs.close()
