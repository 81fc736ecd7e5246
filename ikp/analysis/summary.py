"""A trace's ``repr``: three lines with its launches, its events, and its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ikp.analysis.evidence import plural
from ikp.analysis.render import duration
from ikp.core.abi import Kind
from ikp.core.rows import row_count
from ikp.core.warps import launch_bounds
from ikp.terminal import printable

if TYPE_CHECKING:
    from ikp.core.trace import Trace

_MOST_LABELS = 3
_MOST_LETTERS = 60


def summary(trace: Trace) -> str:
    """Return three lines on any trace, empty ones included."""
    return f"<ikp.Trace of {_launches(trace)}\n {_events(trace)}\n {_time(trace)}>"


def _launches(trace: Trace) -> str:
    labels = list(dict.fromkeys(launch.label for launch in trace.launches))
    names = [_short(label) for label in labels[:_MOST_LABELS]]
    more = [f"{len(labels) - _MOST_LABELS:,} more"] if len(labels) > _MOST_LABELS else []
    devices = [_short(one) for one in dict.fromkeys(launch.device for launch in trace.launches)]
    where = f" on {' + '.join(devices[:_MOST_LABELS])}" if devices else ""
    listed = f": {', '.join([*names, *more])}" if names else ""
    return f"{plural(len(trace.launches), 'launch', 'launches')}{listed}{where}"


def _events(trace: Trace) -> str:
    ranges = int(np.count_nonzero(trace.events.kind == Kind.RANGE))
    parts = [plural(ranges, "range"), plural(len(trace.events) - ranges, "instant")]
    count, what = row_count(trace)
    if what != "event":
        parts = [plural(count, what)]
    regions = plural(len({region.name for region in trace.regions}), "region")
    warps = plural(len(trace.slots), "warp")
    return f"{', '.join(parts)} of {regions} in {warps}, {trace.dropped:,} dropped"


def _time(trace: Trace) -> str:
    if not len(trace.slots):
        return "no warp recorded"
    first, last = launch_bounds(trace)
    begin, end = int(first.min()), int(last.max())
    return f"{duration(end - begin)} from start to end; see .stats(), .view(), .save(path)"


def _short(name: str) -> str:
    return printable(name if len(name) <= _MOST_LETTERS else f"{name[:_MOST_LETTERS]}...")
