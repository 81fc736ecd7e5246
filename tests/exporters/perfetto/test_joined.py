"""Files beside each other in one trace: by ``cat`` in both orders, and in an archive."""

from __future__ import annotations

import io
import tarfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceMessage

from ikp.core.args import arg_column
from ikp.core.trace import Trace
from ikp.exporters.perfetto import PerfettoExporter
from tests.exporters.perfetto.examples import START, assert_same, launch, warps
from tests.trace_processor import columns, open_trace
from tests.trace_processor.found import check_import

pytestmark = pytest.mark.tp
BOOTTIME, REALTIME = 6, 1
UPTIME = 5_000_000_000_000
"""What the system's own clock shows at START."""


def archived(files: list[bytes]) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for number, content in enumerate(files):
            member = tarfile.TarInfo(f"{number}.pftrace")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return whole.getvalue()


JOINED: dict[str, Callable[[list[bytes]], bytes]] = {
    "cat": b"".join,
    "cat the other way": lambda files: b"".join(reversed(files)),
    "tar": archived,
}
joins = pytest.mark.parametrize("join", JOINED.values(), ids=JOINED)


def content(trace: Trace, folder: Path) -> bytes:
    path = folder / "one.pftrace"
    PerfettoExporter().write(trace, path, force=True)
    assert_same(PerfettoExporter().read(path), trace)
    return path.read_bytes()


def recorded(label: str, *names: str, later: int = 0) -> Trace:
    """Return a launch of two blocks with an arrow between them."""
    trace = warps([[20, (1, 40)], [(50, 90)]], names=names, label=label)
    trace = replace(
        trace,
        slots=replace(trace.slots, start_ns=trace.slots.start_ns + later),
        events=replace(
            trace.events, start_ns=trace.events.start_ns + later, end_ns=trace.events.end_ns + later
        ),
        args={
            "flow_out": arg_column("flow_out", [None, 1, None], 3),
            "flow_in": arg_column("flow_in", [None, None, 1], 3),
        },
    )
    return replace(trace, slots=replace(trace.slots, end_ns=trace.slots.end_ns + later))


SLICES = """
    with recursive up(id, track, path) as (
      select s.id, t.parent_id, t.name from slice s join track t on s.track_id = t.id
      union all select up.id, t.parent_id, t.name || '/' || path
      from up join track t on up.track = t.id)
    select s.name, s.ts, s.dur, up.path from slice s join up using (id) where up.track is null
"""
FLOWS = """
    select o.name source, o.ts sent, i.name target, i.ts arrived
    from flow join slice o on slice_out = o.id join slice i on slice_in = i.id
"""


def found(files: bytes, folder: Path, *queries: str) -> list[Counter[tuple[Any, ...]]]:
    path = folder / "joined.pftrace"
    path.write_bytes(files)
    with open_trace(path) as processor:
        check_import(processor)
        tables = [columns(processor, sql) for sql in queries]
    return [Counter(zip(*(c.tolist() for c in one.values()), strict=True)) for one in tables]


@joins
def test_two_files_stay_two(join: Callable[[list[bytes]], bytes], tmp_path: Path) -> None:
    """Nothing of the one is drawn on a row of the other, or named after it."""
    traces = [recorded("gemm", "load", "dot"), recorded("norm", "mean", "scale", later=7)]
    files = [content(trace, tmp_path) for trace in traces]
    alone = [found(one, tmp_path, SLICES, FLOWS) for one in files]
    both = found(join(files), tmp_path, SLICES, FLOWS)
    assert both == [one + other for one, other in zip(*alone, strict=True)]
    assert sum(both[1].values()) == 2


def test_the_same_recording_edited_is_another_file(tmp_path: Path) -> None:
    trace = recorded("gemm", "load", "dot")
    renamed = replace(trace, provenance={**trace.provenance, "edited": "rename_regions"})
    ids = []
    for one in (trace, trace, renamed):
        packets = TraceMessage.FromString(content(one, tmp_path)).packet
        inner = TraceMessage.FromString(_inflated(packets[1].compressed_packets)).packet
        ids.append((inner[1].clock_snapshot.clocks[2].clock_id, inner[2].track_descriptor.uuid))
    assert ids[0] == ids[1]
    assert ids[0][0] != ids[2][0] and ids[0][1] != ids[2][1]


def _inflated(packed: bytes) -> bytes:
    import zlib

    return zlib.decompress(packed)


def system_trace(named: bool) -> bytes:
    """Return what traced writes: its clock is that of the boot, and it knows what time that is.

    A thread runs from 100 to 300 ns behind START. Ids are small ones, as there. Some of its packets
    name their clock (``named``), others are on whichever is the whole trace's.
    """
    trace = TraceMessage()
    clocks = trace.packet.add(trusted_packet_sequence_id=1).clock_snapshot
    clocks.primary_trace_clock = BOOTTIME
    clocks.clocks.add(clock_id=BOOTTIME, timestamp=UPTIME)
    clocks.clocks.add(clock_id=REALTIME, timestamp=START)
    track = trace.packet.add(trusted_packet_sequence_id=1).track_descriptor
    track.uuid, track.name = 1, "host"
    for kind, time in ((1, UPTIME + 100), (2, UPTIME + 300)):
        packet = trace.packet.add(trusted_packet_sequence_id=1, timestamp=time)
        if named:
            packet.timestamp_clock_id = BOOTTIME
        packet.track_event.type, packet.track_event.track_uuid = kind, 1
        packet.track_event.name = "launches the kernel"
    process = trace.packet.add(trusted_packet_sequence_id=1).track_descriptor
    process.uuid, process.process.pid, process.process.process_name = 2, 1, "init"
    return bytes(trace.SerializeToString())


@joins
def test_a_launch_lies_where_it_was_on_the_systems_axis(
    join: Callable[[list[bytes]], bytes], tmp_path: Path
) -> None:
    """Perfetto's own packets must come first, where they don't name their clock."""
    system = system_trace(named=join is JOINED["cat the other way"])
    ours = content(warps([[(140, 160)]], label="gemm"), tmp_path)
    sql = "select name, ts, dur from slice where name in ('launches the kernel', 'load')"
    (rows, processes) = found(
        join([system, ours]), tmp_path, sql, "select name from process where pid = 1"
    )
    when = {name: (ts, dur) for name, ts, dur in rows}
    assert sum(rows.values()) == 2
    assert when["load"][0] - when["launches the kernel"][0] == 40
    assert (when["launches the kernel"][1], when["load"][1]) == (200, 20)
    assert processes == {("init",): 1}


def test_ranks_stand_in_order(tmp_path: Path) -> None:
    """Perfetto orders what is on top by name."""
    ranks = [2, 10, 0]
    trace = warps([[(0, 5)], [(0, 5)], [(0, 5)]])
    trace = replace(
        trace,
        launches=tuple(launch(rank=rank, warps_per_block=1) for rank in ranks),
        slots=replace(trace.slots, launch=np.arange(3, dtype=np.int32)),
    )
    path = tmp_path / "ranks.pftrace"
    path.write_bytes(content(trace, tmp_path))
    sql = """include perfetto module viz.summary.track_event;
        select name, order_id from _track_event_tracks_ordered_groups where parent_id is null"""
    with open_trace(path) as processor:
        rows = columns(processor, sql)
    shown = [name for _, name in sorted(zip(rows["order_id"], rows["name"], strict=True))]
    assert shown == [f"launches · rank {rank} · NVIDIA H200" for rank in ("00", "02", "10")]
