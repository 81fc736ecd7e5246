"""What a stream costs a persistent kernel, beside a buffer that holds all of its records.

    python -m benchmarks.stream [--rounds 7] [--records 4000000] [--steps 1700,400]

One block per SM takes tasks from a queue and records each as one range per warp. ``steps`` is the
length of a task, in dependent operations. Per line: how records are kept, the kernel's time by
CUDA events as a median of ratios to the plain kernel of the same round, and what was kept.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from typing import Any

import torch
import triton
import triton.language as tl

import ikp
from ikp.core import abi

WARPS = 4
NOUNROLL: tl.constexpr = tl.constexpr('.pragma "nounroll";\nmov.f32 $0, $1;')
"""Keeps the assembler from unrolling the loop it is in: it did with some ways to keep records, and
not with others, so that loops of equal work took 6.7 % more or less."""


@triton.jit
def persistent(out, queue, tasks, prof, STEPS: tl.constexpr):
    """Do tasks of a queue; each is a chain of operations."""
    ikp.init(prof)
    value = tl.zeros((128,), tl.float32)
    task = tl.atomic_add(queue, 1)
    while task < tasks:
        with ikp.range("task", task):
            for _ in range(STEPS // 50):
                value = tl.inline_asm_elementwise(
                    NOUNROLL, "=f,f", [value], dtype=tl.float32, is_pure=False, pack=1
                )
                for _ in tl.static_range(50):
                    value = value * 0.999 + 1.0
        task = tl.atomic_add(queue, 1)
    tl.store(out + tl.program_id(0) * 128 + tl.arange(0, 128), value)


def timed(blocks: int, tasks: int, steps: int, prof: Any) -> float:
    """Return the time of one launch in ms."""
    out = torch.empty(blocks * 128, device="cuda")
    queue = torch.zeros(1, dtype=torch.int32, device="cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    persistent[(blocks,)](out, queue, tasks, prof, STEPS=steps, num_warps=WARPS)
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--records", type=int, default=4_000_000)
    options.add_argument("--steps", default="1700,400")
    options.add_argument("--rings", default="256,512,1024,2048", help="records of a warp")
    asked = options.parse_args()
    warnings.simplefilter("ignore", ikp.IkpWarning)
    blocks = torch.cuda.get_device_properties(0).multi_processor_count
    slots, tasks = blocks * WARPS, asked.records // WARPS
    ways = {"plain": ("", 0), "flat": ("stop", 2 * tasks // blocks)}
    rings = [int(each) for each in asked.rings.split(",")]
    ways |= {f"wrap, {each} a warp": ("wrap", each) for each in rings[-1:]}
    ways |= {f"stream, {each} a warp": ("stream", each) for each in rings}
    for steps in map(int, asked.steps.split(",")):
        times: dict[str, list[float]] = {way: [] for way in ways}
        told = dict.fromkeys(ways, "")
        for _ in range(asked.rounds + 1):
            for way, (overflow, records) in ways.items():
                if not overflow:
                    times[way].append(timed(blocks, tasks, steps, None))
                    continue
                with ikp.profile(overflow=overflow) as prof:
                    size = abi.segment_bytes(slots, records)
                    buffer = prof.buffer("persistent", size=size)
                    times[way].append(timed(blocks, tasks, steps, buffer))
                (launch,) = prof.trace.launches
                told[way] = f"{size / 1e6:.1f} MB, kept {launch.kept:,} of {launch.attempted:,}"
        plain = times["plain"][1:]
        rate = asked.records * abi.RECORD_BYTES / statistics.median(plain) / 1e6
        print(f"{steps} steps, {statistics.median(plain):.2f} ms plain, {rate:.2f} GB/s")
        for way, each in times.items():
            ratio = statistics.median(a / b for a, b in zip(each[1:], plain, strict=True))
            over = statistics.median(
                a / b for a, b in zip(each[1:], times["flat"][1:], strict=True)
            )
            print(f"  {way:24} {ratio:.4f} of plain, {over:.4f} of flat  {told[way]}", flush=True)


if __name__ == "__main__":
    main()
