"""``ChromeExporter``: Chrome JSON traces (``.json``), for ``chrome://tracing`` and Perfetto.

The format knows processes and threads and no more. So the tree of
:mod:`ikp.exporters.timeline.tracks` has two levels here: a launch is a process with its evidence,
each SM of it another, and the counters of a device are one. Every CTA slot ("lane"), warp and
overlap of an SM is a thread, named by its path from the SM. Times are microseconds from the first
event, with three decimals: exact nanoseconds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from math import isfinite
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import PayloadType
from ikp.core.args import TEXT, ArgColumn, coded
from ikp.core.trace import Events as Table
from ikp.core.trace import Launch, Trace
from ikp.exporters.files import FileExporter, packed
from ikp.exporters.text import (
    Part,
    Texts,
    at_once,
    cut,
    integers,
    join,
    lay,
    texts,
    thousandths,
    where,
)
from ikp.exporters.timeline.batches import ARROW, NAME, Arrows, Batch, Batches, Sums
from ikp.exporters.timeline.tracks import Layout, Track, TrackKind, lay_out, process_names
from ikp.progress import track


class ChromeExporter(FileExporter):
    """Writes Chrome JSON traces; those with ``.gz`` at the end compressed."""

    suffixes = (".json", ".json.gz", ".chrome_trace")

    def _put(self, trace: Trace, file: BinaryIO, name: str) -> None:
        with packed(file, name) as out:
            write(trace, out, name)


_PER_LAUNCH: Final = 1 << 16
"""More SMs than any GPU has, to keep the processes of each launch together."""


class ChromeThreads:
    """The processes and threads of one file.

    A thread's id is that of its track; a process has the id of its first thread.
    """

    def __init__(self) -> None:
        self.process: dict[int, int] = {}  # by track
        self.heads: dict[int, bytes] = {}  # the first fields of an event on the track
        self._names: dict[int, str] = {}  # of threads, by track
        self._places: Counter[tuple[str, int]] = Counter()

    def of(self, layout: Layout, launches: Sequence[Launch]) -> Iterator[bytes]:
        """Make threads of a layout's tracks; yield the events that name them."""
        names = process_names(tuple(launches))
        called = {one.uuid: one.name for one in layout.tracks}
        for row in layout.tracks:
            if row.kind is TrackKind.COUNTER:
                if row.parent not in self.process.values():
                    yield from self._process(row.parent, called[row.parent], 0)
                self.process[row.uuid] = row.parent
        for number, tracks in enumerate(layout.launches):
            yield from self._process(tracks.evidence, names[number], number)
            yield from self._thread(tracks.evidence, tracks.evidence, "ikp")
        yield from self._lanes(layout, names)

    def _lanes(self, layout: Layout, names: Sequence[str]) -> Iterator[bytes]:
        """Make threads of CTA slots and of their warps, and processes of their SMs."""
        blocks = layout.blocks
        lanes, one = np.unique(blocks.track, return_index=True)  # by launch, SM and lane
        columns = (column[one].tolist() for column in (blocks.launch, blocks.sm, blocks.lane))
        first: dict[tuple[int, int], int] = {}
        for uuid, launch, sm, lane in zip(lanes.tolist(), *columns, strict=True):
            pid = first.setdefault((launch, sm), uuid)
            if pid == uuid:
                yield from self._process(pid, f"{names[launch]} · SM {sm}", launch)
            yield from self._thread(uuid, pid, f"lane {lane}")
        known = set(lanes.tolist())
        for warp in layout.tracks:
            if warp.parent in known:
                yield from self.add(warp)

    def add(self, track: Track) -> Iterator[bytes]:
        """Make a track a thread of its parent's process; yield the events that name it."""
        name = f"{self._names[track.parent]} · {track.name}"
        return self._thread(track.uuid, self.process[track.parent], name)

    def _thread(self, uuid: int, pid: int, name: str) -> Iterator[bytes]:
        self.process[uuid], self._names[uuid] = pid, name
        self.heads[uuid] = b'"pid":%d,"tid":%d' % (pid, uuid)
        return self._named("thread", self.heads[uuid], name, pid, 0)

    def _process(self, pid: int, name: str, launch: int) -> Iterator[bytes]:
        """Name a process that is sorted after the earlier ones of the same launch."""
        return self._named("process", b'"pid":%d' % pid, name, launch, launch * _PER_LAUNCH)

    def _named(self, what: str, head: bytes, name: str, group: int, base: int) -> Iterator[bytes]:
        """Yield the events that give a name, and a sort index behind others of the group."""
        self._places[what, group] += 1
        order = base + self._places[what, group]
        yield event("M", head, {"name": f"{what}_name", "args": {"name": name}})
        yield event("M", head, {"name": f"{what}_sort_index", "args": {"sort_index": order}})


