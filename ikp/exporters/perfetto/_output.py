"""A file on its way to the disk: what is in it is made in threads, and written in order.

Packets are for viewers, and beside them stand the trace's own columns, in a packet's field that
Perfetto does not know, and so skips. Each chunk of them seals the packets in front of it: how many
bytes those are, and two checksums, of these bytes and of what they inflate to. So no reader takes
columns for what a viewer shows if they are not.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from ikp.exporters.columns.chunk import Packed, build, checksum
from ikp.exporters.perfetto._schema import COLUMNS, Packet
from ikp.exporters.protobuf.deflating import deflated
from ikp.exporters.protobuf.varints import BYTES, encoded_varint, tag

Content = bytes | NDArray[np.uint8]
Rows = tuple[dict[str, Any], Sequence[Packed]]
"""What a chunk's head tells of its rows, and their columns."""
_WINDOW_BITS: Final = 12
"""What repeats does so within a few packets; short distances take fewer bits."""
Job = Callable[[], Any]
Use = Callable[[Any], None]

_MOST_THREADS: Final = 4
_WAITING: Final = 2
"""Jobs beyond those in the threads. What they hold stays in memory until its turn comes."""


def spare_threads() -> int:
    """Return how many threads may work beside this one: none on a single core."""
    return min(_MOST_THREADS, len(os.sched_getaffinity(0)) - 1)


class Ordered:
    """Runs jobs, and hands what they return to functions, one after another, in this thread.

    Deflating releases Python's lock, so it gains from threads. Without any, jobs run at once.
    """

    def __init__(self, threads: int) -> None:
        self._most = threads
        self._threads: list[Thread] = []
        self._todo: SimpleQueue[tuple[Job, Future[Any]] | None] = SimpleQueue()
        self._running: deque[tuple[Future[Any], Use]] = deque()

    def run(self, job: Job, use: Use) -> None:
        """Let ``job`` run, and ``use`` what it returns when its turn has come.

        Raises whatever an earlier job or its use did.
        """
        if not self._has_threads():
            self.finish()
            use(job())
            return
        future: Future[Any] = Future()
        self._todo.put((job, future))
        self._running.append((future, use))
        while len(self._running) > len(self._threads) + _WAITING:
            self._use_next()

    def finish(self) -> None:
        """Wait for all jobs, and use what they return."""
        while self._running:
            self._use_next()

    def close(self) -> None:
        """End the threads; what was not used is lost."""
        for future, _ in self._running:
            future.cancel()
        for _ in self._threads:
            self._todo.put(None)
        for thread in self._threads:
            thread.join()

    def _use_next(self) -> None:
        future, use = self._running.popleft()
        use(future.result())

    def _has_threads(self) -> bool:
        """Start a thread if more may run; a process that is ending starts none any more."""
        if len(self._threads) < self._most:
            thread = Thread(target=self._work, name="ikp-writer", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                self._most = len(self._threads)
            else:
                self._threads.append(thread)
        return bool(self._threads)

    def _work(self) -> None:
        while (item := self._todo.get()) is not None:
            job, future = item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(job())
                except BaseException as error:  # noqa: BLE001 - raised where it is asked for
                    future.set_exception(error)


@contextmanager
def ordered(threads: int) -> Iterator[Ordered]:
    """Run jobs until the block ends; if it ends well, all of them are done and used."""
    jobs = Ordered(threads)
    try:
        yield jobs
        jobs.finish()
    finally:
        jobs.close()


class Output:
    """Writes packets and chunks in the order in which they come."""

    def __init__(self, file: BinaryIO, jobs: Ordered) -> None:
        self._file = file
        self._jobs = jobs
        self._seal = [0, 0, 0]  # size and checksums of the packets behind the last chunk

    def packets(self, make: Callable[[], Content]) -> None:
        """Write what ``make`` returns, packets, as one that holds them all, deflated."""

        def job() -> tuple[Content, bytes]:
            content = make()
            return content, compressed(content) if len(content) else b""

        self._jobs.run(job, lambda made: self._put(*made))

    def chunk(self, kind: str, make: Callable[[], Rows]) -> None:
        """Write a chunk of columns."""
        self._jobs.run(make, lambda made: self._put_chunk(kind, *made))

    def _put(self, content: Content, packed: bytes) -> None:
        self._file.write(packed)
        size, crc, inflated = self._seal
        self._seal = [size + len(packed), checksum(packed, crc), checksum(content, inflated)]

    def _put_chunk(self, kind: str, about: dict[str, Any], parts: Sequence[Packed]) -> None:
        chunk = build(kind, {**about, "packets": self._seal}, parts)
        self._file.write(_in_packet(chunk))
        self._seal = [0, 0, 0]


def _in_packet(chunk: bytes) -> bytes:
    inner = tag(COLUMNS, BYTES) + encoded_varint(len(chunk))
    outer = tag(Packet.PACKET, BYTES) + encoded_varint(len(inner) + len(chunk))
    return outer + inner + chunk


def compressed(packets: bytes | NDArray[np.uint8]) -> bytes:
    """Return packets as one packet that holds them all, deflated."""
    content = deflated(packets, _WINDOW_BITS)
    inner = tag(Packet.COMPRESSED_PACKETS, BYTES) + encoded_varint(len(content))
    outer = tag(Packet.PACKET, BYTES) + encoded_varint(len(inner) + len(content))
    return outer + inner + content
