"""``warn``, for ikp's warnings: Python warnings, or texts diverted to a sink under ``ikp run``.

Under ``ikp run`` a test suite may make errors of warnings, count them, or print them in its
summary: ikp's warnings are then printed at the end of the program.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from ikp.errors import IkpWarning

_sinks: list[Callable[[str], None]] = []
_ALIKE = 4
"""So many warnings that differ in a name alone are one."""


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


def joined(texts: Iterable[str]) -> list[str]:
    """Return the texts, those that differ in their kernels' names alone as one, at its first place.

    A program may launch dozens of kernels of one form (each expression of CuPy's is one), and what
    holds for all of them would hide the warning that holds for one.
    """
    names: dict[str, list[str]] = {}
    for text in texts:
        name, colon, reason = text.partition(": ")
        names.setdefault(reason if colon else text, []).append(name if colon else "")
    lines = []
    for reason, each in names.items():
        if len(each) < _ALIKE:
            lines += [f"{name}: {reason}" if name else reason for name in each]
        else:
            lines.append(f"{each[0]}, {each[1]} and {len(each) - 2} more: {reason}")
    return lines
