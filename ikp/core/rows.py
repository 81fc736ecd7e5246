"""Operations on a trace's rows, its events and its totals: count, take, renumber, join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ikp.core.args import take_args
from ikp.core.totals import make_totals, take_totals
from ikp.core.trace import AnyTrace, Events, Totals, Trace, make_columns

Rows = Events | Totals
"""A table whose rows name a slot, a region and a kind."""


def row_tables(trace: Trace) -> tuple[Rows, Rows]:
    """Return the two tables of rows: events and totals."""
    return trace.events, trace.totals


def row_count(trace: Trace) -> tuple[int, str]:
    """Return how many rows a trace has, and the word for one: ``"total"`` if it has any."""
    summed = len(trace.totals)
    return (summed, "total") if summed else (len(trace.events), "event")


def holds_nothing(trace: Trace) -> bool:
    """Return whether a trace has neither rows nor warps."""
    return not (row_count(trace)[0] or len(trace.slots) or len(trace.others))


def take_events(trace: AnyTrace, rows: NDArray[Any]) -> AnyTrace:
    """Return the trace with the given events, in the given order."""
    events = Events(*(getattr(trace.events, name)[rows] for name in Events.__slots__))
    return replace(trace, events=events, args=take_args(trace.args, rows))


def take_rows(trace: AnyTrace, chosen: Sequence[NDArray[np.bool_]]) -> AnyTrace:
    """Return the trace with the chosen rows of each of :func:`row_tables`."""
    events, totals = chosen
    left = take_events(trace, np.flatnonzero(events))
    return replace(left, totals=take_totals(trace.totals, totals))


def renumber_rows(trace: AnyTrace, **numbers: NDArray[Any]) -> AnyTrace:
    """Return the trace with another ``slot`` or ``region`` in its rows: the new number of each old.

    Totals that get one number are added up.
    """

    def moved(rows: Rows) -> dict[str, Any]:
        return {
            name: number[getattr(rows, name)].astype(np.int32) for name, number in numbers.items()
        }

    totals = replace(trace.totals, **moved(trace.totals))
    if "region" in numbers:
        totals = make_totals(**_columns([totals]))
    return replace(trace, events=replace(trace.events, **moved(trace.events)), totals=totals)


def joined_rows(traces: Sequence[Trace]) -> dict[str, Any]:
    """Return the fields of a trace with the rows of all traces, trace by trace."""
    return {
        "events": make_columns(Events, **_columns([one.events for one in traces])),
        "totals": make_totals(**_columns([one.totals for one in traces])),
    }


def _columns(tables: Sequence[Events] | Sequence[Totals]) -> dict[str, NDArray[Any]]:
    return {
        name: np.concatenate([getattr(one, name) for one in tables])
        for name in type(tables[0]).__slots__
    }
