"""What the first use of kernels costs, and what a second process pays: processor's seconds.

    python benchmarks/first_use.py kernels/*.cubin [--detail ops] [--rounds 3]

Each round has processes of its own, in turn: one with empty caches, one that reads its caches, and
one with empty caches that prints each kernel by the disassembler. Children count. No GPU.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from ikp.sass.cubins.cubin import Cubin

_PROCESS = """
import os, sys
import numpy
from pathlib import Path
from ikp.backends.launched_grid import LaunchGrid
from ikp.backends.patched import RecordedLaunch, made
from ikp.core.abi import Language
from ikp.errors import IkpError
from ikp.unedited.plan import plan
which, detail, *listed = sys.argv[1:]
if which == "printed":
    from ikp.sass.dataflow import reading
    reading.composed = lambda file, name: None
wanted = [(Path(path).read_bytes(), name) for path, name in zip(listed[::2], listed[1::2])]
launch = RecordedLaunch(plan(level="machine", detail=detail), Language.OTHER, lambda *_: None)
begun, refused = sum(os.times()[:4]), 0
for data, name in wanted:
    try:
        made(data, name, "", launch, shared=0, block=(128, 1, 1), grid=LaunchGrid(False, False))
    except IkpError:
        refused += 1
print(refused, sum(os.times()[:4]) - begun)
"""


def took(which: str, cache: str, detail: str, kernels: list[str]) -> tuple[int, float]:
    """Return how many kernels are refused, and the processor's seconds of one process."""
    command = [sys.executable, "-c", _PROCESS, which, detail, *kernels]
    environment = os.environ | {"TRITON_CACHE_DIR": cache}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    refused, seconds = done.stdout.split()
    return int(refused), float(seconds)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cubins", nargs="+", type=Path)
    parser.add_argument("--detail", default="ops")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    found: dict[str, list[float]] = {"printed": [], "first": [], "second": []}
    kernels = [
        text
        for path in given.cubins
        for name, kernel in Cubin.read(path.read_bytes()).kernels.items()
        for text in (str(path), name)
        if kernel.entry
    ]
    refused = 0
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            for which, cache in (("printed", other), ("first", one), ("second", one)):
                refused, seconds = took(which, cache, given.detail, kernels)
                found[which].append(seconds)
    before = statistics.median(found["printed"])
    print(f"{len(kernels) // 2} kernels, {refused} refused, {given.detail}, processor's seconds\n")
    print("| process | median | least | ratio |\n| --- | --- | --- | --- |")
    for which, seconds in found.items():
        middle = statistics.median(seconds)
        print(f"| {which} | {middle:.2f} | {min(seconds):.2f} | {middle / before:.3f} |")


if __name__ == "__main__":
    main()
