"""What ikp's Python takes for launches that are left to the driver's hook. No GPU is needed.

    python -m benchmarks.left_launches [--launches 20000] [--us 15] [--warps 64] [--records 4]

A thread launches as Triton does, by ``--us`` of Python and a call without Python's lock, and takes
buffers as the hook library does. A launch writes its records to the host's memory; all else is
ikp's own: buffers are taken ahead, noted, read and zeroed by the service's thread. Printed are
microseconds a launch: of wall time, of the launching thread's own processor time in ikp, and of
the service's. A launch is late if it took 0.3 ms: mostly, it waited for Python's lock.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import threading
import time
from typing import Any

import ikp
from ikp import registry
from ikp.core.segment import Segment
from ikp.session import harvest, recorded_segments, service
from ikp.session.service import DeviceService
from ikp.session.stock import StockPace
from ikp.session.storage import HostStorage
from tests import segments

LATE_S = 300e-6
BURST = 50
WITHOUT_LOCK = ctypes.CDLL(None).getppid
"""A call in which another thread may take Python's lock, as in the driver's launch."""


class Memory(HostStorage):
    """The host's memory, treated as a GPU's."""

    reuses, lasts = True, False


class Backend:
    """Hands kernels the segment itself."""

    interface = registry.INTERFACE

    def device_type(self) -> str:
        """Return torch's name of the device."""
        return "cpu"

    def argument(self, segment: Segment) -> Segment:
        """Return what a kernel is given."""
        return segment

    def names(self) -> dict[int, str]:
        """Return the names of regions."""
        return {}


def set_up() -> DeviceService:
    """Have buffers lie in the host's memory, and a thread tend them as a GPU's."""
    load = registry.load
    registry.load = lambda group, name: Backend() if name == "model" else load(group, name)
    service.storage_of = lambda *_: Memory()
    made = DeviceService("cuda:0")
    recorded_segments.service_of = lambda _: made
    recorded_segments.clock_of = lambda _: None
    harvest.default_stream = lambda _: (None, 0)
    return made


class Program:
    """Launches alike, by one thread.

    Args:
        prof: the session.
        warps: of a launch.
        records: of a warp.
        us: of Python, for each launch.
    """

    def __init__(self, prof: ikp.profile, warps: int, records: int, us: float) -> None:
        steps = [segments.Record(100 * at, 100 * at + 10) for at in range(records)]
        work = {(at // 4, at % 4): segments.Warp(steps) for at in range(warps)}
        launch = segments.Launch(work, grid=(warps // 4, 1, 1), block=(128, 1, 1))
        self.nbytes = 16 * -(-segments.nbytes(warps, records + 1) // 16)
        model = segments.Segment(self.nbytes)
        model.run(launch)
        self.image, self.us = bytes(model.data), us
        self.pace, self.stock, self.taken = StockPace(), None, 0
        for _ in range(4):
            prof.buffer("k", size=self.nbytes, kernel="k", backend="model")
        recording: Any = prof._recording  # noqa: SLF001 - launches left to the hook have no other way
        (self.asked,) = recording.requests.values()
        self.own_s = 0.0

    def launch(self) -> None:
        """Launch once."""
        until = time.perf_counter() + self.us * 1e-6
        while time.perf_counter() < until:
            pass
        stock = self.stock
        if stock is not None and self.taken < stock.count and not stock.ended:
            ctypes.memmove(stock.addresses[self.taken], self.image, self.nbytes)
            self.taken += 1
            stock.times[self.taken - 1] = time.monotonic_ns()
        else:
            began = time.thread_time()
            held = self.asked.again(self.asked)
            held.ikp_notice.launched(0, captured=False)
            ctypes.memmove(held.address, self.image, self.nbytes)
            most = self.pace.wanted(time.monotonic(), self.taken)
            self.stock = self.asked.ahead(self.asked, most, 0) if most else None
            self.taken = 0
            if self.stock is not None:
                self.stock.stop = lambda: self.taken
            self.own_s += time.thread_time() - began
        WITHOUT_LOCK()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=20_000)
    parser.add_argument("--us", type=float, default=15.0)
    parser.add_argument("--warps", type=int, default=64)
    parser.add_argument("--records", type=int, default=4)
    parser.add_argument("--pause", type=float, default=0.01, help="seconds behind each burst")
    asked = parser.parse_args()
    tended = set_up()
    with ikp.profile(backend="model") as prof:
        program, took = Program(prof, asked.warps, asked.records, asked.us), list[float]()
        burden = tended.call(time.thread_time)
        for number in range(asked.launches):
            if number % BURST == 0:
                time.sleep(asked.pause)
            began = time.perf_counter()
            program.launch()
            took.append(time.perf_counter() - began)
        burden = tended.call(time.thread_time) - burden
    bursts = sorted(statistics.mean(took[at : at + BURST]) for at in range(0, len(took), BURST))
    late = [each for each in took if each > LATE_S]
    decile, median = (1e6 * bursts[int(len(bursts) * at)] for at in (0.1, 0.5))
    print(
        f"{asked.launches} launches of {asked.warps} warps with {asked.records} records, "
        f"{program.nbytes:,} bytes each: {decile:.1f} us (first decile of bursts), {median:.1f} "
        f"(median), {1e6 * statistics.mean(took):.1f} (mean)"
    )
    print(
        f"  launching thread {1e6 * program.own_s / asked.launches:.2f} us a launch, service "
        f"{1e6 * burden / asked.launches:.2f}; {len(late)} late, {sum(late):.3f} s together"
    )
    print(f"  {len(prof.trace.launches)} launches in the trace, {threading.active_count()} threads")


if __name__ == "__main__":
    main()
