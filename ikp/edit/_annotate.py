"""``add_args``: further arguments for a trace's events, such as sizes; columns in tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ikp.core.args import ArgColumn, Scalar, arg_column, is_flow
from ikp.core.objects import Instant, items
from ikp.core.table import COLUMNS
from ikp.core.trace import AnyTrace
from ikp.edit._parts import needs_timeline, noted
from ikp.errors import UsageError

_RESERVED = {*COLUMNS, "cycles"}
"""Names that tables and viewers already use."""

Values = Iterable[Any] | ArgColumn | Callable[[Instant], Scalar | None]


def add_args(trace: AnyTrace, /, **args: Values) -> AnyTrace:
    """Return the trace with further arguments for its events.

    Every exporter carries them: as arguments in Perfetto and Chrome traces, as columns in tables.
    One that the trace already has is replaced. Perfetto colours events by an integer argument
    ``correlation_id``, and not by name: ``add_args(trace, correlation_id=lambda one: one.payload)``
    gives those of one payload one colour.

    Args:
        trace: the trace.
        args: by name, one value per event, in the trace's order: an array or a sequence of
            integers, floats, bools or strings; or a function that returns the value for a range
            or an instant. None and NaN mean that an event has no such argument.

    Raises:
        UsageError: a name is taken by a column that every trace has, or values are missing, of
            several types, or of none that an argument can have; or there is no timeline.
    """
    needs_timeline(trace, "add_args gives events arguments", "Add columns to trace.to_pandas().")
    columns = dict(trace.args)
    for name, values in args.items():
        if name in _RESERVED or not name:
            raise UsageError(
                f"an argument can't be named {name!r}: every event has a column of that name."
            )
        if is_flow(name):
            raise UsageError(
                f"an argument can't be named {name!r}: that name is of the arrows between "
                "events, which ikp.edit.connect draws."
            )
        found = map(values, items(trace)) if callable(values) else values
        columns[name] = arg_column(name, found, len(trace.events))
    return noted(replace(trace, args=columns), f"add_args({', '.join(args)})")
