"""Where a session's trace goes: looked at before any kernel runs, written when the session ends."""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path

from ikp import plugins
from ikp.errors import ExportError
from ikp.paths import checked_target, probe
from ikp.session.ranks import with_rank
from ikp.trace import Trace


def check_target(path: str | PathLike[str], force: bool) -> None:
    """Refuse a path that can't be written, before the work is done that should end there."""
    plugins.prepare(path)
    probe(checked_target(path, force))


def target_of(path: str | PathLike[str], force: bool) -> str:
    """Return the file that a path means now, checked.

    At the end, the process group may be gone, and the program in another folder.
    """
    target = with_rank(path)
    check_target(target, force)
    return os.path.abspath(target)  # noqa: PTH100 - resolve() follows links


def write(trace: Trace, target: str, *, force: bool, failed: bool) -> str:
    """Write a session's trace; return why not, where a failed run has nothing to replace it by."""
    if failed and not len(trace.events) and not len(trace.totals) and Path(target).exists():
        return (
            f"nothing was recorded before the program failed, so {target} stays as it was: it "
            "is of an earlier run."
        )
    try:
        trace.save(target, force=force)
    except ExportError as lost:
        raise ExportError(
            f"{lost} What was recorded is still there: prof.trace.save(path) writes it elsewhere."
        ) from lost
    return ""
