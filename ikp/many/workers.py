"""A map of one function over many files, in this process or a pool that survives dying workers.

A process that dies breaks the pool, with all files under way. Those files are then worked on one by
one, each in a process of its own, so that the one which kills it is known; the rest goes on as
before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice, zip_longest
from multiprocessing import get_context
from os import PathLike, fspath
from typing import Final, TypeVar

from ikp.errors import UsageError, WorkerError

Files = str | PathLike[str] | Iterable[str | PathLike[str]]
"""A path, or several."""
_Result = TypeVar("_Result")

_AHEAD: Final = 4
"""Files submitted ahead for each worker, so that it need not wait for the next one."""


def named(files: Files) -> list[str]:
    """Return paths as text; a single one is a list of one."""
    return [fspath(one) for one in ([files] if isinstance(files, (str, PathLike)) else files)]


def each(
    work: Callable[[str], _Result],
    files: Iterable[str],
    workers: int,
    died: Callable[[str, str], _Result] | None = None,
) -> Iterator[_Result]:
    """Yield the result of ``work`` for each file, in their order.

    With one worker this is ``map``. More are processes, in which ``work`` is called: it must be a
    function of a module. ``died`` returns the result of a file whose process died, from its path
    and the reason.

    Raises:
        UsageError: ``workers`` is below 1.
        WorkerError: a process died, and ``died`` is not given.
    """
    if workers < 1:
        raise UsageError(f"workers={workers} do no work: give 1, or more for processes.")
    if workers == 1:
        yield from map(work, files)
        return
    todo = iter(files)
    while under_way := (yield from _together(work, todo, workers)):
        for file in under_way:
            yield _alone(work, file, died)


def _together(
    work: Callable[[str], _Result], todo: Iterator[str], workers: int
) -> Generator[_Result, None, list[str]]:
    """Yield results until a process dies; return the files that were under way then."""
    files, running = deque[str](), deque[Future[_Result]]()  # the last file may lack a future
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        try:
            while True:
                for file in islice(todo, _AHEAD * workers - len(files)):
                    files.append(file)
                    running.append(pool.submit(work, file))
                if not running:
                    return []
                result = running[0].result()
                running.popleft()
                files.popleft()
                yield result
        except BrokenProcessPool:
            left = []
            for file, one in zip_longest(files, running):
                if one is not None and one.done() and one.exception() is None:
                    yield one.result()
                else:
                    left.append(file)
            return left
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _alone(
    work: Callable[[str], _Result], file: str, died: Callable[[str, str], _Result] | None
) -> _Result:
    """Return the result of ``work`` for a file, in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        try:
            return pool.submit(work, file).result()
        except BrokenProcessPool as error:
            if died is not None:
                return died(file, _DIED)
            raise WorkerError(f"{file}: {_DIED}") from error


_DIED: Final = (
    "the process that worked on it died. Was it killed, perhaps for lack of memory? Then take "
    "fewer workers. If it happens with every file: a script that uses workers must begin its own "
    "work under `if __name__ == '__main__':`, because processes import it."
)
