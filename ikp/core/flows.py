"""Flows: arrows from one event to another, kept as arguments of both events.

An event that arrows start from has a number of its own, its argument ``flow_out``. An event at
which an arrow ends has the number of the event that the arrow comes from as ``flow_in``; those of
further arrows that end at it are ``flow_in_2``, ``flow_in_3``, ... So arrows stay with their events
however a trace is edited, and a table of events joined with itself, ``flow_in`` with
``flow_out``, is the table of arrows.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.args import ArgColumn, Args

OUT: Final = "flow_out"
IN: Final = "flow_in"
_NAME: Final = re.compile(f"{OUT}|{IN}(_[1-9][0-9]*)?")


def is_flow(name: str) -> bool:
    """Return whether an argument of this name holds numbers of arrows."""
    return _NAME.fullmatch(name) is not None


def incoming(number: int) -> str:
    """Return the argument for the arrows that are the ``number``-th to end at their events."""
    return IN if number == 1 else f"{IN}_{number}"


def arrows(args: Args) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows of the events at which arrows start, and of those at which they end.

    An arrow of which one event was left out of the trace is left out, too.
    """
    nothing = np.zeros(0, np.intp)
    if OUT not in args:
        return nothing, nothing
    numbers, rows = _given(args[OUT])
    order = np.argsort(numbers, kind="stable")
    numbers, rows = numbers[order], rows[order]
    found = [(nothing, nothing)]
    for name, column in args.items():
        if is_flow(name) and name != OUT:
            wanted, targets = _given(column)
            first = np.searchsorted(numbers, wanted)
            count = np.searchsorted(numbers, wanted, "right") - first
            found.append((rows[spread(first, count)], np.repeat(targets, count)))
    sources, targets = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return sources, targets


def spread(first: NDArray[np.intp], count: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return ``count[i]`` successive numbers from each ``first[i]`` on, one list after another."""
    before = np.cumsum(count) - count
    places: NDArray[np.intp] = np.arange(int(count.sum())) + np.repeat(first - before, count)
    return places


def _given(column: ArgColumn) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    rows = np.flatnonzero(column.given)
    return column.values[rows].astype(np.int64), rows


def highest(args: Args) -> int:
    """Return the highest number that events have for their arrows; 0 where there are none."""
    numbers = [_given(column)[0] for name, column in args.items() if is_flow(name)]
    return max((int(each.max()) for each in numbers if len(each)), default=0)


def renumbered(args: Args, by: int) -> dict[str, ArgColumn]:
    """Return arguments with the numbers of arrows raised by ``by``, so that they meet no others.

    For joining traces, each of which numbers its arrows from its own zero.
    """
    return {
        name: replace(column, values=np.where(column.given, column.values + by, 0))
        if is_flow(name) and column.values.dtype.kind == "i"
        else column
        for name, column in args.items()
    }
