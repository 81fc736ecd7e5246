"""Records kernels with work that results don't need, and their twins; measures what repair gains.

    python -m benchmarks.planted_code FOLDER [CASE ...]

Without CASE: all kernels of tests/kernels/planted/needless.cu, with and without FAULT. Writes
CASE.faulty.pftrace, CASE.repaired.pftrace, and code.json: the median time of both twins without
records, launched in turn, in us. Needs CuPy, nvcc, and a GPU of compute capability 9.0.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "tests" / "kernels" / "planted" / "needless.cu"
BLOCKS, THREADS, ROUNDS = 132, 128, 20
CASES = {
    "sums": 8192,
    "horner": 8192,
    "walk": 2048,
    "decode": 1024,
    "alike": 1024,
    "search": 1024,
    "kept": 1024,
    "staged": 512,
    "noise": 256,
    "cleared": 64,
}
"""By kernel: its last argument, how many steps it makes."""
OWN = {"sums": 256}
"""Threads of a block where these aren't ``THREADS``: with fewer, the number of warps is a cause."""
TWINS = {"faulty": 1, "repaired": 0}


def compiled(folder: Path, twin: str) -> Path:
    """Return the cubin of all kernels of a twin, which is compiled if it is not there."""
    path = folder / f"{twin}.cubin"
    if not path.exists():
        options = ["-cubin", "-arch=sm_90a", "-O3", "-lineinfo", f"-DFAULT={TWINS[twin]}"]
        subprocess.run(["nvcc", *options, str(SOURCE), "-o", str(path)], check=True)
    return path


def launch(folder: Path, name: str, twin: str) -> Callable[[], None]:
    """Return a launch of one twin of a kernel, on operands of its own."""
    import cupy

    kernel = cupy.RawModule(path=str(compiled(folder, twin))).get_function(name)
    threads, steps = OWN.get(name, THREADS), CASES[name]
    cupy.random.seed(0)
    size = BLOCKS * threads * (steps if name == "cleared" else 32)
    data = cupy.sort(cupy.random.random(max(size, 1 << 16), dtype=cupy.float32))
    other: Any = cupy.zeros(max(size, 1 << 16), cupy.float32)
    arguments = (other, data, cupy.int32(steps))
    if name == "decode":
        arguments = (other, data.astype(cupy.float16).view(cupy.uint32), cupy.int32(steps))
    if name == "cleared":
        marks = (cupy.random.random(len(data) // 32) < 1 / 64).astype(cupy.int32)
        arguments = (data, marks, cupy.int32(steps))
    return lambda: kernel((BLOCKS,), (threads,), arguments)


def record(folder: Path, name: str, twin: str) -> None:
    """Launch one twin of a kernel a few times, in this process: under ``ikp run``."""
    import cupy

    run = launch(folder, name, twin)
    for _ in range(8):
        run()
        cupy.cuda.runtime.deviceSynchronize()


def times(folder: Path, name: str) -> dict[str, float]:
    """Return the median time of both twins, launched in turn, in us."""
    import cupy

    runs = {twin: launch(folder, name, twin) for twin in TWINS}
    took: dict[str, list[float]] = {twin: [] for twin in TWINS}
    for _ in range(ROUNDS):
        for twin, run in runs.items():
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            run()
            end.record()
            end.synchronize()
            took[twin].append(cupy.cuda.get_elapsed_time(begin, end) * 1e3)
    return {f"{twin}_us": round(statistics.median(each[2:]), 2) for twin, each in took.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--twin", choices=TWINS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if asked.twin:
        record(folder, asked.cases[0], asked.twin)
        return
    found = {}
    for name in asked.cases or CASES:
        found[name] = times(folder, name)
        for twin in TWINS:
            out = folder / f"{name}.{twin}.pftrace"
            command = [sys.executable, "-m", "ikp", "run", "--detail", "loops", "--kernel", name]
            command += ["--launch", "2:3", "--blocks", "::11"]
            command += [
                "--no-explain",
                "--force",
                "--out",
                str(out),
                "-m",
                "benchmarks.planted_code",
            ]
            subprocess.run([*command, str(folder), name, "--twin", twin], check=True)
        print(name, found[name], flush=True)
    (folder / "code.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
