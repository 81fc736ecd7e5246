"""How work grows with its subject, counted and not timed: a machine's load changes no count."""

from __future__ import annotations

import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

TraceFunction = Callable[[FrameType, str, Any], Any]


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


def lines(function: Callable[[], object]) -> Counter[tuple[str, int]]:
    """Return how often each line of ikp is executed, also in a comprehension, by file and line."""
    found: Counter[tuple[str, int]] = Counter()

    def seen(frame: FrameType, event: str, _arg: object) -> TraceFunction | None:
        name = frame.f_code.co_filename
        if "/ikp/" not in name:
            return None
        if event == "line":
            found[name, frame.f_lineno] += 1
        return seen

    before = sys.gettrace()
    sys.settrace(seen)
    try:
        function()
    finally:
        sys.settrace(before)
    return found
