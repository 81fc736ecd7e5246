"""``Copies``: all that a session has recorded, on the host, for another process to decode.

To decode a hundred replays of a server's graphs takes seconds of Python, and its threads would wait
for Python's lock meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.host_clock import HostClock
from ikp.core.trace import Trace
from ikp.errors import DecodeError
from ikp.session.clocks import aligned
from ikp.session.replays import LogCopy, joined


@dataclass(frozen=True, slots=True)
class Copies:
    """The records of one session; it can be pickled, and holds no memory of a device."""

    sources: list[SegmentSource]  # of launches outside of graphs
    logs: list[LogCopy]  # of replays, one of each device
    names: Mapping[int, str]  # of regions, by their ids
    facts: Mapping[str, str]  # provenance
    clocks: Mapping[str, HostClock]  # by the device's name in launches
    lost: tuple[str, ...] = ()  # what could not be read, in words

    def decode(self) -> tuple[Trace, list[str]]:
        """Return the trace, and what of it was lost, in words."""
        from ikp.core.decoding.decode import decode  # half of what opening a session would import

        facts, sources = dict(self.facts), list(self.sources)
        launches, lost = joined(((log.kept(), log.graphs) for log in self.logs), facts)
        lost = [*self.lost, *lost]
        for segment, replayed in launches:
            source = replayed.source(segment)
            try:
                _ = source.layout
            except DecodeError as error:
                lost.append(str(error))
            else:
                sources.append(source)
        return aligned(decode(sources, self.names, facts), dict(self.clocks)), lost