def event(phase: str, head: bytes, rest: dict[str, object]) -> bytes:
    """Return one event as a line of JSON."""
    return b'{"ph":"%s",%s,%s,\n' % (phase.encode(), head, as_json(rest)[1:])


def times(start: int, duration: int | None = None) -> bytes:
    """Return times in ns as fields in microseconds; floats could not hold them exactly."""
    fields = b',"ts":%d.%03d' % divmod(start, 1000)
    return fields if duration is None else fields + b',"dur":%d.%03d' % divmod(duration, 1000)


def as_json(value: object) -> bytes:
    """Return a value as JSON without spaces, in UTF-8, so that Perfetto can read it too.

    Its parser shows all escapes but that of a quote as they are, takes a bare DEL for a fault, and
    a backslash before a closing quote for an escape of it, even if the backslash is escaped.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("\\\\", "\\u005c").replace("\x7f", "\\u007f").encode()


Ints = NDArray[np.int64]
Rows = NDArray[np.intp]


_USUAL: Final = 200
"""Bytes of an event besides the names of its region and its arguments."""


class EventWriter:
    """Writes a trace's events, and gives threads to those that overlap others of their warp."""

    def __init__(self, trace: Trace, threads: ChromeThreads, origin: int) -> None:
        self._trace, self._threads, self._origin = trace, threads, origin
        self._regions = Texts([as_json(region.name) for region in trace.regions])
        self._blocks = integers(trace.slots.block)
        self._cycles = np.array([one.clock.kind == "cycles" for one in trace.launches], bool)
        self._arrows = Arrows.of(trace)
        args = sum(len(as_json(name)) for name in trace.args)
        self._rows = at_once(_USUAL + args)

    def make(self, batch: Batch) -> Iterator[bytes]:
        """Yield the lines of a batch, each warp's events in order of opening."""
        for each in batch.new:
            yield from self._threads.add(each)
        uuids, thread = np.unique(batch.track, return_inverse=True)
        heads = texts([b"%s," % self._threads.heads[uuid] for uuid in uuids.tolist()])
        opening = np.argsort(batch.opens)
        for begin in range(0, len(opening), self._rows):
            some = opening[begin : begin + self._rows]
            for part in cut(self._sizes(batch, some)):
                yield self._made(batch, some[part], heads[thread[some[part]]])

    def _made(self, batch: Batch, rows: Rows, head: Part) -> bytes:
        events = Table(*(getattr(batch.events, name)[rows] for name in Table.__slots__))
        lines = self._lines(events, batch.ranges[rows], head, batch.rows[rows])
        if self._arrows is None:
            return join(*lines)
        ends = (events.start_ns - self._origin, events.end_ns - self._origin)
        return _between(lay(*lines), _flows(self._arrows, batch.rows[rows], head, *ends))

    def _sizes(self, batch: Batch, rows: Rows) -> Ints:
        """Return about how many bytes each of some events takes."""
        found = _USUAL + self._regions.sizes[batch.events.region[rows]]
        for column in self._trace.args.values():
            if column.values.dtype.kind == TEXT:
                values = column.values[batch.rows[rows]]
                found += np.fromiter(map(len, values.tolist()), np.int64, len(rows))
        return found

    def _lines(
        self, events: Table, ranges: NDArray[np.bool_], heads: Part, rows: Rows
    ) -> list[bytes | Part]:
        slot = events.slot.astype(np.intp)
        duration = events.end_ns - events.start_ns
        cycles = self._cycles[self._trace.slots.launch[slot]]
        shown = (events.ticks != duration) | (ranges & cycles)  # else the duration says as much
        args = [
            ("cycles", ArgColumn(events.ticks, shown & cycles)),
            ("ticks", ArgColumn(events.ticks, shown & ~cycles)),
            *_payload(events),
            *((name, column.take(rows)) for name, column in self._trace.args.items()),
        ]
        return [
            *_field(ranges, b'{"ph":"X",'),
            *_field(~ranges, b'{"ph":"i","s":"t",'),
            heads,
            b'"ts":',
            thousandths(events.start_ns - self._origin),
            *_field(ranges, b',"dur":', thousandths(duration)),
            b',"name":',
            self._regions[events.region],
            b',"args":{"block":',
            self._blocks[slot],
            *(part for name, column in args for part in _argument(name, column)),
            b"}},\n",
        ]


