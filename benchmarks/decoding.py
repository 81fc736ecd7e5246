"""How fast segments become columns, on one core, and in how much memory.

    python benchmarks/decoding.py [--runs 5] [--against CHECKOUT] [--large]

One launch of a million ranges; thousands of launches of 24 each, and one of half a million warps of
few ranges each, also written to a file; a thousand small launches in default buffers, read back;
with ``--large``, 50 million ranges. Another checkout of ikp is measured in turn with this one, so
that a drift of the machine hits both.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from host_norms import norm_segment
from host_segment import gemm_segment

from ikp.core import abi
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.trace import Trace

HERE = Path(__file__).resolve().parents[1]
MILLION, LARGE = (1024, 64), (48450, 64)
MANY = {"1,000": 1000, "10,000": 10_000}
BUFFER = 32 << 20


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--against", type=Path, help="another checkout to measure in turn")
    options.add_argument("--large", action="store_true", help="50 million ranges, too")
    options.add_argument("--child", choices=CASES, help=argparse.SUPPRESS)
    arguments = options.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if arguments.child:
        print(json.dumps(CASES[arguments.child]()))
        return
    trees = [HERE, *filter(None, [arguments.against])]
    print(f"Python {sys.version.split()[0]}, numpy {np.__version__}, one core; CPU seconds\n")
    print("| case | " + " | ".join(["here", "there", "ratio"][: 2 * len(trees) - 1]) + " |")
    print("| --- |" + " --- |" * (2 * len(trees) - 1))
    for case in CASES:
        if case != "50 M ranges" or arguments.large:
            measure(case, trees, 1 if case == "50 M ranges" else arguments.runs)


def measure(case: str, trees: list[Path], runs: int) -> None:
    """Print a row for each figure of a case, in each tree: medians, and their ratio."""
    told: list[list[dict[str, float]]] = [[] for _ in trees]
    for _ in range(runs):
        for tree, found in zip(trees, told, strict=True):
            found.append(child(case, tree))
    for figure in told[0][0]:
        values = [statistics.median(one.get(figure, float("nan")) for one in of) for of in told]
        shown = [f"{value:.3f}" for value in values]
        if len(values) > 1:
            shown.append(f"{values[1] / values[0]:.2f}" if values[0] else "")
        print(f"| {case}: {figure} | " + " | ".join(shown) + " |", flush=True)


def child(case: str, tree: Path) -> dict[str, float]:
    """Measure a case in a process of its own, with the ikp of a checkout."""
    command = [sys.executable, __file__, "--child", case]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def seconds(action: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.process_time()
    made = action()
    return time.process_time() - begin, made


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def million() -> dict[str, float]:
    """Decode one launch of a million ranges, three times; the best."""
    source = gemm_segment(*MILLION)
    spent, trace = min(
        (seconds(lambda: decode([source])) for _ in range(3)), key=lambda one: one[0]
    )
    return {"decode": spent, "M ranges per second": len(trace.events) / spent / 1e6}


def small_launches(count: int) -> list[SegmentSource]:
    """Return launches of one kernel: 8 warps of 3 ranges each, in buffers of their own."""
    one = gemm_segment(1, 1, 3)
    assert isinstance(one.data, np.ndarray)
    slots = (len(one.data) - abi.LAUNCH_HEADER_BYTES) // 8
    grid_id = abi.field_offsets(abi.LAUNCH_HEADER)["grid_id"]
    sources = []
    for i in range(count):
        data = one.data.copy()
        data[grid_id : grid_id + 4].view("<u4")[:] = i + 1
        rows = data[abi.LAUNCH_HEADER_BYTES :].reshape(8, slots)
        heads = rows[:, : abi.SLOT_HEADER_BYTES].view(abi.SLOT_HEADER)
        heads["grid_id"] = i + 1
        for name in ("init_ns", "finish_ns"):
            heads[name] += np.uint64(20_000 * i)
        for name in ("init_clock", "finish_clock"):
            heads[name] += np.uint64(39_600 * i)
        records = rows[:, abi.SLOT_HEADER_BYTES :].view(abi.RECORD)
        for name in ("start", "end"):
            records[name] += np.uint32(39_600 * i & 0xFFFFFFFF)
        sources.append(replace(one, label="step", data=data))
    return sources


def many(count: int) -> dict[str, float]:
    """Decode launches of 24 ranges each, and write them."""
    from ikp.exporters.perfetto import PerfettoExporter

    sources = small_launches(count)
    decoding, trace = seconds(lambda: decode(sources))
    assert len(trace.events) == 24 * count
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.pftrace"
        writing, _ = seconds(lambda: PerfettoExporter().write(trace, path))
        found = {"decode": decoding, "write": writing}
        if count <= MANY["1,000"]:
            found["read"], _ = seconds(lambda: PerfettoExporter().read(path))
    return found


def norms(ranges: int) -> dict[str, float]:
    """Decode and write a launch of 524,288 warps that have so many ranges each, and a whole one."""
    from ikp.exporters.perfetto import PerfettoExporter

    source = norm_segment(131_072, ranges)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.pftrace"
        PerfettoExporter().write(decode([norm_segment(4096, 1)]), path)  # so that all is imported
        decoding, trace = seconds(lambda: decode([source]))
        assert len(trace.events) == (ranges + 1) * 524_288
        writing, _ = seconds(lambda: PerfettoExporter().write(trace, path, force=True))
        size = path.stat().st_size / len(trace.events)
    return {"decode": decoding, "write": writing, "bytes per range": size}


def read_back_default() -> dict[str, float]:
    """Read 1,000 small launches back from buffers of 32 MiB, as from a device."""
    import torch

    from ikp.core.segment import Segment, Spec

    one = gemm_segment(1, 1, 3)
    assert isinstance(one.data, np.ndarray)
    host = np.zeros(BUFFER, np.uint8)
    slot_bytes = (BUFFER - abi.LAUNCH_HEADER_BYTES) // 8 & -abi.ALIGNMENT
    header = one.data[: abi.LAUNCH_HEADER_BYTES].copy()
    header.view(abi.LAUNCH_HEADER)["slot_bytes"] = slot_bytes
    host[: abi.LAUNCH_HEADER_BYTES] = header
    rows = host[abi.LAUNCH_HEADER_BYTES :][: 8 * slot_bytes].reshape(8, slot_bytes)
    kept = one.data[abi.LAUNCH_HEADER_BYTES :].reshape(8, -1)
    rows[:, : kept.shape[1]] = kept
    segments = [
        Segment("k", torch.from_numpy(host), Spec(), "triton", "H200", 1.98e9, one.regions or {})
        for _ in range(1000)
    ]
    before = peak_gb()
    spent, held = seconds(lambda: copied(segments))
    return {"read back": spent, "host memory, GB": max(held, peak_gb() - before)}


def copied(segments: list[Any]) -> float:
    """Return the GB that reading segments back takes; where all is copied, of the first 50."""
    try:
        from ikp.session.readback import read_back, waited
    except ImportError:
        whole = [segment.data.clone() for segment in segments[:50]]
        return sum(map(len, whole)) / 2**30 * len(segments) / len(whole)
    trace: Trace = decode(waited(read_back(segments)))
    assert len(trace.launches) == len(segments)
    return 0.0


def large() -> dict[str, float]:
    """Decode 50 million ranges of one launch."""
    source = gemm_segment(*LARGE)
    before = peak_gb()
    spent, trace = seconds(lambda: decode([source]))
    found = {"decode": spent, "M ranges per second": len(trace.events) / spent / 1e6}
    columns = (getattr(trace.events, name) for name in trace.events.__slots__)
    held = sum(column.nbytes for column in columns) + source.data.nbytes
    return {
        **found,
        "peak GB, made in the same process": peak_gb(),
        "GB before": before,
        "GB of the segment and its columns": held / 2**30,
    }


CASES: dict[str, Callable[[], dict[str, float]]] = {
    "1.06 M ranges": million,
    **{f"{name} launches of 24": (lambda n=n: many(n)) for name, n in MANY.items()},  # type: ignore[misc]
    **{f"524,288 warps of {n + 1}": (lambda n=n: norms(n)) for n in (0, 5)},  # type: ignore[misc]
    "1,000 launches, default buffers": read_back_default,
    "50 M ranges": large,
}

if __name__ == "__main__":
    main()
