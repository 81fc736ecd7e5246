from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from ikp.core.abi import PayloadType
from ikp.core.trace import ClockFit, Events, Trace
from ikp.core.warps import joined_warps
from ikp.exporters.columns.small_tables import launches_of
from ikp.exporters.perfetto import PerfettoExporter
from ikp.exporters.perfetto import _writer as writer
from ikp.exporters.perfetto._setup import of_launch
from ikp.exporters.perfetto.reader import read_head
from ikp.exporters.timeline import batches
from ikp.plugins import EXPORTERS, load
from tests.exporters.perfetto.examples import (
    assert_canonical,
    assert_same,
    launch,
    nothing,
    warp,
    warps,
)
from tests.strategies import traces_with_args, traces_with_others

shared_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def again(trace: Trace, folder: Path) -> Trace:
    path = folder / "trace.pftrace"
    PerfettoExporter().write(trace, path, force=True)
    return PerfettoExporter().read(path)


def test_it_is_found_by_its_entry_point() -> None:
    assert isinstance(load(EXPORTERS, "perfetto"), PerfettoExporter)


@shared_folder
@given(trace=traces_with_args())
def test_what_is_written_is_read_back(trace: Trace, tmp_path: Path) -> None:
    assert_same(again(trace, tmp_path), trace)


@shared_folder
@given(trace=traces_with_others())
def test_so_are_warps_that_left_no_records(trace: Trace, tmp_path: Path) -> None:
    assert_same(again(trace, tmp_path), trace)
    assert_canonical(tmp_path / "trace.pftrace")
    head = read_head(tmp_path / "trace.pftrace")
    starts = joined_warps([trace.slots, trace.others]).start_ns
    assert sorted(head.start_ns.tolist()) == sorted(starts.tolist())


@shared_folder
@given(trace=traces_with_args())
def test_every_byte_is_as_the_protobuf_library_writes_it(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "trace.pftrace"
    PerfettoExporter().write(trace, path, force=True)
    assert_canonical(path)


@pytest.mark.any_pins
@settings(shared_folder, max_examples=20)
@given(trace=traces_with_args())
def test_how_events_are_cut_into_batches_makes_no_difference(trace: Trace, tmp_path: Path) -> None:
    whole = again(trace, tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "EVENTS_AT_ONCE", 1)
        assert_same(again(trace, tmp_path), whole)


def test_batches_hold_whole_slots() -> None:
    assert batches.cuts(np.array([0, 3, 5, 5, 9, 9]), 5) == [(0, 5), (5, 9)]
    assert batches.cuts(np.array([0, 9, 10]), 5) == [(0, 9), (9, 10)]
    assert batches.cuts(np.array([0, 0, 0]), 5) == []
    assert batches.cuts(np.array([0]), 5) == []


@pytest.mark.parametrize("launches", [(), (launch(),), (launch(), launch("attention"))])
def test_an_empty_trace(launches: tuple[object, ...], tmp_path: Path) -> None:
    trace = nothing(launches=launches)
    assert_same(again(trace, tmp_path), trace)


def test_warps_that_recorded_nothing(tmp_path: Path) -> None:
    trace = warps([[], [(1, 2)], []])
    assert_same(again(trace, tmp_path), trace)


def test_a_name_may_stand_for_several_regions_and_be_long(tmp_path: Path) -> None:
    trace = warp(*((i, i + 1) for i in range(4)), names=["load", "load", "x" * 100_000, ""])
    assert_same(again(trace, tmp_path), trace)


@pytest.mark.any_pins
@pytest.mark.parametrize("count", [126, 127, 128, 129, 16_300, 16_400])
def test_any_number_of_regions(count: int, tmp_path: Path) -> None:
    trace = warp(*((i, i + 1) for i in range(count)), names=[f"region {i}" for i in range(count)])
    assert_same(again(trace, tmp_path), trace)


@pytest.mark.any_pins
@pytest.mark.parametrize("count", [127, 128, 16_300])
def test_any_number_of_tracks(count: int, tmp_path: Path) -> None:
    trace = warps([[(0, 2), (1, 3)]] * count, blocks=[(i, 0, 3) for i in range(count)])
    assert_same(again(trace, tmp_path), trace)


@pytest.mark.parametrize("last", [(1 << 56) - 1, 1 << 56, (1 << 62), (1 << 63) - 1])
def test_times_as_far_apart_as_they_can_be(last: int, tmp_path: Path) -> None:
    trace = warp((0, 1), (1, 2))
    events = replace(
        trace.events,
        start_ns=np.array([0, last - 1]),
        end_ns=np.array([1, last]),
        ticks=np.array([0, (1 << 63) - 1]),
    )
    slots = replace(trace.slots, start_ns=np.array([0]), end_ns=np.array([last]))
    trace = replace(trace, events=events, slots=slots)
    assert_same(again(trace, tmp_path), trace)


def test_payloads_keep_every_bit(tmp_path: Path) -> None:
    bits = [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7F800001, 0xFFC00000, 0x7FC00001]
    types = np.repeat([PayloadType.U32, PayloadType.I32, PayloadType.F32], len(bits))
    trace = warp(*((i, i + 1) for i in range(len(types))))
    events = replace(
        trace.events,
        payload=np.array(bits * 3, np.uint32),
        payload_type=types.astype(np.uint8),
    )
    trace = replace(trace, events=events)
    assert_same(again(trace, tmp_path), trace)


def test_a_payload_without_a_type_is_none(tmp_path: Path) -> None:
    trace = warp((0, 1))
    odd = replace(trace, events=replace(trace.events, payload=np.array([7], np.uint32)))
    assert_same(again(odd, tmp_path), trace)


def test_slots_may_stand_in_any_order(tmp_path: Path) -> None:
    trace = warps([[(0, 1)], [(2, 3), (3, 4)], [(5, 6)]])
    slots = replace(trace.slots, block=np.array([7, 0, 3], np.int64))
    trace = replace(trace, slots=slots)
    assert_same(again(trace, tmp_path), trace)


def test_events_are_put_in_order_of_their_ends(tmp_path: Path) -> None:
    """A device records in that order; what comes otherwise, from whoever else, is put right."""
    trace = warp((0, 1), (2, 3), (4, 5))
    order = np.array([2, 0, 1])
    mixed = Events(*(getattr(trace.events, name)[order] for name in Events.__slots__))
    assert_same(again(replace(trace, events=mixed), tmp_path), trace)


@pytest.mark.any_pins
def test_a_large_trace_spans_batches_and_block_chunks(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    recorded = [
        [(int(t), int(t) + 3) for t in np.sort(random.integers(0, 900, 9))] for _ in range(9000)
    ]
    trace = warps(recorded, blocks=[(i % 132, 0, 1000) for i in range(9000)])
    assert_same(again(trace, tmp_path), trace)


def test_a_residual_that_nothing_measured_is_told_as_unknown() -> None:
    fitted = ClockFit("cycles", 0.5, "fitted", anchors=2)
    facts = of_launch(launch(clock=fitted))
    assert facts["clock"]["residual"] == "unknown: no spare anchors"
    (read,) = launches_of({"launches": {name: [value] for name, value in facts.items()}})
    assert read.clock == fitted
    exact = ClockFit("host", 1.0, "exact", anchors=2)
    assert "residual" not in of_launch(launch(clock=exact))["clock"]
