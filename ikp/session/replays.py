"""Replays of CUDA graphs: each one's records, moved to a log by a node at the end of the graph.

A captured launch keeps its arguments, so all replays of a graph record into the same segments.
Before a capture ends, one more node is captured, ``ikp.driver.replay_kernel``. It appends to a log
what its replay has recorded. A graph outlives the session in which it was captured: a later session
sets a log of its own, and keeps the replays from then on.
"""

from __future__ import annotations

import struct
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Final, Protocol

import numpy as np

from ikp.core import abi
from ikp.core.abi import SlotState
from ikp.core.decoding.launch_header import Bytes, Excerpt, Ints, SegmentLayout, SegmentSource
from ikp.core.decoding.slots import header_rows
from ikp.core.run_figures import REPLAYED, ReplayFigures, replays_text
from ikp.core.segment import Segment, SegmentRows, Tensor
from ikp.driver import cuda
from ikp.driver.replay_kernel import (
    CHUNK_HEADER_BYTES,
    CONTROL,
    CONTROL_BYTES,
    HEAD,
    LOG_HEADER_BYTES,
    UNIT,
    ReplayKernel,
)
from ikp.errors import DecodeError, IkpError
from ikp.session.current import Opening
from ikp.session.device import HOST, Device, torch_of_program
from ikp.session.device_bytes import NoBytes
from ikp.session.memory import SHARE, free_bytes
from ikp.session.service import Each, Service, service_of
from ikp.session.storage import DriverStorage
from ikp.warning import warn

LOG_BYTES: Final = 512 << 20
"""The most bytes of a session's log on one device."""
REPLAYS: Final = 100
"""How many replays of each graph a session keeps, where the user does not say."""
_CHUNK: Final = struct.Struct("<7I")
_SET: Final = struct.Struct("<QQII")
_OFF: Final = bytes(8)
"""What switches a graph's recording on, and off; then the count of replays stays."""


class CapturedBuffer(Protocol):
    """The interface of the buffer of a captured launch."""

    segment: Segment | None  # None where no session reads it
    opening: Opening

    @property
    def device(self) -> Device:
        """The device of the buffer."""

    @property
    def address(self) -> int:
        """The address of the buffer."""


@dataclass(slots=True, eq=False)
class CapturedGraph:
    """The recorded launches of one capture, in order, and their control block on the device."""

    number: int
    device: Device
    buffers: list[CapturedBuffer]
    control: Tensor
    log: ReplayLog | None = None  # of the session that keeps its replays
    facts: Mapping[str, str] = field(default_factory=dict)  # of the session that captured it

    @property
    def segments(self) -> list[Segment]:
        """The segments that each replay records into."""
        return [each.segment for each in self.buffers if each.segment is not None]

    def keep(self, log: ReplayLog | None, most: int = 0) -> None:
        """Have the replays from now on kept in a log, ``most`` of them; None: in none."""
        self.log = log
        words = _OFF if log is None else _SET.pack(log.address, log.room, 0, most)
        data = np.frombuffer(words, np.uint8)
        storage = service_of(self.device).storage
        service_of(self.device).call(partial(storage.write, self.control, 0, data))

    def replays(self) -> int:
        """Return how many replays there were since a log was set."""
        storage = service_of(self.device).storage
        part = SegmentRows(CONTROL["replays"], 4)
        read = service_of(self.device).call(partial(storage.read, self.control, part))
        return int(read.view("<u4")[0])


@dataclass(slots=True)
class _Captures:
    """The captures that go on in this process, and the graphs that were captured."""

    # By a capture's number, then by id: each of many nodes asks whether its buffer is there.
    launches: dict[int, dict[int, CapturedBuffer]] = field(default_factory=dict)
    graphs: list[CapturedGraph] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


_captures = Each[None, _Captures](lambda _: _Captures())
_kernels = Each[Any, ReplayKernel](lambda _: ReplayKernel())  # by device, made in its service


