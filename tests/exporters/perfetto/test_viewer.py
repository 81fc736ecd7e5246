"""What Perfetto's own trace processor makes of the files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ikp.core.abi import PayloadType
from ikp.core.args import arg_column
from ikp.core.trace import ClockFit, Trace
from ikp.edit import add_args
from ikp.exporters.perfetto import PerfettoExporter
from ikp.exporters.timeline import batches
from tests.exporters.perfetto.examples import assert_same, launch, nothing, warp, warps
from tests.strategies import traces, traces_with_others
from tests.trace_processor import check_trace, columns, open_trace

pytestmark = [pytest.mark.any_pins, pytest.mark.tp]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.pftrace"


def write_and_check(trace: Trace, path: Path) -> None:
    PerfettoExporter().write(trace, path, force=True)
    check_trace(path, trace)


def tracks(path: Path) -> list[tuple[str, int]]:
    """Return the slices as (track, depth), in order of time."""
    sql = "select t.name, s.depth from slice s join track t on s.track_id = t.id order by s.id"
    with open_trace(path) as processor:
        found = columns(processor, sql)
    rows = zip(found["name"].tolist(), found["depth"].tolist(), strict=True)
    return [(name, depth) for name, depth in rows if name.split()[0] in {"warp", "overlap"}]


@settings(
    max_examples=settings.default.max_examples // 2,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(trace=traces(), few=st.sampled_from([0, 16]))
def test_it_finds_exactly_what_was_recorded(trace: Trace, few: int, path: Path) -> None:
    with patch.object(batches, "_FEW_EVENTS", few):  # slots by their tracks, and as they stand
        write_and_check(trace, path)


@settings(
    max_examples=settings.default.max_examples // 2,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(trace=traces_with_others())
def test_blocks_without_records_lie_beside_the_others(trace: Trace, path: Path) -> None:
    write_and_check(trace, path)


def test_ranges_that_nest_share_a_track(path: Path) -> None:
    write_and_check(warp((2, 3), (4, 5), (1, 6), (7, 8)), path)
    assert tracks(path) == [("warp 0", 0), ("warp 0", 1), ("warp 0", 1), ("warp 0", 0)]


def test_ranges_that_overlap_lie_on_tracks_of_their_own(path: Path) -> None:
    write_and_check(warp((0, 4), (2, 6), (3, 8), (8, 9)), path)
    assert tracks(path) == [("warp 0", 0), ("overlap 1", 0), ("overlap 2", 0), ("warp 0", 0)]


@pytest.mark.parametrize(
    "events",
    [
        [(0, 5), (5, 9)],
        [(0, 5), (5, 5), (5, 9)],
        [(0, 0), (0, 5)],
        [(5, 5), (0, 5)],
        [(0, 5), (0, 5), (0, 5)],
        [(5, 5), (5, 5), (5, 5)],
        [5, (5, 9)],
        [5, 5, (0, 5), 5],
        [(0, 5), 5, (5, 9), 9],
        [(3, 5), (0, 5), (5, 5), 5, (5, 7)],
    ],
    ids=str,
)
def test_ties(events: list[tuple[int, int] | int], path: Path) -> None:
    write_and_check(warp(*events), path)


def test_a_tie_between_blocks_of_one_lane(path: Path) -> None:
    recorded = [[(0, 5), (2, 5)], [(5, 5), (5, 9)], [9, (9, 9)]]
    trace = warps(recorded, blocks=[(3, 0, 5), (3, 5, 9), (3, 9, 9)])
    write_and_check(trace, path)
    with open_trace(path) as processor:
        lanes = columns(processor, "select name from track where name glob 'SM *'")
    assert lanes["name"].tolist() == ["SM 3"]


def test_blocks_that_touch_in_the_wrong_order_take_two_lanes(path: Path) -> None:
    """Else the one that ends would close what the other one opens at that very moment."""
    trace = warps([[(5, 9)], [(0, 5)]], blocks=[(3, 5, 9), (3, 0, 5)])
    write_and_check(trace, path)
    with open_trace(path) as processor:
        lanes = columns(processor, "select name from track where name glob 'SM *' order by name")
    assert lanes["name"].tolist() == ["SM 3 · lane 0", "SM 3 · lane 1"]


@pytest.mark.parametrize("events", [[(2, 12), (11, 20)], [(2, 9), (8, 20)], [(0, 12), (8, 20)]])
def test_a_block_keeps_its_lane_for_as_long_as_it_has_events(
    events: list[tuple[int, int]], path: Path
) -> None:
    """Clocks are fitted: a record may lie outside of its warp's life by some nanoseconds."""
    trace = warps([[event] for event in events], blocks=[(0, 1, 9), (0, 10, 20)])
    write_and_check(trace, path)


@pytest.mark.parametrize("depth", [509, 510, 511, 512, 600, 1100])
def test_nesting_deeper_than_the_viewer_can(depth: int, path: Path) -> None:
    ranges = [(depth - i, depth + i) for i in range(1, depth)]
    write_and_check(warp(depth, *ranges), path)


