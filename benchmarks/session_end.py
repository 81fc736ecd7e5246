"""From the end of a session to its file, and what a user asks of that file. On a GPU's own host.

    python benchmarks/session_end.py [--sessions 6] [--launches 10000]

GEMMs with two ranges per iteration, 8 warps per block: 4096^3, which records 1,056,768 ranges, and
8192 x 8192 x 9728, 9,994,240. Then thousands of launches of 24. For each: wall seconds from
``prof.stop`` to the file on the disk; the same in a session without a file, in two steps, reading
back and decoding, and writing; then, in processes of their own, `ikp stats`, `ikp.load` (best of 3)
with that process's memory, and the first microseconds cut out as `ikp view --window` does.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import gemm_kernels as kernels
import torch
import triton
import triton.language as tl

import ikp

BIG = (8192, 8192, 9728)
CHILD = """
import json, sys, time
import ikp
took = []
for _ in range(3):
    begin = time.perf_counter()
    trace = ikp.load(sys.argv[1])
    took.append(time.perf_counter() - begin)
    ranges = len(trace.events)
    del trace
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
memory = int(peak) / 2**20
print(json.dumps({"load": min(took), "GB": memory, "ranges": ranges}))
"""
CUT = """
import sys, tempfile
from pathlib import Path
from ikp.viewer.part import TracePart, write_part
with tempfile.TemporaryDirectory() as folder:
    print(write_part(Path(sys.argv[1]), TracePart(window_ns=(0, 20_000)), Path(folder))[1])
"""


@triton.jit
def small(out, n, prof, BLOCK: tl.constexpr):
    """Two blocks of four warps, each with ``n`` ranges."""
    ikp.init(prof)
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(n):
        with ikp.range("step", i):
            total += i
    tl.store(out + tl.program_id(0) * BLOCK + at, total)


class Product:
    """A GEMM's operands."""

    def __init__(self, m: int, n: int, k: int) -> None:
        self.size = (m, n, k)
        self.a = torch.randn((m, k), device="cuda", dtype=torch.float16)
        self.b = torch.randn((k, n), device="cuda", dtype=torch.float16)
        self.c = torch.empty((m, n), device="cuda", dtype=torch.float16)

    def ranges(self) -> int:
        m, n, k = self.size
        return m // 128 * (n // 128) * 8 * (2 * (k // 64) + 1)

    def launch(self, prof: ikp.profile) -> None:
        m, n, k = self.size
        buffer = prof.buffer("gemm", size=self.ranges() * 16 + (64 << 20))
        grid = (m // 128 * (n // 128),)
        options = {**kernels.BLOCK, **kernels.OPTIONS}
        kernels.gemm_both[grid](self.a, self.b, self.c, m, n, k, buffer, **options)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sessions", type=int, default=6)
    options.add_argument("--launches", type=int, default=10_000)
    arguments = options.parse_args()
    print(
        f"{torch.cuda.get_device_name()}, triton {triton.__version__}, Python "
        f"{sys.version.split()[0]}; wall seconds\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.pftrace"
        for name, record, sessions in (
            ("4096^3", Product(4096, 4096, 4096).launch, arguments.sessions),
            ("8192 x 8192 x 9728", Product(*BIG).launch, max(2, arguments.sessions // 2)),
            (f"{arguments.launches:,} launches", many(arguments.launches), 3),
        ):
            measure(name, record, sessions, path)
            ask(path)


def many(launches: int) -> Callable[[ikp.profile], None]:
    out = torch.empty(2048, device="cuda")

    def record(prof: ikp.profile) -> None:
        for number in range(launches):
            buffer = prof.buffer(f"launch {number}", size=4096)
            small[(2,)](out, 3, buffer, BLOCK=1024, num_warps=4)

    return record


def measure(name: str, record: Callable[[ikp.profile], None], sessions: int, path: Path) -> None:
    """Print what the end of a session takes, each time."""
    ends, decoded, written = [], [], []
    for _ in range(sessions):
        prof = ikp.profile(path, force=True).start()
        record(prof)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        prof.stop()
        ends.append(time.perf_counter() - begin)
    for _ in range(sessions):
        prof = ikp.profile().start()
        record(prof)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        prof.stop()
        trace = prof.trace
        middle = time.perf_counter()
        trace.save(path, force=True)
        decoded.append(middle - begin)
        written.append(time.perf_counter() - middle)
    events, lost = len(trace.events), sum(launch.dropped for launch in trace.launches)
    size = path.stat().st_size / 1e6
    print(f"\n**{name}**: {events:,} events kept, {lost} lost, {size:.2f} MB")
    for what, seconds in (
        ("end to file", ends),
        ("read back, decode", decoded),
        ("write", written),
    ):
        shown = f"first {seconds[0]:.3f}, then {min(seconds[1:]):.3f} to {max(seconds[1:]):.3f}"
        print(f"- {what}: {shown}, median {statistics.median(seconds[1:]):.3f}", flush=True)


def ask(path: Path) -> None:
    """Print what reading the file takes."""
    told = json.loads(run(CHILD, str(path))[0])
    print(f"- `ikp.load`: {told['load']:.3f}, {told['GB']:.2f} GB, {told['ranges']:,} events")
    for what, code, words in (
        ("`ikp stats`", "from ikp.cli.main import main; main()", ["stats", str(path)]),
        ("`ikp explain`", "from ikp.cli.main import main; main()", ["explain", str(path)]),
        ("first 20 us cut out", CUT, [str(path)]),
    ):
        found = [run(code, *words) for _ in range(4)]
        wall, used = (", ".join(f"{one[i]:.2f}" for one in found) for i in (1, 2))
        print(f"- {what}, whole process: wall {wall}; of processors {used}", flush=True)


def run(code: str, *words: str) -> tuple[str, float, float]:
    """Return what a process printed, its wall time, and what it had of the processors."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *words], check=True, capture_output=True, text=True
    )
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, wall, used


if __name__ == "__main__":
    main()