def captured(stream: int, buffer: CapturedBuffer) -> None:
    """Note that a capture holds a launch with a buffer."""
    torch = torch_of_program()
    if torch is not None:
        _watch(torch)
    try:
        number = cuda.capture_number(stream)
    except IkpError:  # an old driver: the last replay is kept
        return
    captures = _captures.of(None)
    with captures.lock:
        if number:
            captures.launches.setdefault(number, {}).setdefault(id(buffer), buffer)


def end_capture(stream: int) -> None:
    """Capture one more node, which keeps the records of each replay; before a capture ends.

    No error of it ends the program: the graph's last replay is kept then, and a warning says so.
    """
    captures = _captures.of(None)
    if not captures.launches:
        return
    try:
        with captures.lock:
            buffers = captures.launches.pop(cuda.capture_number(stream), {})
        if buffers:
            _add_node(captures, [*buffers.values()], stream)
    except (IkpError, RuntimeError, MemoryError) as error:
        warn(f"of a CUDA graph, the last replay alone is kept: {error}", stacklevel=2)


def _add_node(captures: _Captures, buffers: list[CapturedBuffer], stream: int) -> None:
    here = cuda.device()
    buffers = [each for each in buffers if each.device.index == here]  # of others, the last replay
    if not buffers:
        return
    device = buffers[0].device
    service = service_of(device)
    if not isinstance(service.storage, DriverStorage):
        return
    made = service.call(partial(_made, service, captures, device, buffers))
    kernel = service.call(partial(_kernels.of, device))
    opening = buffers[0].opening
    if opening.session is not None:
        made.facts = opening.session.facts
    if opening.lasts and opening.replays is not None:
        opening.replays(made, new=True)
    kernel.launch(int(made.control.data_ptr()), len(buffers), stream)
    with captures.lock:
        captures.graphs.append(made)


def _made(
    service: Service, captures: _Captures, device: Device, buffers: list[CapturedBuffer]
) -> CapturedGraph:
    """Return a graph with its control block; in the service."""
    control = service.storage.zeroed(CONTROL_BYTES + 8 * len(buffers))
    made = CapturedGraph(len(captures.graphs) + 1, device, buffers, control)
    addresses = np.array([each.address for each in buffers], "<u8").view(np.uint8)
    service.storage.write(control, CONTROL_BYTES, addresses)
    number = np.array([made.number], "<u4").view(np.uint8)
    service.storage.write(control, CONTROL["graph"], number)
    return made


def known() -> list[CapturedGraph]:
    """Return the graphs that were captured in this process."""
    return list(_captures.of(None).graphs)


def forget(device: Device) -> None:
    """Forget the graphs of a device whose memory is about to end, and theirs."""
    captures = _captures.of(None)
    with captures.lock:
        captures.launches.clear()
        captures.graphs[:] = [each for each in captures.graphs if each.device != device]


def are_there() -> bool:
    """Return whether a graph was replayed while a session kept its replays, or was about to."""
    try:
        return any(each.replays() for each in known())
    except IkpError:  # a kernel has failed: no call works any more
        return False


@cache
def _watch(torch: Any) -> None:
    """Have ``torch.cuda.CUDAGraph`` say that a capture ends."""
    plain = torch.cuda.CUDAGraph.capture_end

    def capture_end(self: Any) -> Any:
        end_capture(int(torch.cuda.current_stream().cuda_stream))
        return plain(self)

    torch.cuda.CUDAGraph.capture_end = capture_end


