"""Tracebacks without ikp's frames, for errors that pass through a launch under ``ikp run``, or
through the start of a child.

Like ``sitecustomize``, this module imports little.
"""

from __future__ import annotations

import os
import sys
from itertools import zip_longest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_OURS = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep  # noqa: PTH120
_hidden = False


def hide() -> None:
    """Have Python print a program's error as it would without ikp.

    Python's own hook is replaced under both of its names: consoles and profilers compare the two,
    to see whether the program has a hook of its own.
    """
    global _hidden
    if _hidden:
        return
    _hidden, shown = True, sys.excepthook

    def excepthook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        strip(error, set())
        shown(kind, error, _without_ours(trace))

    if sys.excepthook is sys.__excepthook__:
        vars(sys)["__excepthook__"] = excepthook
    sys.excepthook = excepthook


def strip(error: BaseException | None, seen: set[int]) -> None:
    """Remove ikp's frames from an error, its causes and contexts, and the errors of its group."""
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    error.__traceback__ = _without_ours(error.__traceback__)
    group = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for each in (error.__cause__, error.__context__, *group):
        strip(each, seen)


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without frames of ikp."""
    frames = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_OURS):
            frames.append(trace)
        trace = trace.tb_next
    for frame, after in zip_longest(frames, frames[1:]):
        frame.tb_next = after
    return frames[0] if frames else None
