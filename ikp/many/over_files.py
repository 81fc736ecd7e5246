"""Statistics of many trace files, read one by one: here (``tally``, ``table``), or on a Dask
cluster.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from ikp.analysis.event_units import WINDOW, by_events
from ikp.analysis.stats import BY
from ikp.analysis.tally import Lost, Tally
from ikp.analysis.tallying import merge, tally_trace
from ikp.errors import ExportError, IkpWarning, UsageError, WorkerError
from ikp.many.workers import Files, each, named
from ikp.progress import track
from ikp.trace import Trace, load

if TYPE_CHECKING:
    import pandas
    from distributed import Client


Change = Callable[[Trace], Trace]
"""A function from trace to trace, such as one of ``ikp.edit`` with ``functools.partial``."""


def tally(
    file: str | PathLike[str],
    by: str | None = None,
    *,
    change: Change | None = None,
    keep_going: bool = False,
) -> Tally:
    """Return the tally of the trace in a file: the map, whose results ``merge`` adds up.

    Args:
        file: a trace that ``ikp`` wrote.
        by: ``"rank"``, ``"sm"``, ``"block"``, ``"warp"``, ``"role"``, ``"iteration"`` or a window
            of time such as ``"window:10us"`` to count each apart.
        change: a function applied to the trace before it is counted, such as
            ``functools.partial(ikp.edit.select, sm=0)``. Where it chooses nothing
            (``UsageError``), the file counts as one without, not as an error.
        keep_going: return a file that can't be read as lost, with the reason, instead of raising.

    Raises:
        ExportError: the file can't be read.
        UsageError: ``by`` is something else.
    """
    checked_by(by)
    try:
        trace = load(file)
    except ExportError as error:
        if not keep_going:
            raise
        return lost(fspath(file), str(error))
    if change is not None:
        try:
            trace = change(trace)
        except UsageError as error:
            return Tally(without=(1, f"{fspath(file)}: {error}"))
    return tally_trace(trace, by)


def tally_files(
    files: Files,
    by: str | None = None,
    *,
    change: Change | None = None,
    workers: int = 1,
    keep_going: bool = False,
) -> Tally:
    """Return the tally of all files, each of which is read, counted and released.

    In memory are one trace for each worker, and the result, which is as large as its table.

    Args:
        files: paths of traces.
        by: as for ``tally``; so is ``change``, which processes must be able to import.
        change: a function applied to each trace before it is counted.
        workers: processes to count in; 1 is this one.
        keep_going: leave out files that can't be read, or whose worker dies: the result's ``lost``
            lists them, and its table says so.

    Raises:
        ExportError: a file can't be read.
        UsageError: an argument can't mean anything.
        WorkerError: a worker died.
    """
    checked_by(by)
    paths = named(files)
    work = partial(tally, by=by, change=change, keep_going=keep_going)
    found = each(work, paths, workers, lost if keep_going else None)
    return merge(track(found, len(paths), "Counting"))


def table(
    files: Files,
    by: str | None = None,
    *,
    change: Change | None = None,
    workers: int = 1,
    keep_going: bool = False,
) -> pandas.DataFrame:
    """Return the statistics of all files together, a row per launch label and region.

    The columns are those of ``Trace.stats()``, and ``relative_error``: how far off the percentiles
    may be, as a share of each. All else is exact. A warning names the files that ``keep_going``
    left out. Arguments and errors are those of ``tally_files``, of which this is
    ``.to_pandas()``.
    """
    whole = tally_files(files, by, change=change, workers=workers, keep_going=keep_going)
    frame = whole.to_pandas()
    if text := whole.missing():
        warnings.warn(IkpWarning(text), stacklevel=2)
    return frame


def lost(file: str, why: str) -> Tally:
    """Return the tally of a file that can't be counted."""
    return Tally(lost=(Lost(file, why),))


def checked_by(by: str | None) -> None:
    """Check ``by`` before any file is read.

    Raises:
        UsageError: there are no statistics by it.
    """
    if by is not None and by not in BY and not by_events(by):
        raise UsageError(f"no statistics by {by!r}: use one of {', '.join(BY)}.")
    if by == WINDOW:
        raise UsageError("windows of many files need a width that they share, such as window:10us.")


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