@dataclass(slots=True)
class KeptReplays:
    """What a log has of replays: launches; what was not kept, in words; and how many, by label."""

    launches: list[tuple[Segment, Replayed]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    made: Counter[str] = field(default_factory=Counter)  # launches by all replays
    figures: dict[str, ReplayFigures] = field(default_factory=dict)


class ReplayLog:
    """The log of one session's replays on one device.

    Raises:
        IkpError, RuntimeError, MemoryError: there is no memory for it.
    """

    def __init__(self, device: Device, most: int) -> None:
        self._service, self._most = service_of(device), most
        free = self._service.call(partial(free_bytes, device))  # the caller may be capturing
        self.room = min(LOG_BYTES, LOG_BYTES if free is None else free // SHARE) & -UNIT
        zeroed = self._service.storage.zeroed
        self._data = self._service.call(partial(zeroed, LOG_HEADER_BYTES + self.room))
        self.address = int(self._data.data_ptr())
        self.graphs: list[CapturedGraph] = []
        self.captured: Counter[str] = Counter()  # launches, by label
        self._left: KeptReplays | None = None  # what it had when its memory ended

    def keep(self, graph: CapturedGraph, *, new: bool) -> None:
        """Keep a graph's replays from now on. ``new`` says that it is captured in this session."""
        graph.keep(self, self._most)
        self.graphs.append(graph)
        if new:
            self.captured.update(each.label for each in graph.segments)

    @property
    def segments(self) -> list[Segment]:
        """The segments that its graphs record into."""
        return [each for graph in self.graphs for each in graph.segments]

    def leave(self) -> None:
        """Copy what was kept to the host: the device's memory is about to end.

        Raises:
            IkpError: a kernel has failed: no call works any more.
        """
        self.end()
        self._left = self.read()
        for each in self.segments:
            each.data = NoBytes(HOST)

    def end(self) -> None:
        """Keep no more replays from now on."""
        for graph in self.graphs:
            graph.keep(None)

    @property
    def has_left(self) -> bool:
        """Whether the device's memory has ended: what was kept is decoded already."""
        return self._left is not None

    def copy(self) -> LogCopy:
        """Return what the log holds, on the host. All kernels must have ended."""
        storage, call = self._service.storage, self._service.call
        asked = call(partial(storage.read, self._data, SegmentRows(0, 8)))
        used, full = min(int(asked.view("<u8")[0]), self.room), asked.view("<u8")[0] > self.room
        data = call(partial(storage.read, self._data, SegmentRows(LOG_HEADER_BYTES, used)))
        graphs = [
            CopiedGraph(each.number, each.segments, each.replays(), each.facts)
            for each in self.graphs
        ]
        return LogCopy(data, graphs, self._most, self.captured, full=bool(full))

    def read(self) -> KeptReplays:
        """Return what was kept of complete replays. All kernels must have ended."""
        return self.copy().kept() if self._left is None else self._left


@dataclass(frozen=True, slots=True)
class CopiedGraph:
    """The segments that a graph's replays record into, and how many replays there were."""

    number: int
    segments: list[Segment]
    replays: int
    facts: Mapping[str, str]

    def bare(self) -> CopiedGraph:
        """Return a copy whose segments have a size, and no memory: another process can have it."""
        return replace(self, segments=[each.on(_Size(each.nbytes)) for each in self.segments])


@dataclass(frozen=True, slots=True)
class _Size:
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
    logs: Iterable[tuple[KeptReplays, Iterable[CapturedGraph | CopiedGraph]]], facts: dict[str, str]
) -> tuple[list[tuple[Segment, Replayed]], list[str]]:
    """Return the launches of all logs, and what was not kept, in words.

    Args:
        logs: what each kept, and its graphs.
        facts: gets those of the sessions that captured the graphs, and figures on the replays.
    """
    launches, lost, figures = [], list[str](), dict[str, ReplayFigures]()
    for kept, graphs in logs:
        launches += kept.launches
        lost += kept.lost
        for label, each in kept.figures.items():
            figures[label] = figures.get(label, ReplayFigures()) + each
        for graph in graphs:
            facts.update({key: text for key, text in graph.facts.items() if key not in facts})
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
    view, at = data.tobytes(), 0
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
