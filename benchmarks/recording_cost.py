"""What one record costs on this GPU, and how well it can be deducted.

    python benchmarks/recording_cost.py [--rounds N]

The first table is ``ikp.calibrate``, N times for each clock, for one warp alone and for a full GPU:
the median of the medians, and their smallest and largest. The second takes a loop of known work
with and without ranges in it, and compares the range around it with what it was without them:
as recorded, and with the overhead deducted. Needs an NVIDIA GPU.
"""

import argparse
import statistics

import numpy as np
import torch
import triton
import triton.language as tl

import ikp
from ikp.session.options import CLOCKS

FIGURES = ("empty_range", "range_inside", "nested_inside", "instant_inside", "range_alone")
WARPS = 8
STEPS = 64


@triton.jit
def work(out, n, prof, INNER: tl.constexpr, WORK: tl.constexpr):
    """Do n steps of WORK dependent square roots, with INNER ranges around parts of each."""
    ikp.init(prof)
    value = tl.zeros((32,), tl.float32) + tl.program_id(0)
    for _ in range(n):
        with ikp.range("step"):
            for part in tl.static_range(4):
                if part < INNER:
                    with ikp.range("part"):
                        for _ in tl.static_range(WORK):
                            value = tl.sqrt(value + 1.0)
                else:
                    for _ in tl.static_range(WORK):
                        value = tl.sqrt(value + 1.0)
    tl.store(out + tl.program_id(0) * 32 + tl.arange(0, 32), value)


def calibrated(rounds: int) -> list[str]:
    """Return the first table in Markdown."""
    sms = torch.cuda.get_device_properties().multi_processor_count
    columns = ("clock", "running", *FIGURES)
    lines = [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    for clock in CLOCKS:
        for name, blocks, warps in (("one warp", 1, 1), (f"{sms} x {WARPS} warps", sms, WARPS)):
            found = [ikp.calibrate(clock=clock, blocks=blocks, warps=warps) for _ in range(rounds)]
            cells = []
            for figure in FIGURES:
                ticks = [getattr(each, figure).ticks for each in found]
                middle = statistics.median(ticks)
                cells.append(f"{middle:.1f} ({min(ticks):.1f} to {max(ticks):.1f})")
            lines.append(f"| {clock} | {name} | {' | '.join(cells)} |")
    return lines


def step_cycles(inner: int, roots: int, overhead: ikp.Overhead | None) -> float:
    """Return the median cycles of the ranges "step"."""
    out = torch.empty(32, device="cuda")
    with ikp.profile() as prof:
        for _ in range(2):
            work[(1,)](out, STEPS, prof.buffer("k"), INNER=inner, WORK=roots, num_warps=1)
    trace = prof.trace if overhead is None else ikp.edit.deduct_overhead(prof.trace, overhead)
    steps = ikp.edit.select(trace, region="step")
    last = steps.slots.launch[steps.events.slot] == 1
    return float(np.median(steps.events.ticks[last]))


def deducted() -> list[str]:
    """Return the second table in Markdown."""
    overhead = ikp.calibrate()
    lines = [
        "| work in a step | ranges in it | without | recorded | deducted |",
        "| --- " * 5 + "|",
    ]
    for roots in (1, 8, 32):
        without = step_cycles(0, roots, None) - overhead.empty_range.ticks
        for inner in (1, 4):
            raw, bare = (step_cycles(inner, roots, each) for each in (None, overhead))
            lines.append(
                f"| 4 x {roots} roots | {inner} | {without:.0f} cycles "
                f"| {raw / without:.3f} | {bare / without:.3f} |"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, {ikp.calibrate().versions}\n")
    print("\n".join(calibrated(args.rounds)), end="\n\n")
    print("\n".join(deducted()))


if __name__ == "__main__":
    main()
