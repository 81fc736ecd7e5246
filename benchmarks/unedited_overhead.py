"""What marks cost that nobody wrote: a plain GEMM through ikp.instrument, in turn with itself.

    python benchmarks/unedited_overhead.py [--rounds N]

Each figure is the median over rounds of (marked kernel) / (plain kernel just before it). Prints a
Markdown table, and how long the first launch of each took. Needs an NVIDIA GPU.
"""

import argparse
import time

import gemm_kernels as kernels
import torch
import triton
from gemm_timing import Gemm, pairs
from ratios import Row, table

import ikp

BUFFER_BYTES = 64 << 20


def row(gemm: Gemm, rounds: int, detail: str, level: str) -> tuple[Row, float]:
    """Return the ratios, and the seconds to the end of the first marked launch."""
    marked = ikp.instrument(kernels.gemm_plain, detail=detail, level=level)
    with ikp.profile(buffer_size=BUFFER_BYTES) as prof:
        begin = time.perf_counter()
        gemm.launch(marked)
        torch.cuda.synchronize()
        first = time.perf_counter() - begin
        prof.reset()
        ratios, plain = pairs(gemm, lambda: gemm.launch(marked), rounds)
        launch = prof.trace.launches[0]
        prof.reset()
    kept = f"{launch.kept:,} of {launch.attempted:,} ranges"
    return Row(f"{level}: {detail}", ratios, plain, kept), first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    gemm = Gemm()
    ratios, plain = pairs(gemm, gemm.plain, rounds)
    rows, told = [Row("plain against itself", ratios, plain, "")], []
    for level in ("machine", "ptx"):
        for detail in ("kernel", "loops", "ops"):
            made, first = row(gemm, rounds, detail, level)
            rows.append(made)
            told.append(f"{level}: {detail}: first launch after {first:.2f} s")
    print(
        f"{torch.cuda.get_device_name()}, triton {triton.__version__}, torch {torch.__version__}, "
        f"ikp {ikp.__version__}, {rounds} pairs each\n"
    )
    print(table(rows))
    print("\n".join(["", *told]))


if __name__ == "__main__":
    main()
