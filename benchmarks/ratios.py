"""What benchmarks that compare two kernels share: pairs of launches, and the table."""

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass
class Row:
    """One measured variant: its ratios to the plain kernel, and what it kept."""

    name: str
    ratios: list[float]
    plain_us: float
    kept: str


def table(rows: list[Row]) -> str:
    """Return the rows in Markdown: median and quartiles of the ratios."""
    lines = [
        "| variant | ratio | quartiles | plain, us | kept |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        low, middle, high = statistics.quantiles(row.ratios, n=4)
        lines.append(
            f"| {row.name} | {middle:.4f} | {low:.4f} to {high:.4f} "
            f"| {row.plain_us:.1f} | {row.kept} |"
        )
    return "\n".join(lines)


def kernel_times(run: Callable[[], None], prefix: str) -> list[float]:
    """Return the durations in us of the kernels that ``run`` launches, in launch order.

    Durations are CUPTI's, through torch.profiler: host time is not in them.
    """
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        run()
        torch.cuda.synchronize()
    events = [e for e in profiler.events() if e.name.startswith(prefix)]
    events.sort(key=lambda e: e.time_range.start)
    return [e.device_time for e in events]


def pairs(
    plain: Callable[[], None], recorded: Callable[[], None], rounds: int, prefix: str
) -> tuple[list[float], float]:
    """Launch two kernels in turn: a drift of the clock hits both of a pair.

    Args:
        plain: launches one kernel whose name starts with ``prefix``.
        recorded: the same.
        rounds: pairs.
        prefix: of both kernels' names.

    Returns:
        The ratios recorded / plain, and the plain kernel's median in us.
    """

    def run() -> None:
        for _ in range(rounds):
            plain()
            recorded()

    times = kernel_times(run, prefix)
    if len(times) != 2 * rounds:
        sys.exit(f"expected {2 * rounds} kernels in the profile, got {len(times)}")
    first, second = times[0::2], times[1::2]
    return [r / p for r, p in zip(second, first, strict=True)], statistics.median(first)
