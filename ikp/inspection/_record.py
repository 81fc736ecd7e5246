"""Data classes for records found in machine code: their stores, clock reads, code between these."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Span:
    """One pair of clock reads that a record's words can come from, and what lies between."""

    start: int  # index of the clock read; an instant's is its end
    end: int
    contents: tuple[int, ...]  # indices of the instructions on any path from start to end, sorted

    def holds(self, at: int) -> bool:
        """Return whether an instruction is on a path from start to end."""
        place = bisect_left(self.contents, at)
        return place < len(self.contents) and self.contents[place] == at


@dataclass(frozen=True, slots=True)
class Record:
    """One record in machine code."""

    stores: tuple[int, ...]  # indices of the instructions: one to three
    tag: int | None  # None: made at run time
    spans: tuple[Span, ...]

    @property
    def store(self) -> int:
        """Index of the store of its times, which others may share: see ``_gathered``."""
        return self.stores[0]


@dataclass(frozen=True)
class FoundRecords:
    """What there is of ikp in one kernel."""

    records: tuple[Record, ...]
    unresolved: tuple[int, ...]  # stores of an end whose start, or thread, was not found
    find_clocks: Callable[[], tuple[int, ...]]
    published: tuple[int, ...] = ()  # stores that say what a stream's warp has recorded, and does

    @cached_property
    def clocks(self) -> tuple[int, ...]:
        """Every clock read that is as wide as records have them, but of a launch's two ends.

        These take longer to find than records do, and few ask for them.
        """
        return self.find_clocks()
