"""What a session has recorded, on the host: ``Copies`` of it all, ``LogCopy`` of graphs' replays.

Another process can decode ``Copies``: to decode a hundred replays of a server's graphs takes
seconds of Python, and its threads would wait for Python's lock meanwhile.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from ikp.core import abi
from ikp.core.abi import SlotState
from ikp.core.decoding.launch_header import Bytes, Excerpt, Ints, SegmentLayout, SegmentSource
from ikp.core.decoding.slots import header_rows
from ikp.core.host_clock import HostClock
from ikp.core.run_figures import REPLAYED, ReplayFigures, replays_text
from ikp.core.segment import Segment
from ikp.core.trace import Trace
from ikp.driver.replay_code import CHUNK_HEADER_BYTES, HEAD
from ikp.driver.replay_moves import UNIT
from ikp.errors import DecodeError
from ikp.session.clocks import aligned

_CHUNK: Final = struct.Struct("<7I")


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
        launches, lost = joined(
            ((log.kept(), [each.facts for each in log.graphs]) for log in self.logs), facts
        )
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


@dataclass(slots=True)
class KeptReplays:
    """What a log has of replays: launches; what was not kept, in words; and how many, by label."""

    launches: list[tuple[Segment, Replayed]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    made: Counter[str] = field(default_factory=Counter)  # launches by all replays
    figures: dict[str, ReplayFigures] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CopiedGraph:
    """The segments that a graph's replays record into, and how many replays there were."""

    number: int
    segments: list[Segment]
    replays: int
    facts: Mapping[str, str]

    def bare(self) -> CopiedGraph:
        """Return a copy whose segments have a size, and no memory: another process can have it."""
        return replace(self, segments=[each.on(_GoneMemory(each.nbytes)) for each in self.segments])


@dataclass(frozen=True, slots=True)
class _GoneMemory:
    nbytes: int

    def numel(self) -> int:
        """Return the size of the memory that was there."""
        return self.nbytes


@dataclass(frozen=True, slots=True)
class LogCopy:
    """A log of replays, on the host."""

    data: Bytes
    graphs: list[CopiedGraph]
    most: int  # replays of each graph
    captured: Counter[str]  # launches in the session, by label
    full: bool

    def bare(self) -> LogCopy:
        """Return a copy without memory of devices."""
        return replace(self, graphs=[each.bare() for each in self.graphs])

    def replayed(self) -> Iterator[Segment]:
        """Yield the segments of graphs that were replayed: a trace has their replays instead."""
        return (s for graph in self.graphs if graph.replays for s in graph.segments)

    def kept(self) -> KeptReplays:
        """Return the launches of complete replays, and what was not kept."""
        found, kept = _parts(self.data), KeptReplays()
        for graph in self.graphs:
            made = Counter(each.label for each in graph.segments)
            most = min(graph.replays, self.most)
            launches, whole = _complete(graph, found, most, full=self.full)
            kept.launches += launches
            kept.lost += _lost(graph, whole, graph.replays, self.most)
            kept.made.update({label: count * graph.replays for label, count in made.items()})
        counted = Counter(segment.label for segment, _ in kept.launches)
        labels = {*self.captured, *kept.made}
        kept.figures = {
            label: ReplayFigures(self.captured[label], counted[label], kept.made[label])
            for label in labels
        }
        return kept


def joined(
    logs: Iterable[tuple[KeptReplays, Iterable[Mapping[str, str]]]], facts: dict[str, str]
) -> tuple[list[tuple[Segment, Replayed]], list[str]]:
    """Return the launches of all logs, and what was not kept, in words.

    Args:
        logs: what each kept, and for each of its graphs the facts of the session that captured it.
        facts: gets these facts, and figures on the replays.
    """
    launches, lost, figures = [], list[str](), dict[str, ReplayFigures]()
    for kept, facts_of_graphs in logs:
        launches += kept.launches
        lost += kept.lost
        for label, figure in kept.figures.items():
            figures[label] = figures.get(label, ReplayFigures()) + figure
        for each in facts_of_graphs:
            facts.update({key: text for key, text in each.items() if key not in facts})
    if figures:
        facts[REPLAYED] = replays_text(figures)
    return launches, lost


def _lost(graph: CopiedGraph, kept: int, replays: int, most: int) -> list[str]:
    if kept >= replays:
        return []
    why = f"the bound is {most}"
    if kept < min(replays, most):
        why = "the memory for replays is full, or the graph was replayed twice at a time"
    return [f"CUDA graph {graph.number}: {kept} of {replays} replays were kept: {why}."]


@dataclass(slots=True)
class _Chunk:
    """Headers and records of some slots of one launch, one after another."""

    first: int
    slots: int
    heads: Bytes
    records: Bytes