def _field(chosen: NDArray[np.bool_], *parts: bytes | Part) -> list[bytes | Part]:
    """Return parts that only the chosen rows have."""
    if chosen.all():
        return list(parts)
    return [where(chosen, part) for part in parts] if chosen.any() else []


def _payload(events: Table) -> Iterator[tuple[str, ArgColumn]]:
    """Yield an argument for each payload type; each row has the payload of one type at most."""
    for kind in np.unique(events.payload_type).tolist():
        chosen = events.payload_type == kind
        bits = np.where(chosen, events.payload, np.uint32(0))
        if kind == PayloadType.F32:
            with np.errstate(invalid="ignore"):  # signalling NaNs
                yield "payload", ArgColumn(bits.view(np.float32).astype(np.float64), chosen)
        elif kind != PayloadType.NONE:
            yield "payload", ArgColumn(bits.view("i4" if kind == PayloadType.I32 else "u4"), chosen)


def _argument(name: str, column: ArgColumn) -> list[bytes | Part]:
    values = column.values
    if not column.given.any():
        return []
    if values.dtype.kind in "iu":
        text = integers(values)
    elif values.dtype.kind == "f":
        text = texts([_real(value).encode() for value in values.tolist()])
    else:
        plain = values if values.dtype.kind == TEXT else values.astype(np.object_)
        distinct, code = coded(plain)
        text = texts([as_json(value) for value in distinct])[code]
    return _field(column.given, b",%s:" % as_json(name), text)


_MAX_DECIMALS: Final = 18
"""Digits behind the point that Perfetto's JSON reader takes without overflowing."""


def _real(value: float) -> str:
    """Return a float as JSON; infinities and NaN, which JSON has not, as strings."""
    if not isfinite(value):
        return f'"{value}"'
    text = repr(value)
    decimals = len(text) - 1 - text.find(".")
    return text if "e" in text or decimals <= _MAX_DECIMALS else f"{value:.16e}"


def _flows(
    arrows: Arrows, rows: Rows, heads: Part, start: Ints, end: Ints
) -> Iterator[tuple[Rows, Part]]:
    """Yield lines for the arrows of the events in the given rows of the trace.

    With the lines come the numbers of the events behind which they lie, and which they so bind to:
    viewers bind them to the slice open on the thread at that time. ``heads`` is what lines of each
    event begin with, ``start`` and ``end`` count from the origin.
    """
    starting, ending = b'{"ph":"s",', b'{"ph":"f","bp":"e",'
    for lists, phase, times in (
        (arrows.leaving, starting, start),
        (arrows.arriving, ending, start),
        (arrows.late, ending, end),
    ):
        event, number = lists.take(rows)
        place = lay(heads[event], b'"ts":', thousandths(times[event]))
        late = lists is arrows.late
        instant = (b'{"ph":"i","s":"t",', place, b',"name":"%s"},\n' % ARROW) if late else ()
        flow = b',"name":"flow","cat":"flow","id":'
        yield event, lay(*instant, phase, place, flow, integers(number), b"},\n")


def _between(lines: Part, more: Iterator[tuple[Rows, Part]]) -> bytes:
    """Return lines with further lines between, each behind the line of its event."""
    streams = [(np.arange(len(lines)), lines), *more]
    behind = np.concatenate([event for event, _ in streams])
    place = np.empty(len(behind), np.intp)
    place[np.argsort(behind, kind="stable")] = np.arange(len(behind))
    out = np.zeros((len(behind), max(part.shape[1] for _, part in streams)), np.uint8)
    at = 0
    for event, part in streams:
        out[place[at : at + len(event)], : part.shape[1]] = part
        at += len(event)
    return out.tobytes().translate(None, b"\0")


_EVENTS_AT_ONCE: Final = 1 << 16
_BLOCKS_AT_ONCE: Final = 1 << 11
_DIGITS: Final = 6
"""Digits of a share, behind the point: Perfetto's JSON reader can't take many."""


