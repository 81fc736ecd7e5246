"""Which process and thread each track of the layout becomes.

The tree of :mod:`ikp.exporters.timeline.tracks` in two levels: a launch is a process with its
evidence and counters, each SM of it another, and every lane, warp and overlap of an SM is a thread,
named by its way down from the SM.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ikp.core.trace import Launch
from ikp.exporters.timeline.launches import Track, process_names
from ikp.exporters.timeline.tracks import Layout

PER_LAUNCH: Final = 1 << 16
"""More SMs than any GPU has, to keep the processes of each launch together."""


@dataclass(slots=True)
class Threads:
    """The processes and threads of one file.

    A thread's id is that of its track; a process has the id of its first thread.
    """

    process: dict[int, int] = field(default_factory=dict)  # by track
    names: dict[int, str] = field(default_factory=dict)  # of threads, by track
    heads: dict[int, bytes] = field(default_factory=dict)  # what an event on the track begins with
    _order: dict[int, int] = field(default_factory=dict)  # of the last thread, by process
    _sorted: dict[int, int] = field(default_factory=dict)  # of the last process, by launch

    @classmethod
    def of(cls, layout: Layout, launches: Sequence[Launch]) -> tuple[Threads, list[bytes]]:
        """Return the threads of a layout, and the events that name them."""
        threads, rows = cls(), list[bytes]()
        names = process_names(tuple(launches))
        for number, tracks in enumerate(layout.launches):
            rows += threads._process(tracks.evidence, names[number], number)
            rows += threads._thread(tracks.evidence, tracks.evidence, "ikp")
            threads.process |= dict.fromkeys((tracks.blocks, tracks.warps), tracks.evidence)
        lanes = _lanes(layout)
        for track in layout.tracks:
            if track.uuid in lanes:
                rows += threads._lane(track.uuid, lanes[track.uuid], names)
            elif track.parent in lanes:
                rows += threads.add(track)
        return threads, rows

    def add(self, track: Track) -> Iterator[bytes]:
        """Make a track a thread of its parent's process; yield the events that name it."""
        name = f"{self.names[track.parent]} · {track.name}"
        return self._thread(track.uuid, self.process[track.parent], name)

    def _lane(self, uuid: int, place: Lane, names: list[str]) -> Iterator[bytes]:
        """Make a lane a thread of its SM's process, and the first one of an SM that process."""
        if place.first == uuid:
            yield from self._process(uuid, f"{names[place.launch]} · SM {place.sm}", place.launch)
        yield from self._thread(uuid, place.first, f"lane {place.lane}")

    def _thread(self, uuid: int, pid: int, name: str) -> Iterator[bytes]:
        self.process[uuid], self.names[uuid] = pid, name
        self.heads[uuid] = b'"pid":%d,"tid":%d' % (pid, uuid)
        order = self._order[pid] = self._order.get(pid, 0) + 1
        yield self._meta(self.heads[uuid], "thread_name", name=name)
        yield self._meta(self.heads[uuid], "thread_sort_index", sort_index=order)

    def _process(self, pid: int, name: str, launch: int) -> Iterator[bytes]:
        """Name a process that stands after those of the same launch."""
        order = self._sorted[launch] = self._sorted.get(launch, launch * PER_LAUNCH) + 1
        yield self._meta(b'"pid":%d' % pid, "process_name", name=name)
        yield self._meta(b'"pid":%d' % pid, "process_sort_index", sort_index=order)

    @staticmethod
    def _meta(head: bytes, what: str, /, **args: Any) -> bytes:
        return event("M", head, {"name": what, "args": args})


@dataclass(frozen=True, slots=True)
class Lane:
    """Where a lane of blocks is; ``first`` is the track of its SM's first lane."""

    launch: int
    sm: int
    lane: int
    first: int


def _lanes(layout: Layout) -> dict[int, Lane]:
    """Return the lanes of all launches by track. Tracks are numbered by launch, SM and lane."""
    blocks = layout.blocks
    tracks, one = np.unique(blocks.track, return_index=True)
    places = (blocks.launch[one].tolist(), blocks.sm[one].tolist(), blocks.lane[one].tolist())
    first: dict[tuple[int, int], int] = {}
    return {
        track: Lane(launch, sm, lane, first.setdefault((launch, sm), track))
        for track, launch, sm, lane in zip(tracks.tolist(), *places, strict=True)
    }


def event(phase: str, head: bytes, rest: dict[str, Any]) -> bytes:
    """Return one event as a line of JSON."""
    return b'{"ph":"%s",%s,%s,\n' % (phase.encode(), head, as_json(rest)[1:])


def times(start: int, duration: int | None = None) -> bytes:
    """Return times in ns as fields in microseconds; floats could not hold them exactly."""
    fields = b',"ts":%d.%03d' % divmod(start, 1000)
    return fields if duration is None else fields + b',"dur":%d.%03d' % divmod(duration, 1000)


def as_json(value: Any) -> bytes:
    """Return a value as JSON without spaces, in UTF-8, so that Perfetto can read it too.

    Its parser shows all escapes but that of a quote as they are, takes a bare DEL for a fault, and
    a backslash before a closing quote for an escape of it, even if the backslash is escaped.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("\\\\", "\\u005c").replace("\x7f", "\\u007f").encode()


def names_as_json(names: Sequence[str]) -> list[bytes]:
    """Return each name as a JSON string."""
    return [as_json(name) for name in names]