@dataclass(slots=True)
class _ReplayedLaunch:
    """One launch of one replay: its launch header, and its slots."""

    head: Bytes | None = None
    chunks: list[_Chunk] = field(default_factory=list)


_Found = dict[tuple[int, int, int], _ReplayedLaunch]


def _parts(data: Bytes) -> _Found:
    """Return what a log holds, by graph, replay and segment."""
    found: _Found = {}
    view, at = data.data, 0  # no copy: a log has up to 512 MiB
    while at + CHUNK_HEADER_BYTES <= len(view):
        graph, replay, segment, first, slots, units, header = _CHUNK.unpack_from(view, at)
        behind = at + CHUNK_HEADER_BYTES + slots * header
        at = behind + units * UNIT
        if not graph or at > len(view):  # reserved, and too little room
            break
        part = found.setdefault((graph, replay, segment), _ReplayedLaunch())
        if first == HEAD:
            part.head = data[behind:at]
        else:
            heads = data[behind - slots * header : behind]
            part.chunks.append(_Chunk(first, slots, heads, data[behind:at]))
    return found


def _complete(
    graph: CopiedGraph, found: _Found, replays: int, *, full: bool
) -> tuple[list[tuple[Segment, Replayed]], int]:
    """Return the launches of a graph's complete replays, and how many replays these are.

    Where the log is ``full``, a launch that is not there may have found no room. Else its node did
    not run.
    """
    kept, whole, segments = list[tuple[Segment, Replayed]](), 0, graph.segments
    for replay in range(replays):
        launches = list[tuple[Segment, Replayed]]()
        for number, segment in enumerate(segments):
            part = found.get((graph.number, replay, number))
            if part is None and not full:
                continue
            if part is None or part.head is None:
                launches.clear()
                break
            where = f"CUDA graph {graph.number}, replay {replay}, node {number}"
            made = Replayed(segment.nbytes, part.head, sorted(part.chunks, key=_first), where)
            if not made.is_whole(segment):
                launches.clear()
                break
            launches.append((segment, made))
        kept += launches
        whole += bool(launches)
    return kept, whole


def _first(chunk: _Chunk) -> int:
    return chunk.first


_NOTHING: Final = np.zeros(0, np.uint8)
_NO_ROWS: Final = np.zeros((0, abi.SLOT_HEADER_BYTES), np.uint8)


@dataclass(frozen=True, slots=True)
class Replayed:
    """A launch of one replay on the host: launch header, slot headers, records."""

    segment_bytes: int
    head: Bytes
    chunks: list[_Chunk]  # in the order of slots
    where: str  # of which graph and replay it is, and which node's launch

    @property
    def nbytes(self) -> int:
        """Bytes that the copy takes on the host."""
        parts = (each.heads.nbytes + each.records.nbytes for each in self.chunks)
        return self.head.nbytes + sum(parts)

    def is_whole(self, segment: Segment) -> bool:
        """Return whether the log has all slots of the launch."""
        try:
            layout = self._source(segment).layout
        except DecodeError:  # raised again when it is decoded
            return True
        ends = np.cumsum([0, *(each.slots for each in self.chunks)])
        wanted = layout.slots + layout.others if layout is not None else 0
        firsts = [each.first for each in self.chunks]
        return int(ends[-1]) == wanted and bool((ends[:-1] == firsts).all())

    def source(self, segment: Segment) -> SegmentSource:
        """Return the decoder's source for the segment that the replay recorded into."""
        head = self._source(segment)
        layout = head.layout
        if layout is None or not self.chunks:
            return head
        heads = np.concatenate([each.heads for each in self.chunks])
        rows = header_rows([heads], layout, head.grid_id)
        records = np.concatenate([each.records for each in self.chunks])
        return self._source(segment, rows, _counts(layout, rows), records)

    def _source(
        self,
        segment: Segment,
        rows: Bytes = _NO_ROWS,
        counts: Ints | None = None,
        records: Bytes = _NOTHING,
    ) -> SegmentSource:
        counts = np.zeros(0, np.int64) if counts is None else counts
        excerpt = Excerpt(self.segment_bytes, self.head, rows, counts, records, tail=False)
        return replace(SegmentSource.of(segment, excerpt), replay=self.where, number=0)


def _counts(layout: SegmentLayout, rows: Bytes) -> Ints:
    """Return how many records of each slot the log has, as the device counted."""
    heads = rows[: layout.slots].reshape(-1).view(abi.SLOT_HEADER)
    made = np.minimum(heads["attempted"].astype(np.int64), layout.capacity)
    counts: Ints = np.where(heads["state"] == SlotState.FINISHED, made, 0)
    return counts
