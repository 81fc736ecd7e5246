"""What a file says beside its packets: read whole or in part, and refused where it is not whole."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceMessage

from ikp.core.abi import Kind, PayloadType
from ikp.core.trace import Trace
from ikp.errors import ExportError
from ikp.exporters.columns.packing import pack_json
from ikp.exporters.perfetto import PerfettoExporter, _writer, reader
from ikp.exporters.perfetto import _walk as inflate
from ikp.exporters.perfetto.reader import ForeignError, open_columns
from tests.exporters.perfetto.examples import START, assert_same, inflated, warps
from tests.exporters.perfetto.taken_apart import Section, put_together, take_apart
from tests.strategies import traces, traces_with_args
from tests.totals import gemm

shared_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
TRACE = warps([[(0, 4), (2, 6), 7], [(1, 3)], [], [(100, 130)]], names=["load", "dot"])


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file of three chunks of events and two of slots."""
    monkeypatch.setattr(_writer, "EVENTS_AT_ONCE", 1)
    monkeypatch.setattr(_writer, "ROWS_AT_ONCE", 3)
    path = tmp_path / "trace.pftrace"
    PerfettoExporter().write(TRACE, path)
    return path


def read(path: Path) -> Trace:
    return PerfettoExporter().read(path)


# Columns and packets say the same


@shared_folder
@given(trace=traces())
def test_columns_and_packets_say_the_same(trace: Trace, tmp_path: Path) -> None:
    """The packets are read by the protobuf library, and by their tracks and times alone."""
    path = tmp_path / "trace.pftrace"
    PerfettoExporter().write(trace, path, force=True)
    found = read(path)
    assert_same(found, trace)
    assert shown(path) == Counter(_rows(found))


def shown(path: Path) -> Counter[tuple[Any, ...]]:
    """Return the slices of warps that a file's packets show, with what they are told to be."""
    names, depth, clock = dict[int, str](), dict[int, int](), 0
    open_ones: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
    slices: Counter[tuple[Any, ...]] = Counter()
    for packet in TraceMessage.FromString(inflated(path)).packet:
        names |= {one.iid: one.name for one in packet.interned_data.event_names}
        for one in packet.clock_snapshot.clocks:
            clock = one.timestamp
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            depth[track.uuid] = depth.get(track.parent_uuid, -1) + 1
        step = packet.timestamp
        clock += step - (1 << 64) if step >= 1 << 63 else step
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        if depth[event.track_uuid] < _WARP:
            continue
        told = (names.get(event.name_iid), clock, *_arguments(event))
        if event.type == event.TYPE_SLICE_BEGIN:
            open_ones[event.track_uuid].append(told)
        elif event.type == event.TYPE_SLICE_END:
            slices[(Kind.RANGE, clock, *open_ones[event.track_uuid].pop())] += 1
        else:
            slices[(Kind.INSTANT, clock, *told)] += 1
    assert not any(open_ones.values())
    return slices


_WARP = 3
"""How deep a warp's track lies: below a lane, a launch, and all launches."""


def _arguments(event: Any) -> tuple[int | None, str | None]:
    """Return ticks, and the payload in words."""
    ticks, payload = None, None
    for one in event.debug_annotations:
        if one.name_iid in (2, 3):
            ticks = one.int_value
        elif one.name_iid == 4:
            payload = repr(getattr(one, one.WhichOneof("value")))
    return ticks, payload


def _rows(trace: Trace) -> list[tuple[Any, ...]]:
    events, rows = trace.events, []
    in_cycles = [one.clock.kind == "cycles" for one in trace.launches]
    for i, payload in enumerate(trace.payload.tolist()):
        start, end, ticks = (
            int(getattr(events, name)[i]) for name in ("start_ns", "end_ns", "ticks")
        )
        kind, is_float = Kind(events.kind[i]), events.payload_type[i] == PayloadType.F32
        counted = in_cycles[trace.slots.launch[events.slot[i]]] and kind == Kind.RANGE
        told = ticks if counted or ticks != end - start else None
        number = None
        if events.payload_type[i] != PayloadType.NONE:
            number = repr(payload if is_float else int(payload))
        rows.append((kind, end, trace.regions[events.region[i]].name, start, told, number))
    return rows


# In part


