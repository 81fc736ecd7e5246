"""Helpers of all edits: a trace with chosen slots or launches, and the note in its provenance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ikp.core.rows import renumber_rows, take_rows
from ikp.core.trace import AnyTrace, Slots, Trace, row_count, row_tables
from ikp.core.warps import take_warps
from ikp.errors import UsageError

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_EDITED = "edited"
"""The provenance that lists the edits of a trace."""


def noted(trace: AnyTrace, what: str) -> AnyTrace:
    """Return the trace with a note of an edit in its provenance."""
    before = trace.provenance.get(_EDITED)
    text = f"{before}; {what}" if before else what
    return replace(trace, provenance={**trace.provenance, _EDITED: text})


def needs_timeline(trace: Trace, what: str, remedy: str) -> None:
    """Refuse a trace of totals for an edit of events.

    Raises:
        UsageError: the trace has no events, but totals.
    """
    if row_count(trace)[1] != "event":
        raise UsageError(f"{what}, and the trace has totals of its regions, no events. {remedy}")


def take_slots(trace: AnyTrace, chosen: Bools, others: Bools) -> AnyTrace:
    """Return the trace with the chosen slots and their rows, and the chosen warps without a slot.

    The counts in a launch are then those of the slots that are left.
    """
    left = take_rows(trace, [chosen[rows.slot] for rows in row_tables(trace)])
    moved = renumber_rows(left, slot=np.cumsum(chosen) - 1)
    slots, beside = take_warps(trace.slots, chosen), take_warps(trace.others, others)
    return _recounted(replace(moved, slots=slots, others=beside), trace.slots)


def take_launches(trace: AnyTrace, chosen: list[int]) -> AnyTrace:
    """Return the trace with the chosen launches, their slots and rows."""
    number = np.full(len(trace.launches), -1, np.int32)
    number[chosen] = np.arange(len(chosen))
    tables = trace.slots, trace.others
    left = take_slots(trace, *(number[table.launch] >= 0 for table in tables))
    slots, others = (
        replace(table, launch=number[table.launch]) for table in (left.slots, left.others)
    )
    launches = tuple(left.launches[i] for i in chosen)
    return replace(left, launches=launches, slots=slots, others=others)


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
