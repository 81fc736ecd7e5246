"""What ikp shows of kernels of libraries, beside the kernels' own clock reads and CUPTI.

    IKP_BENCHMARK_SOURCES=CHECKOUTS python -m benchmarks.true_ranges FOLDER

Five kernels (:mod:`benchmarks.calls.clocks`) are recorded as they are by ``ikp run --detail
waits``, as by default, and in one block of seven alone. In another process they run with clock
reads in their text, and without. Before each launch, the L2 cache is flushed. Prints Markdown
tables: of each place with clock reads, what its range holds in machine code, and what a warp took
in it in a launch, in cycles (medians over warps, then over launches); of each launch, CUPTI's
duration of the plain kernel, the recorded one's over it, and what the trace tells of that.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ikp.analysis.perturbation import Perturbation

ROUNDS = 5
RECORDED = 3
"""Launches of a kernel that ikp records."""
WAYS = {"default": [], "one block in seven": ["--blocks", "::7"]}
"""Options of each recording."""
Figures = dict[str, Any]


def flushed(call: Callable[[], Any]) -> Callable[[], None]:
    """Return a call behind a flush of the L2 cache, waited for: copied, as no kernel is wanted."""
    import torch

    a, b = torch.zeros(2, 1 << 27, dtype=torch.uint8, device="cuda")

    def called() -> None:
        a.copy_(b)
        torch.cuda.synchronize()
        call()
        torch.cuda.synchronize()

    return called


def by_hand(out: Path) -> None:
    """Write medians of the kernels' own clock reads, and CUPTI's durations of the plain kernels."""
    import torch

    from benchmarks.calls import clocks

    made: Figures = {}
    for each in clocks.KERNELS:
        cells = torch.zeros(1 << 23, dtype=torch.int32, device="cuda")
        plain, edited = (flushed(each.launch(some)) for some in (None, cells))
        found = []
        for _ in range(ROUNDS):
            edited()
            rows = cells.cpu().view(-1, clocks.PLACES)
            found.append(rows[rows[:, 0] != 0].double().median(0).values.tolist())
        made[each.label] = {
            "us": _duration(plain, each.label),
            "edited us": _duration(edited, each.label),
            "cells": [statistics.median(one) for one in zip(*found, strict=True)],
            "launches": found,
        }
        out.write_text(json.dumps(made))


def _duration(call: Callable[[], Any], name: str) -> float:
    """Return the median of CUPTI's durations of a kernel, in us."""
    import torch
    from torch.autograd import DeviceType

    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(ROUNDS):
            call()
    return statistics.median(
        each.time_range.elapsed_us()
        for each in profiler.events()
        if each.device_type == DeviceType.CUDA and each.name.removeprefix("void ").startswith(name)
    )


def recorded() -> None:
    """Launch the kernels as they are, for ``ikp run``."""
    from benchmarks.calls import clocks

    for each in clocks.KERNELS:
        call = flushed(each.launch(None))
        for _ in range(RECORDED):
            call()


def shown(trace: Path) -> Figures:
    """Return of each kernel its launches' duration in us, and its ranges by their names."""
    import numpy as np

    import ikp
    from benchmarks.calls import clocks
    from ikp.analysis.perturbation import perturbations
    from ikp.core.warps import launch_bounds

    loaded = ikp.load(trace)
    begin, end = launch_bounds(loaded)
    events, slots, told = loaded.events, loaded.slots, perturbations(loaded)
    made: Figures = {}
    for kernel in clocks.KERNELS:
        launches = [
            number
            for number, each in enumerate(loaded.launches)
            if each.label.startswith(kernel.label)
        ]
        ranges: dict[str, list[float]] = {}
        for number in launches:
            kept = slots.launch[events.slot] == number
            if kernel.first_warp:
                kept &= slots.warp[events.slot] == 0
            for region in np.unique(events.region[kept]):
                chosen = kept & (events.region == region)
                took = np.bincount(events.slot[chosen], events.ticks[chosen])
                took = took[np.bincount(events.slot[chosen]) > 0]
                ranges.setdefault(loaded.regions[region].name, []).append(float(np.median(took)))
        made[kernel.label] = {
            "us": statistics.median(float(end[one] - begin[one]) / 1000 for one in launches),
            "dropped": sum(loaded.launches[one].dropped for one in launches),
            "told": _told(told.get(loaded.launches[launches[0]].label)),
            "ranges": {name: statistics.median(each) for name, each in ranges.items()},
            "launches": ranges,
        }
    return made


