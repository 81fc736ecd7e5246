"""What analyses of large traces take: processor seconds and memory, each in a process of its own.

    python benchmarks/growth.py [--runs 3] [--only "CASE;CASE"]

The differences of 50,000 launches and of 10,000 labels, the verdict on 10 million ranges, and the
first look of ``ikp view`` at 100,000 launches. Files are made first, and are no part of the
figures; what reads them is. Prints a Markdown table: the least of the runs, as another program's
load only adds.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from host_segment import gemm_segment

import ikp
from ikp.core.decoding.decode import decode
from ikp.core.trace import Trace
from ikp.edit import shift
from ikp.exporters.perfetto import PerfettoExporter

PERIOD_NS = 10_000
"""From a launch's begin to the next one's."""


def launches(count: int, labels: int) -> Trace:
    """Return so many launches of a block of 8 warps with 3 ranges each, under so many labels."""
    one = shift(decode([gemm_segment(1, 1)]), 0)
    number = np.repeat(np.arange(count), len(one.slots))
    slots = {name: np.tile(getattr(one.slots, name), count) for name in one.slots.__slots__}
    slots["launch"] = number.astype(np.int32)
    of_event = np.repeat(np.arange(count), len(one.events))
    events = {name: np.tile(getattr(one.events, name), count) for name in one.events.__slots__}
    events["slot"] = (events["slot"] + len(one.slots) * of_event).astype(np.int32)
    for name in ("start_ns", "end_ns"):
        slots[name] = slots[name] + PERIOD_NS * number
        events[name] = events[name] + PERIOD_NS * of_event
    return replace(
        one,
        launches=tuple(replace(one.launches[0], label=f"k{at % labels}") for at in range(count)),
        slots=replace(one.slots, **slots),
        events=replace(one.events, **events),
    )


def difference(path: Path) -> None:
    ikp.diff(ikp.load(path), ikp.load(path.with_name("again.pftrace")))


def verdict(path: Path) -> None:
    ikp.load(path).explain()


def part(path: Path) -> None:
    from ikp.viewer.first_look import first_look
    from ikp.viewer.part import TracePart, with_rows_for, write_part

    look = first_look(path)
    chosen = with_rows_for(look.rows, look.launch or 0, look.shared_rows)
    if chosen is not None:
        write_part(path, TracePart(chosen), path.parent)


CASES: dict[str, tuple[Callable[[], Trace], Callable[[Path], None]]] = {
    "diff of 50,000 launches": (lambda: launches(50_000, 20), difference),
    "diff of 10,000 labels": (lambda: launches(20_000, 10_000), difference),
    "explain of 10 M ranges": (lambda: decode([gemm_segment(9690, 64)]), verdict),
    "first look at 100,000 launches": (lambda: launches(100_000, 20), part),
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--only", default=";".join(CASES))
    options.add_argument("--make", nargs=2, help=argparse.SUPPRESS)
    options.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.make:
        case, path = asked.make
        PerfettoExporter().write(CASES[case][0](), Path(path))
        return
    if asked.child:
        case, path = asked.child
        before = resource.getrusage(resource.RUSAGE_SELF)
        CASES[case][1](Path(path))
        now = resource.getrusage(resource.RUSAGE_SELF)
        user, system = now.ru_utime - before.ru_utime, now.ru_stime - before.ru_stime
        print(json.dumps([user, system, now.ru_maxrss / 1024]))
        return
    print(f"Python {sys.version.split()[0]}, numpy {np.__version__}\n")
    print(
        "| case | of the program, s | of the system, s | most memory, MB |\n| --- |" + " --- |" * 3
    )
    for case in asked.only.split(";"):
        user, system, most = measured(case, asked.runs)
        print(f"| {case} | {user:.2f} | {system:.2f} | {most:.0f} |", flush=True)


def measured(case: str, runs: int) -> tuple[float, ...]:
    """Return the least of all runs of the program's time, the system's, and the most memory."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "trace.pftrace"
        # In another process: the most memory of a process counts what it is forked from.
        subprocess.run([sys.executable, __file__, "--make", case, str(path)], check=True)
        if CASES[case][1] is difference:
            path.with_name("again.pftrace").write_bytes(path.read_bytes())
        made = []
        for _ in range(runs):
            command = [sys.executable, __file__, "--child", case, str(path)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            made.append(json.loads(done.stdout.splitlines()[-1]))
            for each in path.parent.glob("*-part.pftrace"):
                each.unlink()
    return tuple(min(column) for column in zip(*made, strict=True))


if __name__ == "__main__":
    main()
