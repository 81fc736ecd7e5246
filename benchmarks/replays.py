"""What recording every replay of a CUDA graph costs: the GPU's time, and the host's.

    python -m benchmarks.replays

Graphs of 50 kernels, replayed in turn in one run: plain, with records of which the last replay is
left, and with all replays kept.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import triton
import triton.language as tl

import ikp
from ikp.session import replays

NODES, ROUNDS, AT_ONCE = 50, 25, 4


@triton.jit
def work(out, n, prof):
    """Compute for a while; record one range."""
    ikp.init(prof)
    at = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    value = tl.load(out + at)
    with ikp.range("work"):
        for _ in range(n):
            value = tl.sqrt(value * 1.5 + 1.0)
    tl.store(out + at, value)
    ikp.finish()


def captured(out: torch.Tensor, n: int, buffers: list[object]) -> torch.cuda.CUDAGraph:
    """Return a graph of one kernel for each buffer."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for buffer in buffers:
            work[(len(out) // 1024,)](out, n, buffer, num_warps=4)
    return graph


def time_us(run: Callable[[], None]) -> tuple[float, float]:
    """Return the GPU's and the host's time of one replay."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(1_000_000)  # noqa: SLF001 - so that the GPU never waits for the host
    first.record()
    began = time.perf_counter()
    for _ in range(AT_ONCE):
        run()
    took = time.perf_counter() - began
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) * 1000 / AT_ONCE, took * 1e6 / AT_ONCE


def compare(n: int) -> None:
    """Print ratios for kernels of ``n`` iterations."""
    out = torch.rand(132 * 1024, device="cuda")
    work[(132,)](out, n, None, num_warps=4)
    with ikp.profile(replays=1 << 20) as prof:
        room = {"grid": 132, "num_warps": 4}
        work[(132,)](out, n, prof.buffer("warm up", **room), num_warps=4)
        torch.cuda.synchronize()
        with_buffers = [[prof.buffer("work", **room) for _ in range(NODES)] for _ in range(2)]
        plain = captured(out, n, [None] * NODES)
        adds, replays.end_capture = replays.end_capture, lambda _: None
        last = captured(out, n, with_buffers[0])
        replays.end_capture = adds
        every = captured(out, n, with_buffers[1])
        graphs = {"plain": plain, "last": last, "every": every}
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in graphs}
        for _ in range(ROUNDS):
            for name, graph in graphs.items():
                times[name].append(time_us(graph.replay))
    gpu = {name: [each[0] for each in found] for name, found in times.items()}
    host = {name: statistics.median(each[1] for each in found) for name, found in times.items()}
    one = statistics.median(gpu["plain"])
    print(f"{NODES} kernels of {one / NODES:.2f} us, {AT_ONCE * ROUNDS} replays")
    for name in graphs:
        ratios = [a / b for a, b in zip(gpu[name], gpu["plain"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(
            f"  {name:6} GPU {statistics.median(gpu[name]):8.2f} us, ratio {middle:.4f} "
            f"({low:.4f} to {high:.4f}); host {host[name]:.2f} us a replay, "
            f"{(host[name] - host['plain']) / NODES:.3f} us a node more"
        )
    kept = sum(each.label == "work" for each in prof.trace.launches) - NODES
    print(f"  kept {kept // NODES} of {AT_ONCE * ROUNDS} replays, of all nodes")


def main() -> None:
    """Compare kernels of some lengths."""
    print(torch.cuda.get_device_name())
    for n in (8, 100, 400):
        compare(n)


if __name__ == "__main__":
    main()
