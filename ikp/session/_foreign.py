"""torch's private function for its current stream's handle; without it, launches take longer."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final, cast

from ikp.probing import Feature, Foreign, Private

_STREAM: Final = Private("torch._C", "_cuda_getCurrentRawStream")
RAW: Final = Feature(
    (_STREAM,), "A recorded launch takes some microseconds longer.", "Everything else works."
)
TORCH: Final = Foreign("torch", "torch", ("2.10", "2.15"), (RAW,))


@cache
def current() -> Callable[[int], int] | None:
    """Return the function of a device's number that returns its current stream's handle."""
    if not TORCH.has(RAW):
        return None
    return cast("Callable[[int], int]", _STREAM.find())