@shared_folder
@given(trace=traces_with_args())
def test_parts_are_those_of_the_whole(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "trace.pftrace"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_writer, "EVENTS_AT_ONCE", 3)
        PerfettoExporter().write(trace, path, force=True)
    with open_columns(path) as columns:
        assert columns is not None
        whole, low = columns.trace(), 0
        for chunk in columns.chunks("events"):
            rows = slice(low, low := low + chunk.size("rows"))
            part = columns.trace(lambda one, chunk=chunk: one is chunk)  # type: ignore[misc]
            for name in trace.events.__slots__:
                wanted = getattr(whole.events, name)[rows]
                np.testing.assert_array_equal(getattr(part.events, name), wanted)
                alone = columns.columns([chunk], [name])
                assert list(alone) == [name]
                np.testing.assert_array_equal(alone[name], wanted)
            launch = whole.slots.launch[whole.events.slot[rows]]
            assert chunk.pair("launches") == (launch.min(), launch.max())
            times = whole.events.start_ns[rows].min(), whole.events.end_ns[rows].max()
            assert chunk.pair("time") == times
    assert low == len(trace.events)


def test_packets_in_more_parts_than_columns_are_sealed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_writer, "EVENTS_AT_ONCE", 3)
    one, two = [(1, 2)], [(11, 12), (13, 14)]
    on_sms = [(0, 0, 10), (1, 10, 20), (0, 20, 30), (1, 30, 40)]  # by track: 1, 1, 2, 2 ranges
    later = [[(start + 20, end + 20) for start, end in ranges] for ranges in (one, two)]
    trace = warps([one, two, *later], blocks=on_sms)
    PerfettoExporter().write(trace, path := tmp_path / "trace.pftrace")
    read = PerfettoExporter().read(path)
    assert read.events.start_ns.tolist() == trace.events.start_ns.tolist()


def test_a_window_is_cut_out_by_heads_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled = []
    fill = reader.ColumnFile.table

    def spy(self: Any, chunks: list[Any], *rest: Any) -> Any:
        filled.extend(chunks)
        return fill(self, chunks, *rest)

    monkeypatch.setattr(reader.ColumnFile, "table", spy)
    found = reader.read(path, lambda chunk: chunk.pair("time")[0] >= START + 50)
    assert len(filled) == 1 and found.events.start_ns.tolist() == [START + 100]
    assert len(found.slots) == 4


# Bad input


def test_a_file_without_compression_is_read_too(path: Path) -> None:
    """Other tools inflate packets; what they say is the same."""
    path.write_bytes(b"".join(_inflated(path)))
    assert_same(read(path), TRACE)


def _inflated(path: Path) -> list[bytes]:
    """Return the sections of a file as another tool would write them."""
    import zlib

    parts = []
    for packet in TraceMessage.FromString(path.read_bytes()).packet:
        packed = packet.compressed_packets
        parts.append(zlib.decompress(packed) if packed else _as_packet(packet))
    return parts


def _as_packet(packet: Any) -> bytes:
    return bytes(TraceMessage(packet=[packet]).SerializeToString())


