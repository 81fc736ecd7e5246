"""What is known of a record in machine code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """One pair of clock reads that a record's words can come from, and what lies between."""

    start: int  # index of the clock read; an instant's is its end
    end: int
    contents: tuple[int, ...]  # indices of the instructions on any path from start to end


@dataclass(frozen=True, slots=True)
class Record:
    """One record in machine code."""

    stores: tuple[int, ...]  # indices of the instructions: one, or two with a 64-bit clock
    tag: int | None  # None: made at run time
    spans: tuple[Span, ...]

    @property
    def store(self) -> int:
        """Index of the store of its times, which others may share: see ``_gathered``."""
        return self.stores[0]


@dataclass(frozen=True, slots=True)
class Found:
    """What there is of ikp in one kernel."""

    records: tuple[Record, ...]
    clocks: tuple[int, ...]  # every clock read that is as wide as records have them
    unresolved: tuple[int, ...]  # stores of an end whose start, or thread, was not found
