"""How well a GPU's timer is placed on the host's clock, against handshakes held back; the cost.

    python -m benchmarks.host_clock bound [--seconds 60] [--out FOLDER]
    python -m benchmarks.host_clock cost [--pairs 800]
    python -m benchmarks.host_clock beside

``bound``: handshakes as fast as they go. The line goes through a few of them, so far apart as the
table says; the others are held back, and each must agree with the line and its bound. ``cost``:
what a handshake takes from a program that only launches: 1,000 launches of an empty kernel with
one and 1,000 without, in pairs. ``beside``: handshakes while a graph is captured, and while the GPU
is full.
"""

from __future__ import annotations

import argparse
import math
import random
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
from ikp.session.clocks import EVERY_S, clock_of

LAUNCHES = 1000


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
    gaps = (each for each in (0.01, 0.1, 1.0, 10.0) if each < options.seconds / 2)
    for gap in (*gaps, options.seconds / 2):
        through = np.unique(np.searchsorted(table[:, 0], np.arange(*table[[0, -1], 0], gap * 1e9)))
        line = HostClock([made[i] for i in through])
        there, before, after, _ = np.delete(table, through, axis=0)[: through[-1]].T
        if not len(there):  # handshakes came no sooner than the gap
            print(f"| {gap} | {len(through)} | 0 | | | | {line.drift_ppm:.3f} |")
            continue
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

    def launches(*, meets: bool) -> float:
        began = time.perf_counter()
        if meets:
            clock.launching(0.0)
        for _ in range(LAUNCHES):
            nothing[(1,)](x)
        return time.perf_counter() - began

    launches(meets=True)
    plain, more = np.zeros(options.pairs), np.zeros(options.pairs)
    had = len(clock.handshakes)
    for pair in range(options.pairs):
        took = {meets: launches(meets=meets) for meets in random.sample((False, True), 2)}
        plain[pair], more[pair] = took[False], took[True] - took[False]
    torch.cuda.synchronize()
    made, mean = len(clock.handshakes) - had, more.mean()
    error = 2 * more.std(ddof=1) / math.sqrt(len(more))
    low, middle, high = np.percentile(more, (25, 50, 75)) * 1e6
    print(
        f"{options.pairs} pairs of {LAUNCHES} launches, {np.median(plain) / LAUNCHES * 1e6:.2f} us "
        f"each; {made} handshakes made, refused: {clock.refused!r}"
    )
    print(
        f"a handshake takes {mean * 1e6:.1f} +-{error * 1e6:.1f} us of the program (mean, two "
        f"standard errors; median {middle:.1f}, quartiles {low:.1f} and {high:.1f})"
    )
    print(
        f"with one every {EVERY_S} s: {mean / EVERY_S:.4%}, at most "
        f"{(mean + error) / EVERY_S:.4%} (asked for: at most 0.1 %)"
    )


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
    options.add_argument("--pairs", type=int, default=800)
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    {"bound": bound, "cost": cost, "beside": beside}[chosen.what](chosen)


if __name__ == "__main__":
    main()
