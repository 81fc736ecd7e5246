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
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Final, Protocol

import numpy as np

from ikp.core.segment import Segment, SegmentRows, Tensor
from ikp.driver import cuda
from ikp.driver.replay_code import CONTROL, CONTROL_BYTES, LOG_HEADER_BYTES
from ikp.driver.replay_kernel import ReplayKernel
from ikp.driver.replay_moves import UNIT
from ikp.errors import IkpError
from ikp.session.copies import CopiedGraph, KeptReplays, LogCopy
from ikp.session.current import Opening
from ikp.session.device import HOST, Device, NoBytes, torch_of_program
from ikp.session.memory import SHARE, free_bytes
from ikp.session.service import Each, Service, service_of
from ikp.session.storage import DriverStorage
from ikp.warning import warn

LOG_BYTES: Final = 512 << 20
"""The most bytes of a session's log on one device."""
REPLAYS: Final = 100
"""How many replays of each graph a session keeps, where the user does not say."""
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

    @property
    def slots(self) -> int:
        """How many slots its launch has; 0 where that is not known."""


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
    kernel.launch(int(made.control.data_ptr()), [each.slots for each in buffers], stream)
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
