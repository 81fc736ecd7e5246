"""What recording every replay of a CUDA graph costs: the GPU's time, and the host's.

    python -m benchmarks.replays [--passes 80] [--snug]

Graphs of 50 kernels, replayed in turn in one run: plain, with records of which the last replay is
left, with all replays kept, and that graph again after its session. "least" is a recorder by hand
that does what any must: each warp reads the clock twice, and stores both readings at the end.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

import ikp
from benchmarks.stream import NOUNROLL
from ikp.core import abi
from ikp.session import replays

NODES, ROUNDS, AT_ONCE, BLOCKS, WARPS = 50, 25, 4, 132, 4
THREADS: tl.constexpr = tl.constexpr(128)


@triton.jit
def work(out, n, prof):
    """Compute for a while; record one range.

    Each operation of a thread needs the one before, so that it is of no account which registers
    they have: other loops took 2 to 4 % more or less for that alone.
    """
    ikp.init(prof)
    at = tl.program_id(0) * THREADS + tl.arange(0, THREADS)
    value = tl.load(out + at)
    with ikp.range("work"):
        for _ in range(n):
            value = tl.inline_asm_elementwise(
                NOUNROLL, "=f,f", [value], dtype=tl.float32, is_pure=False, pack=1
            )
            for _ in tl.static_range(50):
                value = value * 0.999 + 1.0
    tl.store(out + at, value)
    ikp.finish()


READ: tl.constexpr = tl.constexpr("mov.u32 $0, %clock; // $1")
STORE: tl.constexpr = tl.constexpr(
    """{
.reg .pred p; .reg .u32 lane, now;
mov.u32 now, %clock;
mov.u32 lane, %laneid; setp.eq.u32 p, lane, 0;
@p st.global.v4.b32 [$1], {1, $2, now, 0};
mov.u32 $0, 0;
}"""
)


@triton.jit
def least(out, n, slots):
    """Compute as ``work`` does; a thread of each warp stores when it began and ended."""
    began = tl.inline_asm_elementwise(
        READ, "=r,r", [tl.arange(0, THREADS)], dtype=tl.int32, is_pure=False, pack=1
    )
    at = tl.program_id(0) * THREADS + tl.arange(0, THREADS)
    value = tl.load(out + at)
    for _ in range(n):
        value = tl.inline_asm_elementwise(
            NOUNROLL, "=f,f", [value], dtype=tl.float32, is_pure=False, pack=1
        )
        for _ in tl.static_range(50):
            value = value * 0.999 + 1.0
    tl.store(out + at, value)
    slot = (slots + at // 32 * 4).to(tl.int64, bitcast=True)
    tl.inline_asm_elementwise(STORE, "=r,l,r", [slot, began], dtype=tl.int32, is_pure=False, pack=1)


def captured(out: torch.Tensor, n: int, buffers: list[Any], kernel: Any = work) -> Any:
    """Return a graph of one kernel for each buffer."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for buffer in buffers:
            kernel[(len(out) // THREADS.value,)](out, n, buffer, num_warps=WARPS)
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


def compare(n: int, roomy: bool) -> None:
    """Print ratios for kernels of ``n`` passes, with buffers that fit or the default ones."""
    out = torch.rand(BLOCKS * THREADS.value, device="cuda")
    snug = {"size": abi.segment_bytes(BLOCKS * WARPS, 4)}
    room = {"grid": BLOCKS, "num_warps": WARPS} if roomy else snug
    work[(BLOCKS,)](out, n, None, num_warps=WARPS)
    prof = ikp.profile(replays=1 << 20).start()
    work[(BLOCKS,)](out, n, prof.buffer("warm up", **room), num_warps=WARPS)
    torch.cuda.synchronize()
    buffers = [[prof.buffer("work", **room) for _ in range(NODES)] for _ in range(2)]
    plain = captured(out, n, [None] * NODES)
    adds, replays.end_capture = replays.end_capture, lambda _: None
    last = captured(out, n, buffers[0])
    replays.end_capture = adds
    slots = torch.empty(NODES, 4 * BLOCKS * WARPS, dtype=torch.int32, device="cuda")
    least[(BLOCKS,)](out, n, slots[0], num_warps=WARPS)
    by_hand = captured(out, n, [*slots], least)
    graphs = {"plain": plain, "least": by_hand, "last": last}
    graphs["every"] = captured(out, n, buffers[1])
    times = measured(graphs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of replays that are not kept, as is meant
        trace = prof.stop()
    off = measured({name: graphs[name] for name in ("plain", "every")})
    kept = sum(each.replay != "" for each in trace.launches)
    one = statistics.median(each[0] for each in times["plain"])
    print(
        f"{NODES} kernels of {one / NODES:.2f} us, {'roomy' if roomy else 'snug'} buffers: "
        f"{kept / NODES:g} of {AT_ONCE * ROUNDS} replays kept"
    )
    for name in ("least", "last", "every"):
        report(name, times[name], times["plain"])
    report("every/last", times["every"], times["last"])
    report("off", off["every"], off["plain"])


def measured(graphs: dict[str, Any]) -> dict[str, list[tuple[float, float]]]:
    """Return the GPU's and the host's times of some graphs, replayed in turn."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in graphs}
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            times[name].append(time_us(graph.replay))
    return times


def report(name: str, times: list[tuple[float, float]], plain: list[tuple[float, float]]) -> None:
    """Print the ratios of one graph's times to another's."""
    ratios = [one[0] / other[0] for one, other in zip(times, plain, strict=True)]
    more = statistics.median(one[0] - other[0] for one, other in zip(times, plain, strict=True))
    host = statistics.median(one[1] - other[1] for one, other in zip(times, plain, strict=True))
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(
        f"  {name:10} GPU ratio {middle:.4f} ({low:.4f} to {high:.4f}), {more:+.2f} us a replay; "
        f"host {host / NODES:+.3f} us a node"
    )


def main() -> None:
    """Compare kernels of some lengths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passes", type=int, nargs="+", default=[2, 32, 80], help="of a kernel")
    parser.add_argument("--snug", action="store_true", help="with buffers that fit alone")
    asked = parser.parse_args()
    print(torch.cuda.get_device_name())
    for n in asked.passes:
        for roomy in (False,) if asked.snug else (False, True):
            compare(n, roomy)


if __name__ == "__main__":
    main()
