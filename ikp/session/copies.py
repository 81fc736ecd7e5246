"""``Copies``: all that a session has recorded, on the host, for another process to decode.

To decode a hundred replays of a server's graphs takes seconds of Python, and its threads would wait
for Python's lock meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.host_clock import HostClock
from ikp.core.run_figures import REPLAYED, ReplayFigures, replays_text
from ikp.core.trace import Trace
from ikp.errors import DecodeError
from ikp.session.clocks import aligned
from ikp.session.replays import LogCopy


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

        facts, lost, sources = dict(self.facts), list(self.lost), list(self.sources)
        figures = dict[str, ReplayFigures]()
        for log in self.logs:
            kept = log.kept()
            lost += kept.lost
            for label, each in kept.figures.items():
                figures[label] = figures.get(label, ReplayFigures()) + each
            for graph in log.graphs:
                facts.update({key: text for key, text in graph.facts.items() if key not in facts})
            for segment, replayed in kept.launches:
                source = replayed.source(segment)
                try:
                    _ = source.layout
                except DecodeError as error:
                    lost.append(str(error))
                else:
                    sources.append(source)
        if figures:
            facts[REPLAYED] = replays_text(figures)
        return aligned(decode(sources, self.names, facts), dict(self.clocks)), lost
