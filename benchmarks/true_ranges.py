"""What ikp shows of kernels of libraries, beside the kernels' own clock reads and CUPTI.

    IKP_BENCHMARK_SOURCES=CHECKOUTS python -m benchmarks.true_ranges FOLDER

Five kernels (:mod:`benchmarks.calls.clocks`) are recorded as they are by ``ikp run --detail waits``,
once in few blocks, as by default, and once in all. They run once more in another process with
clock reads in their text. Prints a Markdown table: what each range holds in machine code, what a
warp took of it in a launch by hand and by ikp (medians over warps, in cycles), and the launch's
span beside CUPTI's duration of the plain kernel.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROUNDS = 9
RECORDINGS = {"default": [], "all": ["--sample", "1"]}
"""Options of each recording."""


def by_hand(out: Path) -> None:
    """Write medians of the kernels' own clock reads, and CUPTI's durations of the plain kernels."""
    import torch

    from benchmarks.calls import clocks

    made = {}
    for each in clocks.KERNELS:
        duration = _duration(each.launch(None), each.label)
        cells = torch.zeros(1 << 23, dtype=torch.int32, device="cuda")
        launch = each.launch(cells)
        launch()
        cells.zero_()
        launch()
        torch.cuda.synchronize()
        found = cells.cpu().view(-1, clocks.PLACES)
        found = found[found[:, 0] != 0].double()
        made[each.label] = {
            "us": duration,
            "warps": len(found),
            "cells": found.median(0).values.tolist(),
            "means": found.mean(0).tolist(),
            "quartiles": found.quantile(torch.tensor([0.25, 0.75]).double(), 0).tolist(),
            "edited us": _duration(launch, each.label),
        }
        del cells
        out.write_text(json.dumps(made))


def _duration(call: Callable[[], Any], name: str) -> float:
    import torch
    from torch.autograd import DeviceType

    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(ROUNDS):
            call()
        torch.cuda.synchronize()
    return statistics.median(
        each.time_range.elapsed_us()
        for each in profiler.events()
        if each.device_type == DeviceType.CUDA and each.name.lstrip("void ").startswith(name)
    )


def recorded() -> None:
    """Launch the kernels as they are, for ``ikp run``."""
    import torch

    from benchmarks.calls import clocks

    for each in clocks.KERNELS:
        call = each.launch(None)
        for _ in range(4):
            call()
            torch.cuda.synchronize()


def shown(trace: Path) -> dict[str, Any]:
    """Return of each kernel its launches' span in us, and its ranges in the order of lines."""
    import numpy as np

    import ikp
    from benchmarks.calls import clocks
    from ikp.core.warps import launch_bounds

    loaded = ikp.load(trace)
    begin, end = launch_bounds(loaded)
    events, slots = loaded.events, loaded.slots
    made: dict[str, Any] = {}
    for kernel in clocks.KERNELS:
        numbers = [
            number
            for number, each in enumerate(loaded.launches)
            if each.label.startswith(kernel.label)
        ]
        if not numbers:
            continue
        kept = slots.launch[events.slot] == numbers[-1]
        if kernel.first_warp:
            kept &= slots.warp[events.slot] == 0
        ranges = []
        for region in np.unique(events.region[kept]):
            chosen = kept & (events.region == region)
            warps = np.bincount(events.slot[chosen], events.ticks[chosen])
            warps = warps[np.bincount(events.slot[chosen]) > 0]
            ranges.append(
                {
                    "name": loaded.regions[region].name,
                    "count": int(chosen.sum()),
                    "warps": len(warps),
                    "of warp": float(np.median(warps)),
                    "mean": float(warps.mean()),
                    "median": float(np.median(events.ticks[chosen])),
                }
            )
        ranges.sort(key=lambda each: _line(each["name"]))
        spans = [float(end[each] - begin[each]) / 1000 for each in numbers]
        made[kernel.label] = {"us": statistics.median(spans), "ranges": ranges}
    return made


def _line(name: str) -> int:
    found = re.search(r":(\d+)", name)
    return int(found[1]) if found else 0


def main() -> None:
    folder, *child = sys.argv[1:]
    where = Path(folder)
    if child:
        by_hand(where / "hand.json") if child[0] == "hand" else recorded()
        return
    where.mkdir(parents=True, exist_ok=True)
    here = ["-m", "benchmarks.true_ranges", folder]
    subprocess.run([sys.executable, *here, "hand"], check=True, timeout=100)
    for name, more in RECORDINGS.items():
        trace = where / f"{name}.pftrace"
        options = ["--kernel", "*", "--detail", "waits", "--launch", ":4", "--buffer", "256", *more]
        command = ["run", *options, "--out", str(trace), "--force", *here, "recorded"]
        subprocess.run([sys.executable, "-m", "ikp", *command], check=True, timeout=100)
        (where / f"{name}.json").write_text(json.dumps(shown(trace)))
    inspect = [sys.executable, "-m", "ikp", "inspect", str(where / "default.pftrace")]
    told = subprocess.run(
        [*inspect, "--format", "json"], check=False, timeout=100, capture_output=True, text=True
    )
    (where / "inspect.json").write_text(told.stdout)


if __name__ == "__main__":
    main()
