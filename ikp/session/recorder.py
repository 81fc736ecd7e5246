"""The recording of an opened session: takes a segment for each launch, and hands out its buffer."""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ikp.core.abi import OverflowMode
from ikp.core.segment import EVERYTHING, Segment, Selection, Tensor
from ikp.errors import IkpError
from ikp.session import launch_marks
from ikp.session.arena import ReadySegments, SegmentKind, checked_size
from ikp.session.current import Opening, closed
from ikp.session.device import Device, device_of
from ikp.session.handed import Held, hand_out
from ikp.session.harvest import Taken
from ikp.session.known_launch import LASTS_S, ask_device, revoke
from ikp.session.lifting import Drain
from ikp.session.memory import BufferSize
from ikp.session.recorded_segments import DevicePlace, RecordedSegments
from ikp.session.replays import CapturedGraph, ReplayLog, known
from ikp.session.segment_sources import wait, written
from ikp.session.stock import STOCK_BYTES, Stock
from ikp.session.wishes import Settled, Wishes, device_facts
from ikp.warning import warn


@dataclass(slots=True, weakref_slot=True)
class BufferRequest:
    """The request for a launch's buffer: the arguments of ``prof.buffer``, checked.

    Most launches repeat the request of an earlier one: what follows from it is kept in ``found``.
    """

    label: str
    regions: Mapping[int, str] = field(default_factory=dict)
    selection: Selection = EVERYTHING
    room: BufferSize = BufferSize()  # noqa: RUF009 - it can't change
    device: Any = None
    backend: str | None = None
    kernel: str = ""  # the full name of the launched kernel
    found: Found | None = None
    ahead: Callable[[BufferRequest, int, int], Stock | None] | None = None
    """Takes buffers for launches to come, as ``again`` does: so many at most, on a stream. Returns
    None where there are none at hand, or each launch is to be asked about."""
    again: Callable[[BufferRequest], Held | None] | None = None
    """Takes another buffer for a kernel without verbs, where the session keeps the request as long
    as it is open. Returns None where the session records no launch now, and raises a SlowError
    where it has ended."""
    unread: Callable[[BufferRequest], Tensor | None] | None = None
    """Returns memory like that of ``again``'s buffers, which the session does not read."""

    @property
    def launch(self) -> object:
        """A key: launches with equal keys need equal buffers."""
        return self.label, str(self.room.grid), self.room.num_warps, self.selection


@dataclass(slots=True)
class Found:
    """What follows from a request, as long as ``settled`` holds."""

    settled: Settled
    place: DevicePlace
    device_name: str
    clock_rate_hz: float
    launch: object  # a key: launches with equal keys need equal buffers
    ready: ReadySegments
    sizes: int  # the state of the harvest's figures from which the size is
    arguments: dict[bool, Callable[[Tensor], Any]] = field(default_factory=dict)
    """Functions that make the ``prof`` argument of a buffer that records, and of one that does not,
    where the backend has such."""

    @property
    def tensorless(self) -> bool:
        """Whether no kernel takes the buffer as an argument of its language."""
        return bool(getattr(self.settled.backend, "tensorless", False))

    def argument(self, segment: Segment, handed: Tensor) -> Any:
        """Return the ``prof`` argument for a segment, of which the program holds ``handed``."""
        again = self.arguments.get(segment.enabled)
        if again is not None:
            return again(handed)
        backend = self.settled.backend
        prof = backend.argument(segment.on(handed))
        repeated = getattr(backend, "repeated", None)
        if prof is not None and repeated is not None:
            self.arguments[segment.enabled] = repeated(prof)
        return prof


def _segment(
    asked: BufferRequest, found: Found, data: Tensor, *, enabled: bool, rank: int | None
) -> Segment:
    """Return the segment of a launch, of its memory."""
    return Segment(
        asked.label,
        data,
        found.settled.spec,
        found.settled.name,
        found.device_name,
        found.clock_rate_hz,
        asked.regions,
        asked.selection,
        enabled,
        rank,
        asked.kernel,
    )


