"""How long it takes to put records into a kernel's machine code, on this machine's processor.

    python benchmarks/patching.py --detail ops attention.cubin gemm.cubin

For each kernel: its instructions, what NVIDIA's disassembler takes, and the rest. What it prints is
kept, of the kernel and of some that follow it in its file.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ikp.errors import IkpError
from ikp.probes.patch import DETAILS, patch
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.dataflow.reading import code_of

_BLOCK = (128, 1, 1)
"""Threads of a block, where the file doesn't say."""


def main() -> None:
    """Print a line for each kernel."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cubins", nargs="+", type=Path)
    parser.add_argument("--detail", choices=[*DETAILS], default="ops")
    parser.add_argument("--times", type=int, default=7)
    given = parser.parse_args()
    print(
        f"{'kernel':40} {'instructions':>12} {'disassembler':>13} {'the rest':>9}  (ms, the best)"
    )
    for path in given.cubins:
        cubin = path.read_bytes()
        for name in Cubin.read(cubin).kernels:
            print(_line(cubin, name, given.detail, given.times), flush=True)


def _line(cubin: bytes, name: str, detail: str, times: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        file = Cubin.read(cubin)
        printed = _best(1, lambda: code_of(cubin, file, name))
        count = len(file.kernel(name).words)
        try:
            rest = _best(times, lambda: patch(cubin, name, detail=detail, block=_BLOCK))
        except IkpError as error:
            return f"{name[:40]:40} {count:12,} {printed:13.0f}  refused: {error}"
    return f"{name[:40]:40} {count:12,} {printed:13.0f} {rest:9.1f}"


def _best(times: int, run: Callable[[], object]) -> float:
    """Return the least milliseconds that something takes."""
    best = float("inf")
    for _ in range(times):
        begun = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - begun)
    return best * 1e3


if __name__ == "__main__":
    main()
