"""What the columns in a .pftrace save, beside an earlier ikp that read traces from their packets.

    git worktree add ../older cabca0f
    python benchmarks/columns.py --older ../older [--blocks 1024] [--launches 10000] [--runs 3]

Each step runs in a process of its own, with this tree and with the older one in turn, over the same
synthetic GEMM. Seconds are those of the processor, the least of the runs: the ratio is what to look
at. Beside them what Arrow needs for the same table in Parquet, and protobuf's own parser for the
packets alone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--older", type=Path, help="a checkout of an earlier ikp")
    options.add_argument("--blocks", type=int, default=1024, help="1032 ranges each")
    options.add_argument("--launches", type=int, default=1000, help="of 24 ranges each")
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--child", help=argparse.SUPPRESS)
    options.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.child:
        step = globals()[f"child_{arguments.child}"]
        print(json.dumps(step(arguments.path, arguments)))
        return
    trees = {"now": HERE.parent} | ({"older": arguments.older} if arguments.older else {})
    print("| step | now | older | older / now |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for step in ("write", "load", "stats", "launches"):
            found = {
                name: told(step, tree, Path(folder) / f"{name}.pftrace", arguments)
                for name, tree in trees.items()
            }
            row(found)
        for step in ("parts", "peers"):
            told_now = told(step, trees["now"], Path(folder) / "now.pftrace", arguments)
            row({"now": told_now})


def told(step: str, tree: Path, path: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """Return what one step found in a process whose ikp is that of a tree."""
    words = [str(HERE / "columns.py"), "--child", step, "--path", str(path)]
    words += ["--blocks", str(arguments.blocks), "--runs", str(arguments.runs)]
    words += ["--launches", str(arguments.launches)]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    ran = subprocess.run(
        [sys.executable, *words], check=True, capture_output=True, text=True, env=environment
    )
    found: dict[str, float] = json.loads(ran.stdout)
    return found


def row(found: dict[str, dict[str, float]]) -> None:
    for name, value in found["now"].items():
        older = found.get("older", {}).get(name)
        ratio = f"{older / value:.2f}" if older and value else ""
        print(f"| {name} | {value:.3f} | {'' if older is None else f'{older:.3f}'} | {ratio} |")
    sys.stdout.flush()


def least(action: Callable[[], Any], runs: int) -> float:
    """Return the fewest seconds of the processor that an action took."""
    seconds = []
    for _ in range(runs):
        begin = time.process_time()
        action()
        seconds.append(time.process_time() - begin)
    return min(seconds)


def child_write(path: Path, arguments: argparse.Namespace) -> dict[str, float]:
    from host_segment import gemm_segment

    from ikp.core.decoding.decode import decode
    from ikp.exporters.perfetto import PerfettoExporter

    trace = decode([gemm_segment(arguments.blocks, 64)])
    write = least(lambda: PerfettoExporter().write(trace, path, force=True), arguments.runs)
    size, events = path.stat().st_size, len(trace.events)
    return {"ranges, M": events / 1e6, "write, s": write, "bytes per range": size / events}


def child_load(path: Path, arguments: argparse.Namespace) -> dict[str, float]:
    import numpy  # noqa: F401 - what is measured begins behind it

    import ikp

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = least(lambda: ikp.load(path), min(arguments.runs, 2))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"ikp.load, s": seconds, "its memory, GB": (peak - before) / 2**20}


def child_stats(path: Path, arguments: argparse.Namespace) -> dict[str, float]:
    seconds = []
    for _ in range(arguments.runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        words = [sys.executable, "-m", "ikp", "stats", str(path)]
        subprocess.run(words, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {"ikp stats, whole process, s": min(seconds)}


def child_launches(path: Path, arguments: argparse.Namespace) -> dict[str, float]:
    import numpy as np

    from ikp.core.decoding.decode import decode
    from ikp.edit import shift
    from ikp.exporters.perfetto import PerfettoExporter

    sys.path.insert(0, str(HERE))
    from host_segment import gemm_segment

    one = shift(decode([gemm_segment(1, 1)]), 0)
    count, warps = arguments.launches, len(one.slots)
    launch = np.repeat(np.arange(count), warps)
    tiled = {name: np.tile(getattr(one.slots, name), count) for name in one.slots.__slots__}
    later = 10_000 * launch
    tiled |= {"launch": launch.astype(np.int32)}
    tiled |= {name: tiled[name] + later for name in ("start_ns", "end_ns")}
    rows = {name: np.tile(getattr(one.events, name), count) for name in one.events.__slots__}
    number = np.repeat(np.arange(count), len(one.events))
    rows["slot"] = (rows["slot"] + warps * number).astype(np.int32)
    rows |= {name: rows[name] + 10_000 * number for name in ("start_ns", "end_ns")}
    trace = replace(
        one,
        launches=one.launches * count,
        slots=replace(one.slots, **tiled),
        events=replace(one.events, **rows),
    )
    write = least(lambda: PerfettoExporter().write(trace, path, force=True), 1)
    read = least(lambda: PerfettoExporter().read(path), 1)
    return {"launches": count, "write them, s": write, "read them, s": read}


def child_parts(path: Path, arguments: argparse.Namespace) -> dict[str, float]:
    from ikp.exporters.perfetto.reader import open_columns, read

    child_write(path, arguments)
    with open_columns(path) as columns:
        assert columns is not None
        start, end = columns.chunks("events")[0].pair("time")[0], 0
        end = max(one.pair("time")[1] for one in columns.chunks("events"))
    middle = (start + end) // 2

    def one_column() -> None:
        with open_columns(path) as columns:
            assert columns is not None
            columns.columns(columns.chunks("events"), ["region"])

    def window() -> None:
        read(path, lambda one: one.pair("time")[0] <= middle <= one.pair("time")[1])

    return {
        "one column of all events, s": least(one_column, arguments.runs),
        "the chunks of one moment, s": least(window, arguments.runs),
    }


def child_peers(path: Path, arguments: argparse.Namespace) -> dict[str, float]:
    import pyarrow.parquet as pq
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceMessage

    import ikp

    outer = TraceMessage.FromString(path.read_bytes())
    packed = (one.compressed_packets for one in outer.packet)
    packets = b"".join(zlib.decompress(one) for one in packed if one)
    table = path.with_suffix(".parquet")
    ikp.load(path).save(table, force=True)
    return {
        "Arrow: read the Parquet of it, s": least(lambda: pq.read_table(table), arguments.runs),
        "protobuf: parse its packets, s": least(lambda: TraceMessage.FromString(packets), 1),
    }


if __name__ == "__main__":
    main()
