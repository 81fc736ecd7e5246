"""What one opening of a session has recorded: segments, replays and clocks, read and decoded."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter, methodcaller

from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.decoding.stream import until, with_open
from ikp.core.host_clock import HostClock
from ikp.core.regions import merge
from ikp.core.segment import Segment, SegmentRows
from ikp.core.trace import Trace
from ikp.errors import DecodeError, FaultError, PatchError
from ikp.progress import progress
from ikp.session.arena import SegmentKind, Shelf
from ikp.session.clocks import aligned, clock_of
from ikp.session.copies import Copies, LogCopy, joined
from ikp.session.current import Opening
from ikp.session.device import Device, device_of
from ikp.session.harvest import Harvest, Taken
from ikp.session.provenance import provenance
from ikp.session.replays import ReplayLog
from ikp.session.segment_sources import (
    SourceReader,
    ended_or_failed,
    fault,
    is_here,
    lost,
    source_of,
    sources_of,
    streams,
)
from ikp.session.service import DeviceService, service_of
from ikp.session.wishes import Wishes, device_facts


class DevicePlace:
    """The memory of one device: its service, its shelf of ready segments, its reclaim.

    Raises:
        PatchError: the device was reset.
    """

    def __init__(self, device: Device) -> None:
        self.service = service_of(device)
        self.service.call(_nothing)
        self.shelf = Shelf(self.service, device)
        self.harvest = Harvest(device, self.service, self.shelf)
        self.clock = clock_of(device) if isinstance(self.service, DeviceService) else None
        self._due = 0.0  # when the clock is to be asked whether a handshake is due

    def is_due(self) -> bool:
        """Return whether a launch is to call ``step`` first: most need not."""
        now = time.monotonic()
        return self.harvest.crowded or now >= self.harvest.next_look or now >= self._due

    def step(self) -> None:
        """Have a handshake made and segments read, as far as they are due before a launch."""
        if self.clock is not None:
            self.clock.launching()
            self._due = time.monotonic() + _CLOCK_S
        self.harvest.step()


class RecordedSegments(ABC):
    """The segments that launches took in one opening of a session, as far as they are recorded."""

    def __init__(self, opening: Opening, wishes: Wishes) -> None:
        self.opening = opening
        self.wishes = wishes
        self.unheard: list[str] = []  # a message of the buffers that no kernel wrote to, if any
        self.cut: list[str] = []  # replays of CUDA graphs that were not kept, in words
        self.most_warps: int | None = None  # that a reading decodes; None decodes all
        self.beyond: list[str] = []  # launches that were left out as too many, in words
        self.running = False  # a kernel had not ended when the segments were read
        self._lock = threading.Lock()
        self._taken: list[Taken] = []
        self._ordered = True  # segments are in the order of their launches
        self._places: dict[Device, DevicePlace] = {}
        self._logs: dict[Device, ReplayLog] = {}
        self._lines: dict[str, HostClock] = {}  # of GPUs that were left, by their names in launches
        self._since_ns = time.monotonic_ns() - _BEFORE_NS

    @abstractmethod
    def collect(self, *, end: bool = False) -> bool:
        """Note the launches that took segments of stocks; return whether there may be more.

        Args:
            end: whether no more launches are to take any.
        """

    @property
    def segments(self) -> list[Segment]:
        """The segments handed out so far, in order."""
        self.collect()
        return [taken.segment for taken in self._taken]

    def _with_replays(self, taken: list[Taken], facts: dict[str, str]) -> list[Taken]:
        """Return launches with those of replays, in place of buffers that graphs record into.

        ``facts`` gets those of the sessions that captured the graphs, and figures on the replays.
        """
        if not self._logs:
            return taken
        logs = ((log.read(), [g.facts for g in log.graphs]) for log in self._logs.values())
        launches, self.cut = joined(logs, facts)
        replayed = {id(segment) for segment, _ in launches}
        made = [
            Taken(segment, _nothing, None, SegmentKind(segment.nbytes, None), lifted=lifted)
            for segment, lifted in launches
        ]
        return [*(each for each in taken if id(each.segment) not in replayed), *made]

    @property
    def held(self) -> int:
        """Bytes that recordings take: of devices, and of the host, decoded."""
        return sum([place.harvest.held for place in tuple(self._places.values())])

    @contextmanager
    def _still(self) -> Iterator[None]:
        """Within the context, read no segment, and give no segment's memory to another launch."""
        with ExitStack() as stack:
            for place in tuple(self._places.values()):
                stack.enter_context(place.harvest.paused())
            yield

    def _keep(self, wanted: Callable[[Taken], bool]) -> None:
        """Drop all but the wanted segments; with the lock held."""
        self._taken = [each for each in self._taken if wanted(each)]
        with self._still():
            for place in self._places.values():
                place.harvest.keep(wanted)

    def read(
        self, facts: Mapping[str, str], *, last: bool = False, patience_s: float | None = None
    ) -> tuple[Trace, DecodeError | FaultError | None]:
        """Wait for all kernels and decode the sound segments.

        Args:
            facts: further provenance of the trace.
            last: free the bytes read back as they are decoded: no other reading comes.
            patience_s: seconds to wait for kernels at most; None waits for ever. Of kernels that
                run on, the trace has the records made until then.

        Returns:
            The trace, and the error of the other segments, if any.
        """
        self.collect(end=last)
        with self._still():
            return self._read(facts, last, patience_s)

    def copies(self, facts: Mapping[str, str]) -> Copies | None:
        """End the opening's records; return them, for another process to decode.

        None where a kernel has failed or does not end, or a stream is read as it runs: ``read``
        knows what to do. All kernels that were launched are waited for.
        """
        self.collect(end=True)
        with self._still():
            every = self._in_order()
            segments = self._all_segments(every)
            ended, failed = self._ended(segments, True, None)
            gone = any(log.has_left for log in self._logs.values())
            if failed or not ended or gone or any(each.drain is not None for each in every):
                return None
            logs = [log.copy() for log in self._logs.values()]
            reading = SourceReader(_not_replayed(every, logs), True, sources_of)
            sources = list(reading)
            broken = [] if reading.broken is None else [str(reading.broken)]
            return Copies(
                sources,
                [each.bare() for each in logs],
                self._names(),
                {**provenance(segments), **facts},
                self._clocks(ended=True),
                (*broken, *reading.unheard),
            )

    def snapshot(self, facts: Mapping[str, str]) -> tuple[Trace, int, dict[str, str]]:
        """Return what the session's streams have kept so far, and when that was, in ns.

        The third are the plain names of open ranges, by the names of their regions in the trace.
        No kernel is waited for. Open ranges end at that time, on the trace's axis: where it is not
        Unix time, at the time of the latest record.
        """
        from ikp.core.decoding.decode import decode

        with self._still(), self._lock:
            some = [each for each in self._taken if is_here(each) and not each.is_void()]
            sources = [source_of(each) for each in some]
        now = time.time_ns()
        sources, names, opened = with_open(sources, self._names())
        made = {**provenance([each.segment for each in some]), **facts}
        trace = decode(sources, names, made)
        return *self._until(trace, now, opened), opened

    def _until(self, trace: Trace, now_ns: int, opened: Container[str]) -> tuple[Trace, int]:
        """Return a trace of kernels that have not ended, and when it was read on its axis."""
        lines = self._clocks(ended=False)
        trace = aligned(trace, lines)
        if not all(each.device in lines or each.clock.kind == "host" for each in trace.launches):
            now_ns = int(trace.slots.end_ns.max(initial=0))
        return until(trace, now_ns, opened), now_ns

    def _read(
        self, facts: Mapping[str, str], last: bool, patience_s: float | None
    ) -> tuple[Trace, DecodeError | FaultError | None]:
        from ikp.core.decoding.decode import decode  # half of what opening a session would import

        began = time.perf_counter()
        every = self._in_order()
        segments = self._all_segments(every)
        ended, failed = self._ended(segments, last, patience_s)
        gone = lost(every, failed)
        taken = _without(every, gone)
        made = {**provenance(segments), **facts}
        if ended and not failed:
            taken = self._with_replays(taken, made)
        self.running = not ended
        read = sources_of if ended else self._raw
        reading = SourceReader(taken, last, read, self.most_warps)
        running = streams(every, failed)
        broken = fault(gone, len(every), failed, facts, running) if failed else None
        if broken is not None:
            made["fault"] = str(broken)
        names = self._names()
        sources: Iterable[SegmentSource] = reading
        opened: Container[str] = ()
        if whole := ended and not failed:
            read_ns = 0
        else:
            read_ns = time.time_ns()
            sources, names, opened = with_open(reading, names)
        with progress(len(taken), "Decoding") as advance:
            trace = decode(sources, names, made, advance)
        if whole:
            trace = aligned(trace, self._clocks(ended=ended))
        else:
            trace, _ = self._until(trace, read_ns, opened)
        self.unheard, self.beyond = reading.unheard, reading.beyond
        costs = self._costs(time.perf_counter() - began, reading.seconds)
        trace = replace(trace, provenance={**trace.provenance, **costs})
        return trace, broken or reading.broken

    def _in_order(self) -> tuple[Taken, ...]:
        """Return the segments in the order in which launches took them."""
        with self._lock:
            if not self._ordered:
                self._taken.sort(key=attrgetter("at"))
                self._ordered = True
            return tuple(self._taken)

    def _all_segments(self, taken: Iterable[Taken]) -> list[Segment]:
        """Return the segments of launches, and those that replays of graphs record into."""
        replayed = (each for log in self._logs.values() for each in log.segments)
        return [*(each.segment for each in taken), *replayed]

    def _names(self) -> dict[int, str]:
        """Return the names of regions, by their ids, of all languages that recorded."""
        return merge(map(methodcaller("names"), tuple(self.wishes.backends.values())))

    def _ended(
        self, segments: list[Segment], last: bool, patience_s: float | None
    ) -> tuple[bool, dict[Device, str]]:
        """Do as ``ended_or_failed``; the last reading also ends the logs of replays."""
        ended, failed = ended_or_failed(segments, patience_s)
        if last and self._logs:  # not before: replays that are queued would find no log
            for log in self._logs.values():
                with suppress(PatchError):  # a kernel has failed: no call works any more
                    log.end()
            if ended:
                return ended_or_failed(segments, patience_s)  # replays begun meanwhile
        return ended, failed

    def _costs(self, took_s: float, copied_s: float) -> dict[str, str]:
        """Return what reading took, and how long launches waited for memory, in seconds."""
        costs = {"copied_out_s": f"{copied_s:.4f}", "decoded_s": f"{took_s - copied_s:.4f}"}
        if waited := sum(place.harvest.waited_s for place in self._places.values()):
            costs["launches_waited_s"] = f"{waited:.4f}"
        return costs

    def _clocks(self, *, ended: bool) -> dict[str, HostClock]:
        """Return the clocks of GPUs, by their names in launches, after a last handshake."""
        lines = dict(self._lines)
        for device, place in self._places.items():
            if place.clock is not None:
                if ended:
                    place.clock.meet()
                if (line := place.clock.line(self._since_ns)) is not None:
                    lines[device_facts(device)[0]] = line
        return lines

    def _raw(self, taken: Sequence[Taken]) -> Iterator[SegmentSource]:
        """Yield segments copied as a whole, while kernels run on: no other kernel could run."""
        for each in taken:
            segment = each.segment
            if is_here(each):
                yield source_of(each)
                continue
            place = self._places[device_of(segment.data.device)]
            read = partial(place.service.storage.read, segment.data, SegmentRows(0, segment.nbytes))
            yield SegmentSource.of(segment, place.service.call(read))


_CLOCK_S = 0.05
"""The interval at which launches ask a GPU's clock whether a handshake is due."""
_BEFORE_NS = 10_000_000_000
"""Handshakes with a GPU so long before the session are used, too."""


def _without(every: Sequence[Taken], gone: Sequence[Taken]) -> list[Taken]:
    """Return the segments that hold records, but those that are lost."""
    left_out = set(map(id, gone))
    return [each for each in every if id(each) not in left_out and not each.is_void()]


def _not_replayed(every: Sequence[Taken], logs: Sequence[LogCopy]) -> list[Taken]:
    """Return the segments that hold records, but those that logs of replays have."""
    replayed = {id(segment) for log in logs for segment in log.replayed()}
    return [each for each in every if id(each.segment) not in replayed and not each.is_void()]


def _nothing() -> None:
    """Return the tensor that a program holds of a replay: none."""
