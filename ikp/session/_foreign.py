"""Private names of torch and Python that make launches faster: the current stream's handle, and the
environment as it is stored.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any, Final, cast

from ikp.probing import Feature, Foreign, Private

_STREAM: Final = Private("torch._C", "_cuda_getCurrentRawStream")
_CAPTURING: Final = Private("torch._C", "_cuda_isCurrentStreamCapturing")
RAW: Final = Feature(
    (_STREAM, _CAPTURING),
    "A recorded launch takes some microseconds longer.",
    "Everything else works.",
)
TORCH: Final = Foreign("torch", "torch", ("2.10", "2.15"), (RAW,))


@cache
def current() -> tuple[Callable[[int], int], Callable[[], bool]] | None:
    """Return a function of a device's number that returns its current stream's handle, and one
    that returns whether the current stream is captured; None where torch has no such.
    """
    if not TORCH.has(RAW):
        return None
    captured = cast("Callable[[], bool]", _CAPTURING.find())
    return cast("Callable[[int], int]", _STREAM.find()), captured


_ENVIRONMENT: Final = Private("os", "environ._data")
_STORED: Final = _ENVIRONMENT.path.rpartition(".")[2]


def environment() -> Any:
    """Return the dictionary in ``os.environ``, by encoded names; None where it is no such object.

    A program may have put its own in that place. So its absence is not reported: asking takes 1 us.
    """
    return getattr(os.environ, _STORED, None)
