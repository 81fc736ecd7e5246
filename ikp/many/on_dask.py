"""``tally_on_dask``: the tally of many trace files, counted by the workers of a Dask cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from ikp.analysis.tally import Tally
from ikp.analysis.tallying import merge
from ikp.errors import WorkerError
from ikp.many.over_files import Change, checked_by, lost, tally
from ikp.many.workers import Files, named

if TYPE_CHECKING:
    from distributed import Client


def tally_on_dask(
    files: Files,
    client: Client,
    by: str | None = None,
    *,
    change: Change | None = None,
    keep_going: bool = False,
) -> Tally:
    """Return the tally of all files, counted by the workers of a Dask cluster.

    Each worker reads its files itself: paths must mean the same on all of them. Each tally is
    added up and released, so the client holds no more than the result. Needs
    ``pip install 'ikp[dask]'``, on the workers too.

    Args:
        files: paths of traces, as the workers see them.
        client: the cluster's ``distributed.Client``.
        by: as for ``tally``.
        change: a function applied to each trace before it is counted.
        keep_going: leave out files that can't be read, and those at which workers died as often as
            the cluster allows (``distributed.scheduler.allowed-failures``).

    Raises:
        ExportError: a file can't be read.
        UsageError: an argument can't mean anything.
        WorkerError: workers died at a file.
    """
    checked_by(by)
    paths = named(files)
    work = partial(tally, by=by, change=change, keep_going=keep_going)
    # pure=True would make one task of a path that is given twice.
    futures = client.map(work, paths, pure=False)
    return merge(_results(deque(zip(futures, paths, strict=True)), keep_going))


def _results(todo: deque[tuple[Any, str]], keep_going: bool) -> Iterator[Tally]:
    """Yield tallies in the order of the files. If one fails, those behind it are cancelled."""
    from distributed import KilledWorker

    try:
        while todo:
            future, path = todo.popleft()
            try:
                result: Tally = future.result()
            except KilledWorker as error:
                why = f"the workers that counted it died: {error}"
                if not keep_going:
                    raise WorkerError(f"{path}: {why}") from error
                result = lost(path, why)
            future.release()
            yield result
    finally:
        for future, _ in todo:
            future.cancel()