def _told(one: Perturbation | None) -> str:
    return f"{one.ratio:.3f} +-{one.error}, {one.hidden:.1%} hidden" if one else "nothing"


def held(inspected: Figures) -> dict[str, dict[str, str]]:
    """Return in words what each range of each kernel holds in machine code."""
    found: dict[str, dict[str, str]] = {}
    for kernel in inspected["kernels"]:
        found[kernel["name"]] = {
            one["name"]: ", ".join(
                f"{count} {work}" for work, count in one["copies"][0]["counts"].items()
            )
            for one in kernel["ranges"]
            if one["copies"]
        }
    return found


def rows(hand: Figures, ways: dict[str, Figures], inspected: Figures) -> tuple[list[str], ...]:
    """Return the tables' rows: of ranges, and of launches."""
    from benchmarks.calls import clocks

    code, ranges, launches = held(inspected), list[str](), list[str]()
    for each in clocks.KERNELS:
        mine, theirs = hand[each.label], [way[each.label] for way in ways.values()]
        named = next((some for name, some in code.items() if name.startswith(each.label)), {})
        for (kind, line), cell in zip(each.places, mine["cells"], strict=False):
            kinds = "loop|iteration" if kind == "loop" else kind
            where = re.compile(rf"({kinds}) @.*:{line}$")
            found = sorted({name for one in theirs for name in one["ranges"] if where.match(name)})
            name = found[-1] if found else f"{kind} :{line}"
            told = [_beside(cell, one, name) for one in theirs]
            start = f"| {each.library} | {name} | {named.get(name, '')} | {cell:,.0f} | "
            ranges.append(f"{start}{' | '.join(told)} |")
        told = [f"{one['us'] / mine['us']:.3f}; {one['told']}" for one in theirs]
        start = f"| `{each.label}` | {mine['us']:.1f} | {mine['edited us']:.1f} | "
        launches.append(f"{start}{' | '.join(told)} |")
    return ranges, launches


def _beside(cell: float, kernel: Figures, name: str) -> str:
    """Return what ikp shows of a range, and the ratio to what was read by hand."""
    if kernel["dropped"]:
        return "records dropped"
    took = kernel["ranges"].get(name)
    return f"{took:,.0f} ({took / cell:.3f})" if took else "not recorded"


def main() -> None:
    folder, *child = sys.argv[1:]
    where = Path(folder)
    if child:
        by_hand(where / "hand.json") if child[0] == "hand" else recorded()
        return
    where.mkdir(parents=True, exist_ok=True)
    here, ways = ["-m", "benchmarks.true_ranges", folder], dict[str, Figures]()
    subprocess.run([sys.executable, *here, "hand"], check=True, timeout=100)
    for name, more in WAYS.items():
        trace = where / f"{name}.pftrace"
        options = ["--kernel", "*", "--detail", "waits", "--memory", "8192", "--no-explain", *more]
        command = ["run", *options, "--out", str(trace), "--force", *here, "recorded"]
        subprocess.run([sys.executable, "-m", "ikp", *command], check=True, timeout=100)
        ways[name] = shown(trace)
    inspect = [sys.executable, "-m", "ikp", "inspect", str(trace), "--format", "json"]
    told = subprocess.run(inspect, check=False, timeout=100, capture_output=True, text=True)
    hand = json.loads((where / "hand.json").read_text())
    (where / "shown.json").write_text(json.dumps(ways))
    (where / "inspect.json").write_text(told.stdout)
    ranges, launches = rows(hand, ways, json.loads(told.stdout))
    print(f"| library | range | holds | by hand | {' | '.join(ways)} |")
    print("| --- " * (4 + len(ways)) + "|", *ranges, sep="\n")
    print(f"\n| launch | us | with clocks | {' | '.join(ways)} |")
    print("| --- " * (3 + len(ways)) + "|", *launches, sep="\n")


if __name__ == "__main__":
    main()
