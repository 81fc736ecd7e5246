"""How far launches, first warp to last, are outside of CUPTI's records of them.

    python -m benchmarks.inside_cupti [--launches 1000] [--out FOLDER]

Five kernels on two streams, recorded under torch.profiler. Both times are Unix times: ikp's by its
handshakes with the GPU's clock, CUPTI's by its own. With ``--out``, the trace and torch.profiler's
JSON of as few as 40 launches serve as examples for ``ikp join``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

import ikp
from ikp.core.warps import launch_bounds


@triton.jit
def copied(x, y, n, prof, BLOCK: tl.constexpr):
    ikp.init(prof)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with ikp.range("copy"):
        tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)
    ikp.finish()


@triton.jit
def scaled(x, y, n, prof, BLOCK: tl.constexpr):
    ikp.init(prof)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with ikp.range("scale"):
        tl.store(y + at, 2.0 * tl.load(x + at, mask=at < n), mask=at < n)
    ikp.finish()


@triton.jit
def exped(x, y, n, prof, BLOCK: tl.constexpr):
    ikp.init(prof)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with ikp.range("exp"):
        tl.store(y + at, tl.exp(tl.load(x + at, mask=at < n)), mask=at < n)
    ikp.finish()


@triton.jit
def summed(x, y, n, prof, BLOCK: tl.constexpr):
    ikp.init(prof)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with ikp.range("sum"):
        tl.store(y + tl.program_id(0), tl.sum(tl.load(x + at, mask=at < n)))
    ikp.finish()


@triton.jit
def looped(x, y, n, prof, BLOCK: tl.constexpr):
    ikp.init(prof)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    for k in range(20):
        with ikp.range("step", k):
            value = value * 0.5 + tl.exp(value)
    tl.store(y + at, value, mask=at < n)
    ikp.finish()


KERNELS = (copied, scaled, exped, summed, looped)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--launches", type=int, default=1000)
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    trace, profiler = recorded(chosen.launches, chosen.out)
    if chosen.out is not None:
        profiler.export_chrome_trace(str(chosen.out / "cupti.json"))
    bounds = [each.clock.unix_bound_ns or np.inf for each in trace.launches]
    print(f"{len(bounds)} launches; the bound is {min(bounds):.0f} to {max(bounds):.0f} ns")
    compare(paired(trace, profiler.profiler.kineto_results.events()))


def recorded(launches: int, out: Path | None) -> tuple[Any, Any]:
    """Return the trace of some launches, and the profiler that was around them."""
    x, y = torch.randn(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")
    streams = [torch.cuda.Stream() for _ in range(2)]
    blocks = 1024 if out is None else 8
    for kernel in KERNELS:
        kernel[(blocks,)](x, y, x.numel(), None, BLOCK=1024)
    torch.cuda.synchronize()
    path = None if out is None else out / "cupti.pftrace"
    with (
        torch.profiler.profile(acc_events=True) as profiler,
        ikp.profile(path, force=True, buffer_size=1 << 21) as prof,
    ):
        for number in range(launches):
            kernel = KERNELS[number % len(KERNELS)]
            buffer = prof.buffer(kernel.fn.__name__)
            with torch.cuda.stream(streams[number // 2 % 2]):
                kernel[(blocks,)](x, y, x.numel(), buffer, BLOCK=1024)
        torch.cuda.synchronize()
    return prof.trace, profiler


def paired(trace: Any, events: Any) -> Any:
    """Return the begin and end of each launch's record and of the launch: columns of ns."""
    first, last = launch_bounds(trace)
    found = []
    for kernel in KERNELS:
        name = kernel.fn.__name__
        spans = sorted(
            (each.start_ns(), each.start_ns() + each.duration_ns())
            for each in events
            if each.name() == name and each.device_type() == torch.autograd.DeviceType.CUDA
        )
        mine = sorted(
            (first[i], last[i]) for i, each in enumerate(trace.launches) if each.label == name
        )
        if len(mine) != len(spans):
            print(f"{name}: {len(mine)} launches, {len(spans)} records; left out")
            continue
        found += [(*one, *other) for one, other in zip(spans, mine, strict=True)]
    return np.array(found, np.int64)


def compare(table: Any) -> None:
    """Print how far launches are outside of their records, by clocks alone and by a line."""
    begin, end, first, last = table.T
    out = np.maximum(begin - first, last - end)
    slack = (end - begin) - (last - first)
    apart = ((first - begin) + (last - end)) / 2
    print("outside of its record, in ns (p50, p90, p99, p99.9, most), negative where inside:")
    print(np.percentile(out, (50, 90, 99, 99.9, 100)).round().tolist())
    print(f"{int((out <= 1000).sum())} of {len(out)} within 1 us, {int((out <= 0).sum())} inside")
    print(f"slack of a record in ns: {np.percentile(slack, (0, 50, 100)).tolist()}")
    at = first - first.min()
    line = np.polynomial.Polynomial.fit(at, apart, 1)(at)
    matched = np.maximum(begin - (first - line), last - line - end)
    print(
        f"middles {apart.mean():.0f} ns apart, sd {apart.std():.0f}; by a line through these "
        f"{int((matched <= 1000).sum())} within 1 us, the worst {matched.max():.0f} ns outside"
    )


if __name__ == "__main__":
    main()