def write(trace: Trace, out: BinaryIO, name: str) -> None:
    """Write a trace as one JSON object, showing progress if it takes long."""
    lines = filter(None, _lines(trace, name))
    out.write(next(lines))
    last = next(lines, b"")
    for line in lines:
        out.write(last)
        last = line
    out.write(last.removesuffix(b",\n"))  # JSON has no comma after the last event
    out.write(b"\n]}\n")


def _lines(trace: Trace, name: str) -> Iterator[bytes]:
    """Yield the start of the file, then events, each with a comma at its end."""
    layout, threads = lay_out(trace), ChromeThreads()
    origin = layout.span[0] if layout.span else 0
    about = {
        "start_unix_ns": origin,
        "launches": [{**asdict(one), "dropped": one.dropped} for one in trace.launches],
        "regions": [asdict(region) for region in trace.regions],
        "provenance": trace.provenance,
    }
    yield b'{"displayTimeUnit":"ns","otherData":%s,"traceEvents":[\n' % as_json(about)
    yield from threads.of(layout, trace.launches)
    yield from _launches(trace, layout, threads, origin)
    yield from _blocks(trace, layout, threads, origin)
    yield from _counters(layout, threads, origin)
    yield from _sums(trace, layout, threads, origin)
    events = EventWriter(trace, threads, origin)
    batches = Batches(trace, layout, _EVENTS_AT_ONCE)
    for batch in track(batches, len(batches), f"writing {name}"):
        yield from events.make(batch)


def _launches(trace: Trace, layout: Layout, threads: ChromeThreads, origin: int) -> Iterator[bytes]:
    """Yield a slice for each launch, from the start of its first warp to the end of its last."""
    for launch, tracks in zip(trace.launches, layout.launches, strict=True):
        start, end = tracks.start, tracks.end
        evidence = {**asdict(launch), "dropped": launch.dropped, "provenance": trace.provenance}
        head = threads.heads[tracks.evidence] + times(start - origin, end - start)
        yield event("X", head, {"name": launch.label, "args": evidence})
        if launch.dropped > 0:
            head = threads.heads[tracks.evidence] + times(end - origin)
            yield event("i", head, {"s": "t", "name": f"{launch.dropped} records dropped"})


def _blocks(trace: Trace, layout: Layout, threads: ChromeThreads, origin: int) -> Iterator[bytes]:
    """Yield the slices that show where each block ran, by CTA slot."""
    grids = np.array([launch.grid for launch in trace.launches], np.int64).reshape(-1, 3)
    for blocks in layout.blocks.parts(_BLOCKS_AT_ONCE):
        x, y, _ = grids[blocks.launch].T
        fields: list[tuple[bytes, Part]] = [
            (b'{"ph":"X",', texts([threads.heads[uuid] for uuid in blocks.track.tolist()])),
            (b',"ts":', thousandths(blocks.start - origin)),
            (b',"dur":', thousandths(blocks.end - blocks.start)),
            (b',"name":"block (', integers(blocks.block % x)),
            (b",", integers(blocks.block // x % y)),
            (b",", integers(blocks.block // (x * y))),
            (b')","args":{"launch":', integers(blocks.launch)),
            (b',"sm":', integers(blocks.sm)),
            (b',"block":', integers(blocks.block)),
            (b',"warps":', integers(np.diff(blocks.first, append=len(blocks.slots)))),
        ]
        yield join(*(part for field in fields for part in field), b"}},\n")


def _counters(layout: Layout, threads: ChromeThreads, origin: int) -> Iterator[bytes]:
    """Yield, for each device and rank, how many blocks and warps ran at any time."""
    for uuid, name, (moments, values) in layout.counters:
        state, what = name.encode().split(b" ", 1)
        begin = b'{"ph":"C","pid":%d,"name":"%s","ts":' % (threads.process[uuid], state)
        args = b',"args":{"%s":' % what
        yield join(begin, thousandths(moments - origin), args, integers(values), b"}},\n")


def _sums(trace: Trace, layout: Layout, threads: ChromeThreads, origin: int) -> Iterator[bytes]:
    """Yield a slice for each warp that recorded totals, with its totals by region."""
    slots, sums = trace.slots, Sums.of(trace) if len(trace.totals) else None
    for slot, totals in sums.by_slot(_DIGITS) if sums else ():
        start, end = int(slots.start_ns[slot]), int(slots.end_ns[slot])
        head = threads.heads[int(layout.slot_track[slot])]
        head += times(start - origin, max(0, end - start))
        args = {"block": int(slots.block[slot]), NAME: totals}
        yield event("X", head, {"name": NAME, "args": args})
