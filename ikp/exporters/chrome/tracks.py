"""Which process and thread each track of the layout becomes.

The tree of :mod:`ikp.exporters.perfetto.tracks`, cut to two levels: a launch is a process with its
evidence and counters, each SM of it another, and below an SM every lane, warp and overlap is a
thread, named by its way down from the SM.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ikp.exporters.perfetto.tracks import Kind, Layout, Track

PER_LAUNCH: Final = 1 << 16
"""More SMs than any GPU has, to keep the processes of each launch together."""


@dataclass(slots=True)
class Threads:
    """The processes and threads of one file. Process and thread ids are those of the tracks."""

    process: dict[int, int] = field(default_factory=dict)  # by track
    names: dict[int, str] = field(default_factory=dict)
    heads: dict[int, bytes] = field(default_factory=dict)  # what an event on the track begins with
    _order: dict[int, int] = field(default_factory=dict)  # of the last thread, by process
    _sorted: dict[int, int] = field(default_factory=dict)  # of the last process, by launch

    @classmethod
    def of(cls, layout: Layout) -> tuple[Threads, list[bytes]]:
        """Return the threads of a layout, and the events that name them."""
        threads = cls()
        launches = {track.uuid for track in layout.tracks if track.kind is Kind.PROCESS}
        groups = {track.uuid: track.parent for track in layout.tracks if track.name == "SMs"}
        rows = []
        for track in layout.tracks:
            if track.uuid in launches:
                rows += threads._process(track, track.name, track.uuid)
            elif track.parent in groups:
                launch = groups[track.parent]
                rows += threads._process(track, f"{threads.names[launch]} · {track.name}", launch)
            elif track.parent in threads.process and track.uuid not in groups:
                rows += threads.add(track)
        return threads, rows

    def add(self, track: Track) -> Iterator[bytes]:
        """Make a track a thread of the process that it lies in; yield the events that name it."""
        parent = track.parent
        pid = self.process[track.uuid] = self.process[parent]
        above = "" if parent == pid else f"{self.names[parent]} · "
        self.names[track.uuid] = f"{above}{track.name}"
        self.heads[track.uuid] = b'"pid":%d,"tid":%d' % (pid, track.uuid)
        if track.kind is Kind.COUNTER:
            return
        order = self._order[pid] = self._order.get(pid, 0) + 1
        yield self._meta(track.uuid, "thread_name", name=self.names[track.uuid])
        yield self._meta(track.uuid, "thread_sort_index", sort_index=order)

    def _process(self, track: Track, name: str, launch: int) -> list[bytes]:
        """Make a track a process that stands after those of the same launch."""
        self.process[track.uuid] = track.uuid
        self.names[track.uuid] = name
        self.heads[track.uuid] = b'"pid":%d' % track.uuid
        order = self._sorted[launch] = self._sorted.get(launch, len(self._sorted) * PER_LAUNCH) + 1
        return [
            self._meta(track.uuid, "process_name", name=name),
            self._meta(track.uuid, "process_sort_index", sort_index=order),
        ]

    def _meta(self, track: int, what: str, /, **args: Any) -> bytes:
        return event("M", self.heads[track], {"name": what, "args": args})


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