class Recording(RecordedSegments):
    """The segments of one opening of a session, which hands them out. Any thread may take one."""

    def __init__(self, opening: Opening, wishes: Wishes) -> None:
        super().__init__(opening, wishes)
        self.requests: dict[tuple[object, ...], BufferRequest] = {}  # by what a user asked for
        self.labels = set[str]()  # that were checked, and for which there was no buffer
        self._stocks: list[tuple[DevicePlace, Stock]] = []
        opening.replays = self._keep_replays

    def buffer(self, asked: BufferRequest, *, enabled: bool = True, rank: int | None = None) -> Any:
        """Return the ``prof`` argument of a kernel; None where its language can't record.

        Args:
            asked: the request.
            enabled: False runs the same compiled kernel with recording off.
            rank: of this process now.

        Raises:
            UsageError: the options contradict each other, or the device.
            BufferError: no memory, no GPU, or a CUDA graph is being captured.
            PluginError: the backend can't be loaded.
        """
        segment, found = self._take(asked, enabled, rank, handed=True)
        opening, nbytes = self.opening if enabled else None, found.ready.kind.nbytes
        if found.tensorless:
            handed = Held(segment.data, nbytes, asked.label, opening)
        else:
            handed = hand_out(segment.data, asked.label, opening)
        prof = found.argument(segment, handed)
        if prof is not None:  # else the adapter has warned why
            self._keep_taken(segment, handed, asked, found)
        return prof

    def _may_take_ahead(self, asked: BufferRequest, found: Found) -> bool:
        """Return whether launches like an earlier one may take segments ahead."""
        harvest, opening = found.place.harvest, self.opening
        streams = found.settled.spec.overflow is OverflowMode.STREAM
        if streams or launch_marks.marks or asked.found is not found or not opening.lasts:
            return False
        return found.sizes == harvest.sizes and not harvest.is_short

    def _pieces(self, found: Found, most: int) -> list[Tensor]:
        """Return segments at hand, at most so many; with the lock held."""
        nbytes = found.ready.kind.nbytes
        if found.place.harvest.crowded:
            most = min(most, _FEW)
        if self._in_stocks() + most * nbytes > STOCK_BYTES:
            self._collect(end=False)  # else the service does, in a pause
        most = min(most, (STOCK_BYTES - self._in_stocks()) // nbytes)
        return found.place.shelf.take_some(found.ready, most) if most > 0 else []

    def memory(self, asked: BufferRequest, *, enabled: bool, rank: int | None) -> Held:
        """Return what ``buffer`` does for a kernel without verbs: memory that no program holds."""
        segment, found = self._take(asked, enabled, rank)
        nbytes, opening = found.ready.kind.nbytes, self.opening if enabled else None
        held = Held(segment.data, nbytes, asked.label, opening)
        self._keep_taken(segment, held, asked, found)
        return held

    def unread(self, asked: BufferRequest, *, rank: int | None) -> Tensor:
        """Return memory for launches whose records are not read: they are timed alone."""
        return self._take(asked, True, rank)[0].data

    def stock(self, asked: BufferRequest, most: int, stream: int, rank: int | None) -> Stock | None:
        """Take segments for launches to come, at most so many; None where they can't be.

        Args:
            asked: the request that they repeat.
            most: how many are wanted.
            stream: on which they will be launched, the driver's handle.
            rank: of this process now.
        """
        found = asked.found
        if found is None or not found.settled.holds() or not self._may_take_ahead(asked, found):
            return None
        place, ready = found.place, found.ready
        with self._lock:
            pieces = self._pieces(found, most)
            if not pieces:
                return None
            segment = _segment(asked, found, pieces[0], enabled=True, rank=rank)
            made = Stock(pieces, ready.kind, segment, found.launch, stream)
            self._stocks.append((place, made))
        place.harvest.watch()
        return made

    def _in_stocks(self) -> int:
        """Return the bytes of segments in stocks, which are counted nowhere else."""
        return sum([each.left * each.nbytes for _, each in self._stocks])

    def collect(self, *, end: bool = False) -> bool:
        """Note the launches that took segments of stocks; return whether there may be more.

        Args:
            end: whether no more launches are to take any.
        """
        if not self._stocks:
            return False
        with self._lock:
            self._collect(end)
            return bool(self._stocks)

    def _collect_some(self) -> bool | None:
        """Do what ``Harvest.collect`` says; don't wait: the lock's thread may wait for the service.

        Noting launches holds Python's lock, for which the next launch waits.
        """
        if not self._stocks:
            return None
        if not self._lock.acquire(blocking=False):
            return False
        try:
            full = self._collect(end=False, most=_SOME)
        finally:
            self._lock.release()
        return full if self._stocks else None

    def _collect(self, end: bool, most: int = sys.maxsize) -> bool:
        """Note launches that took segments of stocks; return whether there were ``most``."""
        past = time.monotonic() - LASTS_S
        for place, stock in tuple(self._stocks):
            if end or stock.made_s < past:
                stock.end()
            some = stock.collect(most)
            if some:
                self._taken.extend(some)
                place.harvest.add(*some)
                self._ordered = False
                most -= len(some)
            if (stock.ended or not stock.left) and stock.end():  # none is under way
                stock.give_back(place.shelf)
                self._stocks.remove((place, stock))
            if not most:
                return True
        return False

    def _latest_s(self) -> float:
        """Return when a segment of one of the latest stocks was last launched with."""
        return max([each.latest_s for _, each in self._stocks[-_LATEST:]], default=0.0)

    def _take(
        self, asked: BufferRequest, enabled: bool, rank: int | None, *, handed: bool = False
    ) -> tuple[Segment, Found]:
        """Take a segment, which the program is to hold if it is handed out; and what was found."""
        found = asked.found
        if found is None or not found.settled.holds():
            settled = self.wishes.settle(asked.backend, asked.device, asked.selection)
            with self._lock:
                found = asked.found = self._found(asked, settled)
        place, settled = found.place, found.settled
        if place.is_due():
            if place.harvest.crowded:
                self.collect()
            with self._lock:
                place.step()
        if found.sizes != place.harvest.sizes:
            with self._lock:
                found = asked.found = self._found(asked, settled)
        data = place.shelf.take(found.ready, handed=handed and not found.tensorless)
        return _segment(asked, found, data, enabled=enabled, rank=rank), found

    def _keep_taken(
        self, segment: Segment, handed: Tensor | Held, asked: BufferRequest, found: Found
    ) -> None:
        """Note a segment that a launch is to record into, and what holds its memory until then."""
        harvest, notice = found.place.harvest, handed.ikp_notice
        if notice is not None:
            notice.segment, notice.request = segment, asked
        taken = Taken(segment, weakref.ref(handed), notice, found.ready.kind, launch=found.launch)
        if found.settled.spec.overflow is OverflowMode.STREAM and segment.enabled:
            taken.drain = Drain.begin(found.place.service, segment)
        with self._lock:
            self._taken.append(taken)
            harvest.add(taken)

    def _found(self, asked: BufferRequest, settled: Settled) -> Found:
        """Return what follows from a request; with the lock held."""
        ask_device()  # for its name, and for memory
        wishes, chosen, device = self.wishes, asked.selection, settled.device
        place, launch = self._place(device), asked.launch
        sizes = place.harvest.sizes
        made, needed = place.harvest.records(launch), place.harvest.attempted(launch)
        nbytes = asked.room.nbytes(
            *(settled.spec, chosen, device, wishes.buffer_size, made, needed),
            roomy=place.harvest.roomy(launch),
        )
        kind = SegmentKind(checked_size(nbytes), chosen if settled.spec.select else None)
        ready = place.shelf.ready(kind)
        return Found(settled, place, *device_facts(device), launch, ready, sizes)

    def _place(self, device: Device) -> DevicePlace:
        """Return what a device has of the session."""
        if device not in self._places:
            made = self._places[device] = DevicePlace(device)
            if made.clock is not None:
                made.clock.tend(self)
            made.harvest.collect, made.harvest.launched_s = self._collect_some, self._latest_s
        return self._places[device]

    def keep_known_graphs(self) -> None:
        """Keep the replays of graphs that were captured before, and that no session keeps."""
        try:
            for graph in known():
                if graph.log is None:
                    self._keep_replays(graph, new=False)
        except (IkpError, RuntimeError, MemoryError) as error:
            warn(f"replays of CUDA graphs captured before are not kept: {error}", stacklevel=2)

    def _keep_replays(self, graph: CapturedGraph, *, new: bool) -> None:
        if not self.wishes.replays:
            return
        device = graph.device
        with self._lock:
            place = self._place(device)
            if place.clock is not None:
                place.clock.launching()
            self.wishes.use(each.backend for each in graph.segments)
            if device not in self._logs:
                self._logs[device] = ReplayLog(device, self.wishes.replays)
            self._logs[device].keep(graph, new=new)

    def close(self) -> None:
        """Give all memory back, after its records were read."""
        with self._lock:
            self._keep(lambda _: False)
            _pinned.extend(stock for _, stock in self._stocks)  # launches under way write to them
            self._stocks.clear()
            for place in self._places.values():
                if place.clock is not None:
                    place.clock.leave(self)
            self._places.clear()
            self.requests.clear()
            if not self.running:  # else replays that run on write to them
                self._logs.clear()
            else:
                _pinned.extend(self._logs.values())

    def leave(self, device: Device, *, readable: bool) -> None:
        """Copy to the host all that is recorded on a GPU, whose memory is about to end.

        No launch is recorded there any more.

        Args:
            device: the GPU.
            readable: whether its kernels have ended; else what is there is dropped.

        Raises:
            PatchError, RuntimeError: a kernel has failed: its memory can't be read.
        """
        self.collect(end=True)
        with self._lock:
            place = self._places.get(device)
            if place is None:
                return
            for request in self.requests.values():
                request.found = None
            self.requests.clear()
            there = [each for each in self._taken if device_of(each.segment.data.device) == device]
            if readable:
                if device in self._logs:
                    self._logs[device].leave()
                place.harvest.leave(there)
            else:
                self._logs.pop(device, None)
                gone = {id(each) for each in there if each.lifted is None}
                self._taken = [each for each in self._taken if id(each) not in gone]
            place.shelf.drop()
            if place.clock is not None:
                if readable:
                    place.clock.meet()
                if (line := place.clock.line(self._since_ns)) is not None:
                    self._lines[device_facts(device)[0]] = line
                place.clock.leave(self)
            del self._places[device]

    def forget(self, handed: Tensor) -> None:
        """Drop the segment whose kernel never ran."""
        self.collect()
        with self._lock:
            self._keep(lambda each: each.handed() is not handed)

    def empty(self) -> None:
        """Wait for all kernels, and discard their records; buffers still held can be used on.

        A buffer without a reference can't be launched with again; its memory is given back.
        """
        revoke()
        self.collect(end=True)
        with self._lock:
            # Of all: a kernel outlives the tensor that its launch was handed.
            wait([each.segment for each in self._taken])
            self._keep(lambda each: each.handed() is not None)
            for each in self._taken:
                place = self._places[device_of(each.segment.data.device)]
                each.heard |= written(each.segment)
                place.service.call(partial(place.shelf.empty, each.kind, each.segment.data))
            wait([each.segment for each in self._taken])


_pinned: list[ReplayLog | Stock] = []
"""Logs that kernels may write to at any time from now on: never freed."""
_SOME = 128
"""The most launches that the service notes at once."""
_LATEST = 8
"""How many of the stocks that were taken last say whether launches come."""
_FEW = 16
"""The most segments of a stock where memory may be short soon."""


@contextmanager
def recording(wishes: Wishes) -> Iterator[Recording]:
    """Open a session that launches don't find by themselves: the caller takes its buffers."""
    opening = Opening(None)
    try:
        yield Recording(opening, wishes)
    finally:
        closed(opening)
