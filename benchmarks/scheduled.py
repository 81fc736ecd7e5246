"""A long program with a schedule: memory of host and device, and time outside of its windows.

    python -m benchmarks.scheduled [--launches 1000000] [--loops 40]

A step is 100 launches of a Triton kernel with verbs. Of 200 steps one warms up and two are
recorded, each cycle into a file of its own. Chunks of 20 unrecorded steps have one of the same
launches without ``prof`` before or behind them, in turn. Per kernel: the medians of both, and of
their ratio, with its quartiles; the same right behind a window, whose memory is given back
meanwhile; what the process and the GPU held after a tenth of all launches, at most since, and in
the end; and how many launches were recorded.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

import ikp

BLOCKS, STEP, CHUNK = 64, 100, 20
SCHEDULE = ikp.schedule(wait=197, warmup=1, active=2)
PAGE = 4096
MIB = 1 << 20
KEPT = 256 * MIB
"""Bytes of files that are kept: older ones are deleted."""


@triton.jit
def sums(x, out, n, prof, LOOPS: tl.constexpr):
    """Add up some rows; each is a range."""
    ikp.init(prof)
    at = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    total = tl.zeros((1024,), tl.float32)
    for k in range(LOOPS):
        with ikp.range("load", k):
            total += tl.load(x + at + (k % 4) * n, mask=at < n, other=0.0)
    tl.store(out + at, total, mask=at < n)


def held() -> tuple[float, float]:
    """Return MiB that the process holds of the host's memory, and that are taken of the GPU's."""
    resident = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE
    free, every = torch.cuda.mem_get_info()
    return resident / MIB, (every - free) / MIB


def timed(steps: int, step: Callable[[], None]) -> float:
    """Return us a launch of some steps, waited for."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / (steps * STEP) * 1e6


def run(launches: int, loops: int, folder: Path) -> None:
    """Print a line on one kernel."""
    n = BLOCKS * 1024
    x, out = torch.randn(4 * n, device="cuda"), torch.empty(n, device="cuda")

    def launch(prof: Any) -> None:
        sums[(BLOCKS,)](x, out, n, prof, LOOPS=loops)

    def plain() -> None:
        for _ in range(STEP):
            launch(None)

    recorded: list[int] = []
    with ikp.profile(
        str(folder / "x.{step}.pftrace"),
        steps=SCHEDULE,
        disk=KEPT,
        on_trace_ready=lambda trace: recorded.append(len(trace.launches)),
    ) as prof:

        def step() -> None:
            for _ in range(STEP):
                launch(prof.buffer("sums", grid=BLOCKS, num_warps=4))
            prof.step()

        timed(CHUNK, plain)
        done, memory, pairs = 0, list[tuple[float, float]](), list[tuple[float, float]]()
        behind = list[tuple[float, float]]()
        while done < launches:
            for at in range(0, SCHEDULE.cycle, CHUNK):
                waits = at + CHUNK < SCHEDULE.wait
                first = waits and (at // CHUNK + len(memory)) % 2
                plainly = timed(CHUNK, plain) if first else 0.0
                took = timed(CHUNK, step)
                if waits:
                    some = pairs if at else behind
                    some.append((plainly if first else timed(CHUNK, plain), took))
                done += CHUNK * STEP
            memory.append(held())
    files = sum(each.stat().st_size for each in folder.iterdir())
    print(f"{done:9} launches, {loops} loops")
    report(pairs, behind, memory[len(memory) // 10 :])
    print(f"   {sum(recorded)} launches of {len(recorded)} windows, {files / MIB:.0f} MiB of files")


def report(
    pairs: list[tuple[float, float]],
    behind: list[tuple[float, float]],
    later: list[tuple[float, float]],
) -> None:
    """Print lines on times, plain and with a session, and on memory of host and GPU."""
    for name, some in (("outside of windows", pairs), ("right behind one", behind)):
        plainly, outside = (statistics.median(each) for each in zip(*some, strict=True))
        low, ratio, high = statistics.quantiles([b / a for a, b in some], n=4)
        print(
            f"   {plainly:.2f} us plain, {outside:.2f} {name}, ratio {ratio:.4f} ({low:.4f} to "
            f"{high:.4f}, {len(some)} pairs)"
        )
    for name, some in zip(("host", "GPU"), zip(*later, strict=True), strict=True):
        print(f"   {name}: {some[0]:.0f} MiB, at most {max(some):.0f}, {some[-1]:.0f} in the end")


def main() -> None:
    """Run a kernel that the host launches as fast as it runs, and one that the host waits for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=1_000_000)
    parser.add_argument("--loops", type=int, nargs="+", default=[4, 60])
    asked = parser.parse_args()
    for loops in asked.loops:
        with tempfile.TemporaryDirectory() as folder:
            run(asked.launches, loops, Path(folder))


if __name__ == "__main__":
    main()
