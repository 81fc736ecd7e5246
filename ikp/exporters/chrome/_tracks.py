"""Tracks of the layout as Chrome processes and threads (``Threads``), and the events naming them.

The tree of :mod:`ikp.exporters.timeline.tracks` in two levels: a launch is a process with its
evidence and counters, each SM of it another. Every CTA slot ("lane"), warp and overlap of an SM is
a thread, named by its path from the SM.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from ikp.core.trace import Launch
from ikp.exporters.timeline.tracks import Layout, Track, process_names

_PER_LAUNCH: Final = 1 << 16
"""More SMs than any GPU has, to keep the processes of each launch together."""


class Threads:
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
        for number, tracks in enumerate(layout.launches):
            yield from self._process(tracks.evidence, names[number], number)
            yield from self._thread(tracks.evidence, tracks.evidence, "ikp")
            self.process |= dict.fromkeys((tracks.blocks, tracks.warps), tracks.evidence)
        blocks = layout.blocks
        lanes, one = np.unique(blocks.track, return_index=True)  # by launch, SM and lane
        columns = (column[one].tolist() for column in (blocks.launch, blocks.sm, blocks.lane))
        first: dict[tuple[int, int], int] = {}
        for track, launch, sm, lane in zip(lanes.tolist(), *columns, strict=True):
            pid = first.setdefault((launch, sm), track)
            if pid == track:
                yield from self._process(pid, f"{names[launch]} · SM {sm}", launch)
            yield from self._thread(track, pid, f"lane {lane}")
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
