"""Rows taken out of a trace, and the note of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ikp.core.args import take_args
from ikp.core.totals import take_totals
from ikp.core.trace import AnyTrace, Column, Events, Slots, Totals, Trace
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


def refuse_totals(trace: Trace, what: str, remedy: str) -> None:
    """Refuse what can be done to events alone.

    Raises:
        UsageError: the trace has totals.
    """
    if len(trace.totals):
        raise UsageError(f"{what}, and the trace has totals of its regions, no events. {remedy}")


def take_events(trace: AnyTrace, rows: Column) -> AnyTrace:
    """Return the trace with the given events, in the given order."""
    events = Events(*(getattr(trace.events, name)[rows] for name in Events.__slots__))
    return replace(trace, events=events, args=take_args(trace.args, rows))


def take_slots(trace: AnyTrace, chosen: Bools) -> AnyTrace:
    """Return the trace with the chosen slots, their events and totals.

    What a launch says of its records then concerns its slots that are left.
    """
    number = np.cumsum(chosen) - 1
    events = np.flatnonzero(chosen[trace.events.slot])
    left = take_events(trace, events)
    slots = Slots(*(getattr(trace.slots, name)[chosen] for name in Slots.__slots__))
    moved = replace(left.events, slot=number[left.events.slot].astype(np.int32))
    totals = _numbered_totals(take_totals(trace.totals, chosen[trace.totals.slot]), slot=number)
    return _recounted(replace(left, slots=slots, events=moved, totals=totals), trace.slots)


def _numbered_totals(totals: Totals, **numbers: Column) -> Totals:
    """Return totals whose ``slot`` or ``region`` are others: the new number of each old one."""
    return replace(
        totals,
        **{
            name: number[getattr(totals, name)].astype(np.int32) for name, number in numbers.items()
        },
    )


def take_launches(trace: AnyTrace, chosen: list[int]) -> AnyTrace:
    """Return the trace with the chosen launches, their slots, events and totals."""
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
