"""The comparison itself: what it does not notice, the tests that call it do not prove."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ikp.core.abi import PayloadType
from ikp.core.args import arg_column
from ikp.core.trace import Trace
from ikp.exporters.perfetto import PerfettoExporter
from tests.exporters.perfetto.examples import warp, warps
from tests.trace_processor import TraceProcessorError, check_trace, open_trace
from tests.trace_processor.events import check_events
from tests.trace_processor.flows import check_flows
from tests.trace_processor.found import load
from tests.trace_processor.nesting import parents

pytestmark = pytest.mark.any_pins

TRACE = warps(
    [[(1, 3), (0, 9), 10], [(2, 6), (4, 8)], [(20, 25)]],
    blocks=[(0, 0, 12), (0, 0, 9), (1, 15, 30)],
    names=["load", "dot"],
    notes=("told",),
)


def with_columns(table: str, **columns: Any) -> Trace:
    old = getattr(TRACE, table)
    return replace(TRACE, **{table: replace(old, **columns)})


def one_changed(table: str, name: str, row: int, value: int) -> Trace:
    column = getattr(getattr(TRACE, table), name).copy()
    column[row] = value
    return with_columns(table, **{name: column})


def without_event(row: int) -> Trace:
    events = TRACE.events
    return with_columns(
        "events", **{f.name: np.delete(getattr(events, f.name), row) for f in fields(events)}
    )


def with_arrow(source: int, target: int) -> Trace:
    count = len(TRACE.events)
    numbers = {"flow_out": source, "flow_in": target}
    args = {
        name: arg_column(name, [1 if i == row else None for i in range(count)], count)
        for name, row in numbers.items()
    }
    return replace(TRACE, args=args)


START = int(TRACE.events.start_ns[1])
DIFFERENT = {
    "a name": replace(TRACE, regions=(TRACE.regions[0], replace(TRACE.regions[1], name="other"))),
    "an event's region": one_changed("events", "region", 0, 1),
    "an event's start": one_changed("events", "start_ns", 0, START + 2),
    "an event's end": one_changed("events", "end_ns", 0, START + 4),
    "an event's ticks": one_changed("events", "ticks", 0, 5),
    "an event's slot": one_changed("events", "slot", 2, 1),
    "an event's payload": with_columns(
        "events",
        payload_type=np.full(6, PayloadType.U32, np.uint8),
        payload=np.arange(6, dtype=np.uint32),
    ),
    "one event less": without_event(3),
    "a slot's start": one_changed("slots", "start_ns", 2, START + 16),
    "a slot's end": one_changed("slots", "end_ns", 2, START + 31),
    "a slot's SM": one_changed("slots", "sm", 2, 5),
    "a slot's block": one_changed("slots", "block", 2, 5),
    "a slot's role": replace(one_changed("slots", "role", 1, 1), roles=("", "producer")),
    "records attempted": one_changed("slots", "attempted", 0, 99),
    "records kept": one_changed("slots", "kept", 0, 2),
    "a warp that finished": with_columns("slots", finished=np.array([True, False, True])),
    "evidence": replace(TRACE, launches=(replace(TRACE.launches[0], capacity=17),)),
    "a launch's label": replace(TRACE, launches=(replace(TRACE.launches[0], label="x"),)),
    "a launch's device": replace(TRACE, launches=(replace(TRACE.launches[0], device="x"),)),
    "a note": replace(TRACE, launches=(replace(TRACE.launches[0], notes=()),)),
    "a loss": replace(TRACE, launches=(replace(TRACE.launches[0], attempted=99),)),
    "one launch more": replace(TRACE, launches=TRACE.launches * 2),
    "provenance": replace(TRACE, provenance={"ikp": "0.2.0"}),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "trace.pftrace"
    PerfettoExporter().write(TRACE, path)
    return path


@pytest.mark.tp
def test_what_is_the_same_passes(path: Path) -> None:
    check_trace(path, TRACE)


@pytest.mark.tp
@pytest.mark.parametrize("what", DIFFERENT)
def test_a_difference_is_noticed(what: str, path: Path) -> None:
    with pytest.raises(AssertionError):
        check_trace(path, DIFFERENT[what])


@pytest.mark.tp
@pytest.mark.parametrize("late", [False, True], ids=["at the start", "at the end"])
def test_an_arrow_from_another_event_is_noticed(late: bool, tmp_path: Path) -> None:
    """The file says of each event what it should, and its flow joins others."""
    path = tmp_path / "trace.pftrace"
    source, target, other = (0, 4, 5) if late else (1, 3, 5)
    PerfettoExporter().write(with_arrow(source, target), path)
    check_trace(path, with_arrow(source, target))
    with open_trace(path) as processor:
        found = check_events(load(processor), with_arrow(source, target))
        check_flows(processor, found, with_arrow(source, target))
        for wrong in (with_arrow(source, other), with_arrow(other, target), TRACE):
            with pytest.raises(AssertionError, match="flows: found"):
                check_flows(processor, found, wrong)


@pytest.mark.tp
def test_wrong_nesting_is_noticed(tmp_path: Path) -> None:
    """The same slices, of which one is drawn inside another that it follows."""
    path = tmp_path / "trace.pftrace"
    PerfettoExporter().write(warp((5, 5), (0, 5)), path)
    with pytest.raises(AssertionError, match=r"lies in slice|flat ranges nest"):
        check_trace(path, warp((0, 5), (5, 5)))


@pytest.mark.tp
def test_what_can_t_be_loaded_is_told(tmp_path: Path) -> None:
    path = tmp_path / "trace.pftrace"
    path.write_bytes(b"no trace at all")
    with pytest.raises(TraceProcessorError, match="can't load"):
        check_trace(path, TRACE)


@pytest.mark.tp
def test_a_trace_after_a_broken_one_is_compared_as_ever(path: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pftrace"
    broken.write_bytes(path.read_bytes()[:500])
    with pytest.raises(AssertionError):
        check_trace(broken, TRACE)
    check_trace(path, TRACE)


@pytest.mark.parametrize(
    ("ranges", "wanted"),
    [
        ([(0, 1), (1, 2)], [-1, -1]),
        ([(1, 2), (0, 3)], [1, -1]),
        ([(1, 2), (1, 2), (0, 3)], [1, 2, -1]),
        ([(0, 2), (1, 3)], None),
        ([(0, 2), (3, 4), (1, 5)], None),
        ([(0, 0), (0, 1)], [-1, -1]),
    ],
)
def test_the_plain_algorithm(ranges: list[tuple[int, int]], wanted: list[int] | None) -> None:
    start, end = zip(*ranges, strict=True)
    assert parents(start, end, [True] * len(ranges)) == wanted
