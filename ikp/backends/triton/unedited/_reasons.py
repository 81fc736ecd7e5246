"""Reasons for which launches run plain: trials of autotuners, captures of graphs, and the plan."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ikp.backends.patched import wanted
from ikp.driver import cuda
from ikp.probing import Untyped

CAPTURED = "captured in a CUDA graph"
TUNING = "tried out by an autotuner"
NOT_CHOSEN = "not among the chosen launches"


class _Tuning(threading.local):
    depth = 0


trials = _Tuning()
"""How many autotuners try kernels in this thread."""


@contextmanager
def tuning() -> Iterator[None]:
    """Run kernels plain: an autotuner compares their times, and marks would change them."""
    here = wanted()
    trials.depth += 1
    here.aside.value += 1
    here.tries += 1
    try:
        yield
    finally:
        trials.depth -= 1
        here.aside.value -= 1
        here.tries -= 1


def capture_number() -> int:
    """Return the number of the capture that torch's current stream takes part in; 0 for none."""
    import torch

    if not is_capturing():
        return 0
    return cuda.capture_number(int(torch.cuda.current_stream().cuda_stream))


def is_capturing() -> bool:
    """Return whether torch's current stream takes part in a capture."""
    torch: Untyped = sys.modules.get("torch")  # a program that captures has imported it
    if torch is None:
        return False
    return bool(torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())
