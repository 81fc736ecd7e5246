"""Warnings about recordings: Python's own, or kept apart where a program must not notice them.

Under ``ikp run`` a test suite may turn warnings into errors, count them, or print them in its
summary: what ``ikp`` has to say there waits for the end of the program.
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
    """Give the texts to ``sink``, in whichever thread, until this is left."""
    _sinks.append(sink)
    try:
        yield
    finally:
        _sinks.remove(sink)
