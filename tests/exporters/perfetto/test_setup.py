from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceMessage
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackDescriptor

from ikp.exporters.perfetto import PerfettoExporter
from ikp.exporters.perfetto._setup import same_size
from ikp.exporters.protobuf.varints import varint_size
from tests.exporters.perfetto.examples import inflated, warps


def descriptors(folder: Path) -> list[TrackDescriptor]:
    path = folder / "trace.pftrace"
    trace = warps([[(0, 4), (2, 6)], [(1, 2)], [(0, 3), (1, 5)]], blocks=[(0, 0, 6)] * 3)
    PerfettoExporter().write(trace, path)
    packets = TraceMessage.FromString(inflated(path)).packet
    return [one.track_descriptor for one in packets if one.HasField("track_descriptor")]


def test_each_track_has_an_id_of_its_own(tmp_path: Path) -> None:
    uuids = [track.uuid for track in descriptors(tmp_path)]
    assert len(uuids) == len(set(uuids)) > 10
    assert 0 not in uuids


def test_tracks_come_after_their_parents(tmp_path: Path) -> None:
    known = {0}
    for track in descriptors(tmp_path):
        assert track.parent_uuid in known
        known.add(track.uuid)


def test_no_tracks_are_merged_because_of_their_names(tmp_path: Path) -> None:
    """By default Perfetto merges siblings of one name."""
    for track in descriptors(tmp_path):
        assert track.sibling_merge_behavior == track.SIBLING_MERGE_BEHAVIOR_NONE


@given(st.one_of(st.integers(0, 1 << 40), st.integers(0, (1 << 63) - 1)))
def test_ids_that_start_so_are_all_of_one_size(span: int) -> None:
    first = same_size(span)
    assert first > 0
    assert varint_size(first) == varint_size(first + max(1, span) - 1)
    if varint_size(first) > 1:
        assert varint_size(max(1, span)) >= varint_size(first) - 1, "a shorter size would have done"
