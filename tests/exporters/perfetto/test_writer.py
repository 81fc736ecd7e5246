from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ikp.core.trace import Trace
from ikp.errors import ExportError
from ikp.exporters.perfetto import PerfettoExporter
from tests.exporters.perfetto.examples import warp, warps


def changed(table: str, **columns: Any) -> Trace:
    trace = warp((0, 1), 2)
    old = getattr(trace, table)
    new = {name: np.array(column, getattr(old, name).dtype) for name, column in columns.items()}
    return replace(trace, **{table: replace(old, **new)})


@pytest.mark.parametrize(
    ("trace", "fault"),
    [
        (changed("slots", launch=[1]), "a slot names a launch that there is not"),
        (changed("slots", launch=[-1]), "a slot names a launch that there is not"),
        (changed("events", slot=[0, 1]), "an event names a slot that there is not"),
        (changed("events", region=[0, 1]), "an event names a region that there is not"),
        (changed("events", kind=[1, 3]), "an event is neither range nor instant"),
        (changed("events", kind=[0, 2]), "an event is neither range nor instant"),
        (changed("events", payload_type=[0, 4]), "a payload's type is unknown"),
        (changed("events", end_ns=[0, 0]), "an event ends before it starts"),
        (changed("events", kind=[2, 2]), "an instant has a duration"),
        (changed("events", start_ns=[-1, 0]), "a time is negative"),
        (changed("slots", start_ns=[-1]), "a time is negative"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_trace_that_contradicts_itself_is_refused(
    trace: Trace, fault: str, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=f"contradicts itself: .*{fault}"):
        PerfettoExporter().write(trace, tmp_path / "trace.pftrace")
    assert not list(tmp_path.iterdir())


def test_events_of_slots_in_disorder_are_refused(tmp_path: Path) -> None:
    trace = warps([[(0, 1)], [(0, 1)]])
    trace = replace(trace, events=replace(trace.events, slot=np.array([1, 0], np.int32)))
    with pytest.raises(ExportError, match="events are not sorted by slot"):
        PerfettoExporter().write(trace, tmp_path / "trace.pftrace")


def test_two_slots_can_t_be_the_same_warp(tmp_path: Path) -> None:
    trace = warps([[(0, 1)], [(0, 1)]], blocks=[(3, 0, 1), (3, 0, 1)])
    trace = replace(trace, slots=replace(trace.slots, block=np.array([5, 5], np.int64)))
    with pytest.raises(ExportError, match="two slots of the trace are both warp 0 of block 5"):
        PerfettoExporter().write(trace, tmp_path / "trace.pftrace")