def test_waves_fill_lanes_one_after_another(path: Path) -> None:
    blocks = [(i % 4, 100 * (i // 8), 100 * (i // 8) + 90) for i in range(20)]
    trace = warps([[(start + 1, start + 50)] for _, start, _ in blocks], blocks=blocks)
    write_and_check(trace, path)
    sql = (
        "select value from counter join track on track_id = track.id where name = 'resident blocks'"
    )
    with open_trace(path) as processor:
        resident = columns(processor, sql)["value"].tolist()
    assert resident == [8, 0, 8, 0, 4, 0]


@pytest.mark.parametrize("launches", [(), (launch(),), (launch(), launch("attention"))])
def test_an_empty_trace_loads(launches: tuple[object, ...], path: Path) -> None:
    write_and_check(nothing(launches=launches), path)


@pytest.mark.parametrize("name", ['"', "'; drop table slice", "測量 🙂", "a\nb\tc", "x" * 70_000])
def test_names(name: str, path: Path) -> None:
    trace = warp((0, 1), 2, names=[name], label=name, device=name, notes=(name,))
    write_and_check(replace(trace, provenance={"by": name}), path)


@pytest.mark.parametrize("start", [0, 1, 1 << 32, 1 << 62, (1 << 63) - 1000])
def test_any_time(start: int, path: Path) -> None:
    trace = warp((0, 3), (4, 900))
    move = start - int(trace.slots.start_ns[0])
    trace = replace(
        trace,
        slots=replace(
            trace.slots, start_ns=trace.slots.start_ns + move, end_ns=trace.slots.end_ns + move
        ),
        events=replace(
            trace.events, start_ns=trace.events.start_ns + move, end_ns=trace.events.end_ns + move
        ),
    )
    write_and_check(trace, path)


def test_all_of_time(path: Path) -> None:
    trace = warp((0, 1), (1, 2))
    last = (1 << 63) - 2
    events = replace(
        trace.events, start_ns=np.array([0, 5]), end_ns=np.array([1, last]), ticks=np.array([2, 9])
    )
    slots = replace(trace.slots, start_ns=np.array([0]), end_ns=np.array([last]))
    write_and_check(replace(trace, events=events, slots=slots), path)


def test_payloads_are_arguments_of_their_type(path: Path) -> None:
    trace = warp((0, 1), (1, 2), (2, 3), (3, 4))
    bits = np.array([0xFFFFFFFF, 0xFFFFFFFF, 0x3FC00000, 9], np.uint32)
    types = np.array(
        [PayloadType.U32, PayloadType.I32, PayloadType.F32, PayloadType.NONE], np.uint8
    )
    trace = replace(trace, events=replace(trace.events, payload=bits, payload_type=types))
    write_and_check(trace, path)
    with open_trace(path) as processor:
        found = columns(processor, "select display_value v from args where key = 'debug.payload'")
    assert found["v"].tolist() == ["4294967295", "-1", "1.5"]


def test_arguments_of_every_type_are_shown(path: Path) -> None:
    values = {"iteration": [3, None, -4], "cost": [0.1, 1e300, None], "tail": [True, None, False]}
    values["note"] = ["測量", "", None]
    trace = warp((0, 1), 2, (3, 9))
    args = {name: arg_column(name, column, 3) for name, column in values.items()}
    write_and_check(replace(trace, args=args), path)
    sql = "select distinct key, display_value v from args where key glob 'debug.*'"
    with open_trace(path) as processor:
        found = columns(processor, sql)
    shown = set(zip(found["key"].tolist(), found["v"].tolist(), strict=True))
    assert {
        *(("debug.iteration", "3"), ("debug.iteration", "-4"), ("debug.cost", "0.1")),
        *(("debug.tail", "true"), ("debug.tail", "false")),
        *(("debug.note", "測量"), ("debug.note", "")),
    } <= shown


def test_events_of_one_number_have_one_colour(path: Path) -> None:
    """Perfetto colours by its own argument, which has no prefix, and not by name."""
    trace = warps([[(10, 20), (30, 40), 45], [(50, 60), (70, 80)]])
    numbers = [7, None, 7, (1 << 32) - 1, 7]
    coloured = add_args(trace, correlation_id=numbers, other=range(5))
    write_and_check(coloured, path)
    with open_trace(path) as processor:
        found = columns(
            processor,
            "select extract_arg(arg_set_id, 'correlation_id') as colour,"
            " extract_arg(arg_set_id, 'debug.other') as other from slice where other is not null"
            " order by other",
        )
    shown = [None if each is None else each.partition("#")[2] for each in found["colour"]]
    assert shown == ["7", None, "7", "4294967295", "7"]
    assert_same(PerfettoExporter().read(path), coloured)
    texts = add_args(trace, correlation_id=["a"] * 5)
    write_and_check(texts, path)


def test_cycles_are_told_only_where_the_clock_counts_them(path: Path) -> None:
    clock = ClockFit("globaltimer", 1.0, "exact")
    trace = warp((0, 7), (7, 9), clock=clock)
    trace = replace(trace, events=replace(trace.events, ticks=np.array([7, 3])))
    write_and_check(trace, path)
    with open_trace(path) as processor:
        found = columns(
            processor,
            "select key, int_value v from args where key in ('debug.ticks', 'debug.cycles')",
        )
    assert list(zip(found["key"], found["v"], strict=True)) == [("debug.ticks", 3)]


def test_what_was_lost_stands_in_the_trace(path: Path) -> None:
    trace = warp((0, 5), attempted=1235, kept=1, unfinished=1, notes=("a ring of one",))
    write_and_check(trace, path)
    with open_trace(path) as processor:
        found = columns(processor, "select name from slice where name glob '*dropped'")
    assert found["name"].tolist() == ["1234 records dropped"]


def test_many_blocks(path: Path) -> None:
    random = np.random.default_rng(3)
    starts = np.sort(random.integers(0, 10_000, 5000)).tolist()
    recorded = [[(start + 1, start + 4), start + 5, (start, start + 9)] for start in starts]
    blocks = [(i % 16, start, start + 10) for i, start in enumerate(starts)]
    write_and_check(warps(recorded, blocks=blocks), path)
