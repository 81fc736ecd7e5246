"""How fast a segment becomes a trace file on one core, how large the file is, how much memory.

    python benchmarks/host_throughput.py [--runs 7]

Three numbers of ranges: a small GEMM's; 1,056,768 in 8192 slots; 10 million. Beside them, in the
same run, a writer of the same packets through Perfetto's own Python library, and where they are
installed tg4perfetto, which Triton-distributed's profiler writes with, and orjson.
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
from pathlib import Path
from typing import Any

import numpy as np
from host_segment import gemm_segment

from ikp.core.decoding.decode import decode
from ikp.core.lanes import arrange
from ikp.core.trace import Trace
from ikp.edit import connect
from ikp.exporters.perfetto import PerfettoExporter
from ikp.trace import load

MILLION = (1024, 64)
"""Blocks and iterations of a 4096 x 4096 x 4096 GEMM in tiles of 128 x 128 x 64."""
TEN_MILLION = (9700, 64)
LIBRARY_BLOCKS = 64
"""As many blocks as the library's writer manages in a second or two."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=7)
    options.add_argument("--child", choices=["memory"], help=argparse.SUPPRESS)
    arguments = options.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if arguments.child:
        print(json.dumps(measure_memory(*TEN_MILLION)))
        return
    print(f"Python {sys.version.split()[0]}, numpy {np.__version__}, one core; {cpu()}\n")
    print("| step | ranges | ranges/s | seconds (median of runs) | bytes per range |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        measure_ours(Path(folder) / "ours.pftrace", arguments.runs)
        measure_others(Path(folder), arguments.runs)
        measure_library(Path(folder) / "library.pftrace")
        measure_peers(Path(folder) / "peer")
    child = [sys.executable, __file__, "--child", "memory"]
    told = json.loads(subprocess.run(child, check=True, capture_output=True, text=True).stdout)
    row("decode and write", told["ranges"], [told["seconds"]], told["bytes"])
    print(f"\npeak memory with {told['ranges']:,} ranges: {told['peak_gb']:.2f} GB, of which the")
    print(f"segment is {told['segment_gb']:.2f} GB and the trace {told['trace_gb']:.2f} GB")


def measure_ours(path: Path, runs: int) -> None:
    """Print a row for each step from a segment to a file and back."""
    exporter = PerfettoExporter()
    source = gemm_segment(*MILLION)
    trace = decode([source])
    ranges = len(trace.events)
    decoding, writing, both = [], [], []
    for _ in range(runs):
        path.unlink(missing_ok=True)
        begin = time.perf_counter()
        trace = decode([source])
        middle = time.perf_counter()
        exporter.write(trace, path)
        end = time.perf_counter()
        decoding.append(middle - begin)
        writing.append(end - middle)
        both.append(end - begin)
    row("decode", ranges, decoding)
    row("write", ranges, writing, path.stat().st_size)
    row("**decode and write**", ranges, both, path.stat().st_size)
    row("read", ranges, repeat(lambda: exporter.read(path), 3))
    crossing = overlapping(trace)
    crossed = repeat(lambda: exporter.write(crossing, path, force=True), 3)
    row("write, where all ranges overlap", ranges, crossed, path.stat().st_size)
    numbered = with_payloads(trace)
    connected = connect(numbered, "load", "dot", within="warp")
    joining = repeat(lambda: connect(numbered, "load", "dot", within="warp"), 3)
    row("`ikp.edit.connect`: an arrow to each second range", ranges, joining)
    drawing = repeat(lambda: exporter.write(connected, path, force=True), 3)
    row("write, with an arrow to each second range", ranges, drawing, path.stat().st_size)


def measure_others(folder: Path, runs: int) -> None:
    """Print a row for each of the other formats, written from the trace."""
    source = folder / "source.pftrace"
    PerfettoExporter().write(decode([gemm_segment(*MILLION)]), source)
    trace = load(source)
    for name in ("x.json", "x.json.gz", "x.hatchet", "x.csv", "x.parquet"):
        path, seconds = folder / name, []
        for _ in range(runs):
            path.unlink(missing_ok=True)
            seconds += repeat(lambda: trace.save(path), 1)  # noqa: B023
        row(f"write `{name[1:]}`", len(trace.events), seconds, path.stat().st_size)
    rows = repeat(lambda: sum(1 for _ in trace.ranges()), 1)
    row("make objects: `trace.ranges()`", len(trace.events), rows)


def measure_library(path: Path) -> None:
    """Print a row for the same packets, written message by message, and compressed by zlib."""
    trace = decode([gemm_segment(LIBRARY_BLOCKS, MILLION[1])])
    for name, serialize in (("messages", one_message), ("`TraceProtoBuilder`", builder)):
        seconds = repeat(lambda: path.write_bytes(serialize(trace)), 3)  # noqa: B023
        row(f"write, through the library's {name}", len(trace.events), seconds, path.stat().st_size)


def measure_peers(path: Path) -> None:
    """Print a row for each other package that writes the ranges' names and times, if installed."""
    trace = decode([gemm_segment(LIBRARY_BLOCKS, MILLION[1])])
    for name, write in (("tg4perfetto", by_tg4perfetto), ("orjson, Chrome JSON", by_orjson)):
        try:
            seconds = repeat(lambda: write(trace, path), 3)  # noqa: B023
        except ModuleNotFoundError as error:
            print(f"| write, through {name} | {error} | | | |")
            continue
        row(f"write, through {name}", len(trace.events), seconds, path.stat().st_size)


def by_tg4perfetto(trace: Trace, path: Path) -> None:
    """Open and close each range on the track of its warp."""
    from tg4perfetto import TraceGenerator

    made = TraceGenerator(str(path))
    group = made.create_group("gemm")
    tracks = [group.create_track(f"warp {slot}") for slot in range(len(trace.slots))]
    for slot, name, start, end in names_and_times(trace):
        tracks[slot].open(start, name)
        tracks[slot].close(end)
    made.flush()


def by_orjson(trace: Trace, path: Path) -> None:
    """Make a complete event of each range."""
    import orjson

    events = [
        {
            "ph": "X",
            "name": name,
            "pid": 0,
            "tid": slot,
            "ts": start / 1e3,
            "dur": (end - start) / 1e3,
        }
        for slot, name, start, end in names_and_times(trace)
    ]
    path.write_bytes(orjson.dumps({"traceEvents": events}))


def names_and_times(trace: Trace) -> list[tuple[int, str, int, int]]:
    """Return each range's slot, name, start and end; in a GEMM none is inside another."""
    events, names = trace.events, [region.name for region in trace.regions]
    columns = (events.slot, events.region, events.start_ns, events.end_ns)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [(slot, names[region], start, end) for slot, region, start, end in rows]


def repeat(action: Callable[[], Any], runs: int) -> list[float]:
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - begin)
    return seconds


