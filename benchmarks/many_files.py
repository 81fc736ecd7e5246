"""How long one table of many files takes, in how much memory, and what workers gain.

    python benchmarks/many_files.py [--files 1000] [--blocks 1024] [--workers 1 2]

A file of 1,056,768 ranges (1,032 for each block) under many names: hard links, so that the disk
holds one of them. All of them are counted by ``ikp.many.tally_files``, once for each number of
workers, each time by a fresh process. Then a tenth of them become a Parquet data set, and are
asked the same through DuckDB, if that is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from host_segment import gemm_segment

from ikp.core.decoding.decode import decode
from ikp.exporters.perfetto import PerfettoExporter


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--files", type=int, default=1000)
    options.add_argument("--blocks", type=int, default=1024)
    options.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    options.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.child:
        print(json.dumps(count(Path(arguments.child[0]), int(arguments.child[1]))))
        return
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        links = Path(folder) / "links"
        ranges, size = make(links, arguments.files, arguments.blocks)
        print(f"{arguments.files:,} files of {ranges:,} ranges, {size / 1e6:.1f} MB; {cores} cores")
        print("\n| workers | files | seconds | of processors | ranges/s | memory: parent, worker |")
        print("| --- | --- | --- | --- | --- | --- |")
        for few in sorted({1, max(1, arguments.files // 10), arguments.files}):
            for workers in arguments.workers:
                told = fresh(links, few, workers)
                rate = few * ranges / told["seconds"] / 1e6
                memory = f"{told['own_mb']:.0f} MB, {told['worker_mb']:.0f} MB"
                times = f"{told['seconds']:.1f}", f"{told['cpu_s']:.1f}"
                line = (workers, f"{few:,}", *times, f"{rate:.2f} M", memory)
                print("|", " | ".join(map(str, line)), "|", flush=True)
        measure_dataset(links, Path(folder) / "data", max(1, arguments.files // 10), ranges)


def make(folder: Path, files: int, blocks: int) -> tuple[int, int]:
    """Write one trace and link to it; return its ranges and its size."""
    folder.mkdir()
    first = folder / "000000.pftrace"
    trace = decode([gemm_segment(blocks, 64)])
    PerfettoExporter().write(trace, first)
    for number in range(1, files):
        (folder / f"{number:06}.pftrace").hardlink_to(first)
    return len(trace.events), first.stat().st_size


def fresh(folder: Path, files: int, workers: int) -> dict[str, float]:
    """Count some files in a process of its own."""
    chosen = folder.parent / f"{files}"
    chosen.mkdir(exist_ok=True)
    for path in sorted(folder.iterdir())[:files]:
        if not (chosen / path.name).exists():
            (chosen / path.name).hardlink_to(path)
    command = [sys.executable, __file__, "--child", str(chosen), str(workers)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    told: dict[str, float] = json.loads(ran.stdout)
    return told


def count(folder: Path, workers: int) -> dict[str, float]:
    """Count the files of a folder; return the time and the most memory that was in use."""
    import ikp

    paths = sorted(map(str, folder.iterdir()))
    begin = time.perf_counter()
    table = ikp.many.tally_files(paths, workers=workers).stats()
    seconds = time.perf_counter() - begin
    assert table["tile"].launches == len(paths)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own, other = (one.ru_maxrss / 1024 for one in used)
    cpu = sum(one.ru_utime + one.ru_stime for one in used)
    return {"seconds": seconds, "cpu_s": cpu, "own_mb": own, "worker_mb": other}


def measure_dataset(links: Path, folder: Path, files: int, ranges: int) -> None:
    import ikp

    begin = time.perf_counter()
    ikp.many.to_dataset(sorted(map(str, links.iterdir()))[:files], folder)
    seconds = time.perf_counter() - begin
    size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
    rows = files * ranges
    print(
        f"\ndata set of {files:,} files: {seconds:.1f} s, {rows / seconds / 1e6:.2f} M rows/s, ",
        end="",
    )
    print(f"{size / rows:.1f} bytes per row")
    if importlib.util.find_spec("duckdb"):
        import duckdb

        query = "select region, count(*), median(dur_ns) from '{}/**/*.parquet' group by all"
        begin = time.perf_counter()
        duckdb.connect().execute(query.format(folder)).fetchall()
        print(f"DuckDB's counts and medians of it: {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