def test_a_file_cut_short_anywhere_is_refused(path: Path) -> None:
    content = path.read_bytes()
    for length in range(1, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(ExportError, match=r"is not a whole Perfetto trace: .*cut short"):
            read(path)


def test_every_byte_counts(path: Path) -> None:
    """A flipped bit anywhere is noticed: in columns, in heads, and in what viewers show.

    But for what deflate itself does not use: lengths of codes that do not occur.
    """
    content, whole = path.read_bytes(), _inflated(path)
    unused = 0
    for place in range(0, len(content), 5):
        damaged = bytearray(content)
        damaged[place] ^= 4
        path.write_bytes(damaged)
        try:
            read(path)
        except ExportError:
            continue
        assert _inflated(path) == whole
        unused += 1
    assert unused < 5


def test_columns_of_other_packets_are_refused(path: Path, tmp_path: Path) -> None:
    """Each half is whole, and of as many events."""
    other = tmp_path / "other.pftrace"
    later = replace(TRACE, events=replace(TRACE.events, ticks=TRACE.events.ticks + 1))
    PerfettoExporter().write(later, other)
    sections, others = take_apart(path.read_bytes()), take_apart(other.read_bytes())
    for one, theirs in zip(sections, others, strict=True):
        one.packets = theirs.packets
    path.write_bytes(put_together(sections))
    with pytest.raises(ExportError, match="packets are not those that its columns were written"):
        read(path)


def test_a_file_of_a_later_layout_is_refused(path: Path) -> None:
    sections = take_apart(path.read_bytes())
    sections[0].about["format"] = 6
    path.write_bytes(put_together(sections))
    with pytest.raises(ForeignError, match="version 6 of ikp's layout; this ikp reads versions"):
        read(path)


def test_what_a_later_ikp_adds_is_no_obstacle(path: Path) -> None:
    sections = take_apart(path.read_bytes())
    facts = sections[0].json("facts")
    facts["launches"]["mood"] = ["good"]
    facts["launches"]["clock"][0]["jitter_ns"] = 0.5
    sections[0].put_json("facts", facts)
    sections[0].about["more"] = 1
    sections[-1].put("more", np.arange(1))
    path.write_bytes(put_together(sections))
    assert_same(read(path), TRACE)


def test_two_traces_are_not_one(path: Path) -> None:
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(ExportError, match="holds several traces, one behind the other"):
        read(path)


def changed(name: str, **values: Any) -> Callable[[list[Section]], None]:
    """Return a change of a column of the first chunk of a kind."""
    ((column, change),) = values.items()

    def apply(sections: list[Section]) -> None:
        section = next(one for one in sections if one.kind == name)
        section.put(column, change(section.numbers(column)))

    return apply


def told(kind: str, **facts: Any) -> Callable[[list[Section]], None]:
    """Return a change of what the head of the first chunk of a kind tells."""

    def apply(sections: list[Section]) -> None:
        next(one for one in sections if one.kind == kind).about.update(facts)

    return apply


LIES = {
    "fewer chunks": (lambda sections: sections.pop(), "it holds 4 of 5 chunks"),
    "a column is missing": (
        lambda sections: sections[-1].pieces.pop("region"),
        "the column 'region' is missing",
    ),
    "more events": (told("trace", events=6), "it holds 5 of 6 events"),
    "endless events": (told("trace", events=1 << 62), "it holds 5 of"),
    "endless rows": (told("events", rows=1 << 50), "inflates to more than"),
    "negative rows": (told("events", rows=-1), "doesn't say its rows"),
    "another window": (told("events", time=[0, 1]), "times of a chunk are not those"),
    "other slots": (told("events", slots=[-5, 0]), "slots of a chunk are not those"),
    "no rate": (told("events", rate=0.5), "doesn't say its rate"),
    "no such slot": (changed("events", slot=lambda x: x + 9), "slot|not those"),
    "no such region": (changed("events", region=lambda x: x + 9), "region is one that there is no"),
    "no such kind": (changed("events", kind=lambda x: x + 9), "kind is one that there is not"),
    "a short column": (changed("events", ticks=lambda x: x[:-1]), "'ticks' has 2 rows of 3"),
    "a long column": (changed("events", gap=lambda x: np.append(x, 0)), "more rows than its chunk"),
    "a range that ends first": (changed("events", span=lambda x: -x), "ends before it starts"),
    "no such launch": (changed("slots", launch=lambda x: x + 1), "a slot names a launch"),
    "no such role": (changed("slots", role=lambda x: x - 1), "a slot names a role"),
    "wide numbers": (changed("slots", sm=lambda x: x + (1 << 40)), "a sm has an impossible"),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_contradicts_itself_is_refused(lie: str, path: Path) -> None:
    change, words = LIES[lie]
    sections = take_apart(path.read_bytes())
    change(sections)
    path.write_bytes(put_together(sections))
    with pytest.raises(ExportError, match=words):
        read(path)


def test_totals_that_contradict_themselves_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "totals.pftrace"
    PerfettoExporter().write(gemm(2), path)
    content = path.read_bytes()
    for name, change in (("slot", 99), ("region", 99), ("kind", 5), ("count", -1000)):
        sections = take_apart(content)
        changed("totals", **{name: lambda x, change=change: x + change})(sections)
        path.write_bytes(put_together(sections))
        with pytest.raises(ExportError, match="a total "):
            read(path)


def test_columns_take_no_more_memory_than_the_file_explains(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflate, "LEAST", 100)
    monkeypatch.setattr(inflate, "_TIMES", 0)
    with pytest.raises(ExportError, match="set IKP_INFLATE_MIB to more in the environment"):
        read(path)
    monkeypatch.setenv("IKP_INFLATE_MIB", "4")
    assert_same(read(path), TRACE)


@pytest.mark.parametrize("nested", ["[],", "{},"])
def test_plain_values_that_would_fill_the_memory_are_refused(nested: str, path: Path) -> None:
    """A few KB of file, some MB of text, and 20 times that as lists."""
    sections = take_apart(path.read_bytes())
    text = b'{"x":[' + nested.encode() * 3_000_000 + b"0]}"
    sections[0].pieces["facts"] = pack_json("facts", text)
    path.write_bytes(put_together(sections))
    assert path.stat().st_size < 100_000
    with pytest.raises(ExportError, match="inflates to more than"):
        read(path)
