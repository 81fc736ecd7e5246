"""How work grows with its subject, counted and not timed: a machine's load changes no count."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable


def calls(function: Callable[[], object]) -> int:
    """Return how often anything is called, or a generator goes on, while ``function`` runs."""
    count = 0

    def seen(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


def peak_bytes(function: Callable[[], object]) -> int:
    """Return how much memory ``function`` has at most at one time, beside what was there."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        function()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
