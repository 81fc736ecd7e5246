"""Rows taken out of a trace, and the note of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ikp.core.rows import renumber_rows, row_count, row_tables, take_rows
from ikp.core.trace import AnyTrace, Slots, Trace
from ikp.errors import UsageError

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_EDITED = "edited"
"""The provenance that lists what was done to a trace."""


def noted(trace: AnyTrace, what: str) -> AnyTrace:
    """Return the trace with a note in its provenance that says what was done."""
    before = trace.provenance.get(_EDITED)
    text = f"{before}; {what}" if before else what
    return replace(trace, provenance={**trace.provenance, _EDITED: text})


def needs_timeline(trace: Trace, what: str, remedy: str) -> None:
    """Refuse what can be done to events alone.

    Raises:
        UsageError: the trace has no events, but totals.
    """
    if row_count(trace)[1] != "event":
        raise UsageError(f"{what}, and the trace has totals of its regions, no events. {remedy}")


def take_slots(trace: AnyTrace, chosen: Bools) -> AnyTrace:
    """Return the trace with the chosen slots and their rows.

    What a launch says of its records then concerns its slots that are left.
    """
    left = take_rows(trace, [chosen[rows.slot] for rows in row_tables(trace)])
    slots = Slots(*(getattr(trace.slots, name)[chosen] for name in Slots.__slots__))
    moved = renumber_rows(left, slot=np.cumsum(chosen) - 1)
    return _recounted(replace(moved, slots=slots), trace.slots)


def take_launches(trace: AnyTrace, chosen: list[int]) -> AnyTrace:
    """Return the trace with the chosen launches, their slots and rows."""
    number = np.full(len(trace.launches), -1, np.int32)
    number[chosen] = np.arange(len(chosen))
    left = take_slots(trace, number[trace.slots.launch] >= 0)
    slots = replace(left.slots, launch=number[left.slots.launch])
    return replace(left, launches=tuple(left.launches[i] for i in chosen), slots=slots)


def _recounted(trace: AnyTrace, before: Slots) -> AnyTrace:
    """Count each launch's records anew where slots are missing now."""
    count = len(trace.launches)
    was, now = (np.bincount(slots.launch, minlength=count) for slots in (before, trace.slots))
    launches = list(trace.launches)
    for i in np.flatnonzero(was != now).tolist():
        rows = trace.slots.launch == i
        launches[i] = replace(
            launches[i],
            attempted=int(trace.slots.attempted[rows].sum()),
            kept=int(trace.slots.kept[rows].sum()),
            unfinished=int((~trace.slots.finished[rows]).sum()),
        )
    return replace(trace, launches=tuple(launches))
