"""What recording costs on a GPU: a GEMM with records, launched in turn with the plain one.

    python benchmarks/gemm_overhead.py [--rounds N] [--no-proton] [--trace FILE.pftrace]

Each figure is the median over rounds of (kernel with records) / (plain kernel just before it).
Prints a Markdown table. Needs an NVIDIA GPU.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import gemm_kernels as kernels
import torch
import triton
from gemm_timing import Gemm, pairs
from ratios import Row, table

import ikp

PROTON_MODES = (
    "default:optimizations=clock32",
    "default",
    "default:optimizations=clock32:buffer_type=global",
)


def ikp_row(gemm: Gemm, name: str, kernel, rounds: int, trace: str | None = None, **options) -> Row:
    with ikp.profile(**options) as prof:
        buffer = prof.buffer(name)
        ratios, plain = pairs(gemm, lambda: gemm.launch(kernel, buffer), rounds)
        kept = _kept(prof.trace)
        prof.reset()
    if trace:
        with ikp.profile(trace, force=True, **options) as prof:
            gemm.launch(kernel, prof.buffer("gemm"))
    return Row(name, ratios, plain, kept)


def _kept(trace: ikp.Trace) -> str:
    (launch,) = trace.launches
    if launch.mode == "totals":
        return f"{launch.kept:,} totals of {int(trace.totals.count.sum()):,} ranges"
    return f"{len(trace.events):,} of {launch.attempted:,} ranges"


def proton_row(mode: str, what: str, rounds: int) -> Row | str:
    """Measure Proton in a process of its own: it has crashed, and ends by writing for minutes."""
    script = Path(__file__).with_name("gemm_proton.py")
    run = subprocess.run(
        [sys.executable, script, mode, what, str(rounds)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = [line for line in run.stdout.splitlines() if line.startswith("{")]
    if not found:
        last = (run.stderr.strip().splitlines() or ["no output"])[-1]
        return f"Proton {mode}: {what}: failed with exit status {run.returncode}: {last}"
    kept = sorted({line.split("(")[-1] for line in run.stderr.splitlines() if "dropped" in line})
    result = json.loads(found[-1])
    told = f"{kept[0].rstrip(')')} events per warp" if kept else "all"
    return Row(f"Proton {mode}: {what}", result["ratios"], result["plain_us"], told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--proton-rounds", type=int, default=8)
    parser.add_argument("--no-proton", action="store_true")
    parser.add_argument("--trace", help="write the trace of one launch with two ranges")
    args = parser.parse_args()
    gemm, n = Gemm(), args.rounds
    ratios, plain = pairs(gemm, gemm.plain, n)
    rows = [Row("plain against itself", ratios, plain, "")]
    for label, options in (
        ("ikp", {}),
        ("ikp, not scheduled", {"schedule": False}),
        ("ikp, globaltimer", {"clock": "globaltimer"}),
        ("ikp, ring", {"overflow": "wrap"}),
        ("ikp, totals", {"mode": "totals"}),
        ("ikp, totals, not scheduled", {"mode": "totals", "schedule": False}),
    ):
        trace = args.trace if label == "ikp" else None
        rows += [
            ikp_row(gemm, f"{label}: 1 range (dot)", kernels.gemm_dot, n, **options),
            ikp_row(gemm, f"{label}: 1 range (load)", kernels.gemm_load, n, **options),
            ikp_row(gemm, f"{label}: 2 ranges", kernels.gemm_both, n, trace, **options),
        ]
    failures = []
    if not args.no_proton:
        for mode in PROTON_MODES:
            for what in ("dot", "both"):
                row = proton_row(mode, what, args.proton_rounds)
                (failures if isinstance(row, str) else rows).append(row)
    print(
        f"{torch.cuda.get_device_name()}, triton {triton.__version__}, torch {torch.__version__}, "
        f"ikp {ikp.__version__}, {n} pairs each\n"
    )
    print(table(rows))
    print("\n".join(["", *failures]))


if __name__ == "__main__":
    main()