def row(step: str, ranges: int, seconds: list[float], size: int | None = None) -> None:
    median = statistics.median(seconds)
    rate = f"{ranges / median / 1e6:.2f} M"
    each = f"{size / ranges:.1f}" if size is not None else ""
    print(f"| {step} | {ranges:,} | {rate} | {median:.3f} | {each} |", flush=True)


def overlapping(trace: Trace) -> Trace:
    """Return the trace with each range made long enough to reach into the next one."""
    from dataclasses import replace

    events = trace.events
    end = np.maximum.accumulate(events.end_ns + 600 + events.slot * np.int64(1 << 40))
    end -= events.slot * np.int64(1 << 40)
    return replace(trace, events=replace(events, end_ns=end))


def with_payloads(trace: Trace) -> Trace:
    """Return the trace with each dot's payload that of the load in front of it."""
    from dataclasses import replace

    events = trace.events
    dots = np.flatnonzero(events.region == [one.name for one in trace.regions].index("dot"))
    payload, types = events.payload.copy(), events.payload_type.copy()
    payload[dots], types[dots] = payload[dots - 1], types[dots - 1]
    return replace(trace, events=replace(events, payload=payload, payload_type=types))


def one_message(trace: Trace) -> bytes:
    """Serialise the ranges through one message of the library that holds all packets."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceMessage

    message = TraceMessage()
    fill(trace, lambda: message.packet.add())  # noqa: PLW0108  add has optional arguments
    return bytes(message.SerializeToString())


def builder(trace: Trace) -> bytes:
    """Serialise the ranges through the library's builder."""
    from perfetto.trace_builder.proto_builder import TraceProtoBuilder

    made = TraceProtoBuilder()
    fill(trace, made.add_packet)
    return bytes(made.serialize())


def fill(trace: Trace, add: Callable[[], Any]) -> None:
    """Make the packets of all ranges: the same fields, in the same order, as ours."""
    events = trace.events
    ranges = np.ones(len(events), bool)
    stream = arrange(events.slot, events.start_ns, events.end_ns, ranges)
    base = int(events.start_ns.min())
    columns = zip(
        stream.opens.tolist(),
        stream.closes.tolist(),
        (events.start_ns - base).tolist(),
        (events.end_ns - base).tolist(),
        (events.region + 1).tolist(),
        events.slot.tolist(),
        events.ticks.tolist(),
        events.payload_type.tolist(),
        events.payload.tolist(),
        strict=True,
    )
    places: list[tuple[Any, ...]] = [()] * len(stream)
    for opens, closes, start, end, *rest in columns:
        places[opens] = (start, *rest)
        places[closes] = (end, rest[1])
    for time_ns, *rest in places:
        packet = add()
        packet.timestamp = time_ns
        packet.trusted_packet_sequence_id = 1
        packet.sequence_flags = 2
        event = packet.track_event
        if len(rest) == 1:
            event.type = 2
            event.track_uuid = 128 + rest[0] % 1056
            continue
        name, slot, ticks, payload_type, payload = rest
        event.type = 1
        event.name_iid = name
        event.track_uuid = 128 + slot % 1056
        event.debug_annotations.add(name_iid=1, int_value=slot // 8)
        event.debug_annotations.add(name_iid=2, int_value=ticks)
        if payload_type:
            event.debug_annotations.add(name_iid=4, uint_value=payload)


def measure_memory(blocks: int, iterations: int) -> dict[str, float]:
    """Decode and write once; return the ranges, the seconds, and the most memory in use."""
    source = gemm_segment(blocks, iterations)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.pftrace"
        begin = time.perf_counter()
        trace = decode([source])
        PerfettoExporter().write(trace, path)
        seconds = time.perf_counter() - begin
        size = path.stat().st_size
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    columns = (getattr(trace.events, name) for name in trace.events.__slots__)
    return {
        "ranges": len(trace.events),
        "seconds": seconds,
        "bytes": size,
        "peak_gb": peak / 2**20,
        "before_gb": before / 2**20,
        "segment_gb": len(source.data) / 2**30,
        "trace_gb": sum(column.nbytes for column in columns) / 2**30,
    }


def cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model")), "")


if __name__ == "__main__":
    main()
