"""Writer of Chrome JSON: launches, blocks, counters, sums and events of a trace, in this order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import BinaryIO, Final

import numpy as np

from ikp.core.trace import Trace
from ikp.exporters.chrome._events import ChromeThreads, EventWriter, as_json, event, times
from ikp.exporters.text import Part, integers, join, texts, thousandths
from ikp.exporters.timeline.batches import Batches
from ikp.exporters.timeline.sums import NAME, Sums
from ikp.exporters.timeline.tracks import Layout, lay_out
from ikp.progress import track

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
    """Yield, for each launch, how many blocks and warps ran at any time."""
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
