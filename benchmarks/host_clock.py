"""How well a GPU's timer is placed on the host's clock, against handshakes held back; the cost.

    python -m benchmarks.host_clock bound [--seconds 60] [--out FOLDER]
    python -m benchmarks.host_clock cost [--seconds 1] [--rounds 10]
    python -m benchmarks.host_clock beside

``bound``: handshakes as fast as they go. The line goes through a few of them, so far apart as the
table says; the others are held back, and each must agree with the line and its bound. ``cost``:
launches a second of an empty kernel, with handshakes and without, in turns. ``beside``: handshakes
while a graph is captured, and while the GPU is full.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
import triton

from ikp.core.host_clock import Handshake, HostClock
from ikp.driver.handshake import Dialogue
from ikp.session.clocks import clock_of


def handshakes(seconds: float) -> tuple[list[Handshake], int]:
    """Return as many handshakes as fit into some seconds, and how many failed."""
    torch.cuda.init()
    made: list[Handshake | None] = []

    def meet() -> None:
        dialogue, end = Dialogue(0), time.monotonic() + seconds
        while time.monotonic() < end:
            if dialogue.begin():
                while not dialogue.started:
                    pass
                made.append(dialogue.exchange())

    thread = threading.Thread(target=meet)
    thread.start()
    thread.join()
    sound = [each for each in made if each is not None]
    return sound, len(made) - len(sound)


def bound(options: argparse.Namespace) -> None:
    """Hold handshakes back, and compare them with the line through others."""
    made, failed = handshakes(options.seconds)
    table = np.array([(e.gpu_ns, e.before_ns, e.after_ns, e.monotonic_ns) for e in made])
    wide = (table[:, 2] - table[:, 1]) / 2
    print(f"{len(made)} handshakes, {failed} failed; tick {made[0].tick_ns} ns; half width in ns:")
    print(np.percentile(wide, (0, 10, 50, 90, 99, 99.9, 100)).round().tolist())
    print("| gap s | through | held back | outside | bound ns: median | most | drift ppm |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for gap in (0.01, 0.1, 1.0, 10.0, options.seconds / 2):
        through = np.unique(np.searchsorted(table[:, 0], np.arange(*table[[0, -1], 0], gap * 1e9)))
        line = HostClock([made[i] for i in through])
        there, before, after, _ = np.delete(table, through, axis=0)[: through[-1]].T
        at, most = there + line.offset(there), line.bound(there)
        outside = int(((at + most < before) | (at - most > after)).sum())
        print(
            f"| {gap} | {len(through)} | {len(there)} | {outside} | {np.median(most):.0f} | "
            f"{most.max():.0f} | {line.drift_ppm:.3f} |"
        )
    if options.out:
        kept = table[:: max(1, len(made) // 10_000)]
        np.savez_compressed(options.out / "handshakes.npz", kept)


@triton.jit
def nothing(x):
    pass


def cost(options: argparse.Namespace) -> None:
    clock = clock_of(torch.device("cuda", 0))
    assert clock is not None
    x = torch.zeros(1, device="cuda")
    nothing[(1,)](x)
    clock.meet()
    began = time.perf_counter()
    for _ in range(200):
        clock.meet()
    each = (time.perf_counter() - began) / 200
    print(f"a handshake, waited for: {each * 1e6:.1f} us; refused: {clock.refused!r}")

    def rate(every: float | None) -> float:
        count, end = 0, time.perf_counter() + options.seconds
        following = 0.0
        while (now := time.perf_counter()) < end:
            if every is not None and now >= following:
                following = now + every
                clock.launching(0.0)
            for _ in range(20):
                nothing[(1,)](x)
            count += 20
        torch.cuda.synchronize()
        return count / (time.perf_counter() - end + options.seconds)

    rate(None)
    ratios: dict[float, list[float]] = {}
    for _ in range(options.rounds):
        for every in (0.1, 0.002):
            ratios.setdefault(every, []).append(rate(None) / rate(every))
    for every, found in ratios.items():
        low, middle, high = statistics.quantiles(found, n=4)
        share = (middle - 1) * every / 0.1
        print(
            f"every {every} s: plain / with = {middle:.5f} ({low:.5f} to {high:.5f}); "
            f"so {share:.6f} at 100 ms"
        )
    count = len(clock.handshakes)
    print(f"{count} handshakes in all; launches a second: {rate(None):.0f}")
    before = time.perf_counter()
    for _ in range(100_000):
        clock.launching()
    print(f"asking: {(time.perf_counter() - before) * 1e4:.1f} ns a launch")


def beside(options: argparse.Namespace) -> None:
    del options
    clock = clock_of(torch.device("cuda", 0))
    assert clock is not None
    x = torch.zeros(1 << 20, device="cuda")
    for mode in ("global", "thread_local", "relaxed"):
        graph = torch.cuda.CUDAGraph()
        had = len(clock.handshakes)
        with torch.cuda.graph(graph, capture_error_mode=mode):
            for _ in range(5):
                x.add_(1)
                clock.meet()
        x.zero_()
        graph.replay()
        torch.cuda.synchronize()
        made = len(clock.handshakes) - had
        print(f"graph, {mode}: {made} handshakes, x {x[0].item()} (5), refused {clock.refused!r}")
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    sleep = partial(torch.cuda._sleep, 20_000_000)  # noqa: SLF001 - torch's own tests use it
    for name, work in (("matmul", partial(torch.matmul, a, a)), ("sleep", sleep)):
        torch.cuda.synchronize()
        had, began = len(clock.handshakes), time.perf_counter()
        waits = []
        for _ in range(40):
            work()
        while not torch.cuda.current_stream().query():
            start = time.perf_counter()
            clock.meet()
            waits.append(time.perf_counter() - start)
            time.sleep(0.005)
        made = list(clock.handshakes)[had:]
        wide = [(each.after_ns - each.before_ns) / 2 for each in made]
        print(
            f"{name}: {len(waits)} asked, {len(made)} made in {time.perf_counter() - began:.3f} s; "
            f"waited {statistics.median(waits) * 1e6:.0f} us, most {max(waits) * 1e6:.0f}; "
            f"half width {statistics.median(wide or [0]):.0f}, most {max(wide or [0]):.0f} ns"
        )
    times = []
    for with_it in (False, True) * 5:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for number in range(100):
            a @ a
            if with_it and number % 10 == 0:
                clock.launching(0.0)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    off, on = statistics.median(times[::2]), statistics.median(times[1::2])
    print(f"100 products: {off:.5f} s, with handshakes {on:.5f} s: {on / off:.5f}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("what", choices=("bound", "cost", "beside"))
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    {"bound": bound, "cost": cost, "beside": beside}[chosen.what](chosen)


if __name__ == "__main__":
    main()
