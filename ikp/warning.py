"""``warn``, for ikp's warnings: Python warnings, or texts diverted to a sink under ``ikp run``.

Under ``ikp run`` a test suite may make errors of warnings, count them, or print them in its
summary: ikp's warnings are then printed at the end of the program.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ikp.errors import IkpWarning

_sinks: list[Callable[[str], None]] = []


def warn(text: str, stacklevel: int = 1) -> None:
    """Warn with an IkpWarning; ``stacklevel`` counts from the caller, as in ``warnings.warn``."""
    if _sinks:
        _sinks[-1](text)
    else:
        warnings.warn(text, IkpWarning, stacklevel=stacklevel + 1)


@contextmanager
def diverted(sink: Callable[[str], None]) -> Iterator[None]:
    """Give the warnings' texts, of any thread, to ``sink`` until the context is left."""
    _sinks.append(sink)
    try:
        yield
    finally:
        _sinks.remove(sink)
