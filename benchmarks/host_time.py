"""What a launch costs the thread that launches: plain, recorded, and not recorded any more.

``python -m benchmarks.host_time [--bursts 40] [--only TEXT] [--profile FOLDER]``: a Triton kernel
and one of torch's in bursts of 50 launches, which the GPU's queue holds; between bursts the GPU is
waited for. Each way runs in a process of its own. Prints us of wall time a launch: the first decile
and the median of bursts. With ``--profile``, another run leaves a table of cProfile's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

LAUNCHES = 50
PROGRAM = f"""
import contextlib, cProfile, io, os, pstats, sys, time
import torch, triton, triton.language as tl
import ikp

WAY, BURSTS, TABLE = sys.argv[1], int(sys.argv[2]), sys.argv[3]

@triton.jit
def sums(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(4):
        total += tl.load(x + at + k * n, mask=at < n, other=0.0)
    tl.store(out + at, total, mask=at < n)

@triton.jit
def marked(x, out, n, prof, BLOCK: tl.constexpr):
    ikp.init(prof)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(4):
        with ikp.range("load", k):
            total += tl.load(x + at + k * n, mask=at < n, other=0.0)
    tl.store(out + at, total, mask=at < n)

n = 16 * 1024
x, out = torch.randn(4 * n, device="cuda"), torch.empty(n, device="cuda")
y = torch.zeros(n, device="cuda")
session = contextlib.nullcontext()
if WAY.startswith("hand"):
    session = ikp.profile(TABLE + ".pftrace", force=True, enabled=WAY != "hand-off")

kept = []

def launch():
    if WAY == "hand-once":
        if not kept:
            kept.append(prof.buffer("sums", grid=16, num_warps=4))
        marked[(16,)](x, out, n, kept[0], BLOCK=1024)
    elif WAY == "hand-tensor":
        if not kept:
            taken = prof.buffer("sums", grid=16, num_warps=4)
            kept.append(taken._replace(data=taken.data.as_subclass(torch.Tensor)))
        marked[(16,)](x, out, n, kept[0], BLOCK=1024)
    elif WAY == "plain-hand":
        marked[(16,)](x, out, n, None, BLOCK=1024)
    elif WAY == "hand-size":
        marked[(16,)](x, out, n, prof.buffer("sums", size=1 << 19), BLOCK=1024)
    elif WAY.startswith("hand-grid"):
        marked[(16,)](x, out, n, prof.buffer("sums", grid=16, num_warps=4), BLOCK=1024)
    elif WAY.startswith("hand"):
        marked[(16,)](x, out, n, prof.buffer("sums"), BLOCK=1024)
    elif WAY.startswith("torch"):
        torch.add(y, 1.0, out=out)
    else:
        sums[(16,)](x, out, n, BLOCK=1024)

took = []
watch = cProfile.Profile()
with session as prof:
    for number in range(BURSTS):
        torch.cuda.synchronize()
        time.sleep(0.01)
        if TABLE != "-" and number > BURSTS // 4:
            watch.enable()
        began = time.perf_counter()
        for _ in range({LAUNCHES}):
            launch()
        took.append((time.perf_counter() - began) / {LAUNCHES})
        watch.disable()
    torch.cuda.synchronize()
took = sorted(took[BURSTS // 4:])
print("takes", took[len(took) // 10], took[len(took) // 2])
if TABLE != "-":
    for order in ("tottime", "cumtime"):
        text = io.StringIO()
        pstats.Stats(watch, stream=text).sort_stats(order).print_stats(60)
        with open(TABLE, "a", encoding="utf-8") as file:
            file.write(text.getvalue())
"""
RUN = ("-m", "ikp", "run", "--no-explain", "--force", "--memory", "4000")
ALL = ("--launch", ":")
TORCH = ("--kernel", "*elementwise*")
WAYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Triton, verbs, no buffer": ("plain-hand", ()),
    "Triton, verbs, recorded": ("hand", ()),
    "Triton, verbs, recorded, grid given": ("hand-grid", ()),
    "Triton, verbs, recorded, 512 KiB each": ("hand-size", ()),
    "Triton, verbs, one buffer for all": ("hand-once", ()),
    "Triton, verbs, that as a plain tensor": ("hand-tensor", ()),
    "Triton, verbs, session off": ("hand-off", ()),
    "Triton, plain": ("plain", ()),
    "Triton, ikp run, recorded": ("run", (*RUN, *ALL)),
    "Triton, ikp run, ops recorded": ("run", (*RUN, *ALL, "--detail", "ops")),
    "Triton, ikp run, past the quota": ("run", RUN),
    "Triton, ikp run, other kernels named": ("run", (*RUN, "--kernel", "nothing")),
    "torch, plain": ("torch", ()),
    "torch, ikp run, recorded": ("torch", (*RUN, *ALL, *TORCH)),
    "torch, ikp run, past the quota": ("torch", (*RUN, *TORCH)),
    "torch, ikp run, put aside": ("torch", RUN),
}


def took(way: str, bursts: int, folder: Path, table: str) -> list[float]:
    """Return the first decile and the median of one way, in us a launch."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    argument, run = WAYS[way]
    out = ("--out", str(folder / "x.pftrace")) if run else ()
    command = [sys.executable, *run, *out, str(program), argument, str(bursts), table]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ, timeout=100
    )
    lines = [each for each in ran.stdout.splitlines() if each.startswith("takes")]
    if ran.returncode or not lines:
        raise SystemExit(ran.stdout[-2000:] + ran.stderr[-3000:])
    said = [each for each in ran.stderr.splitlines() if "recorded" in each or "launches" in each]
    print("   ", " | ".join(said)[:300], file=sys.stderr)
    return [1e6 * float(each) for each in lines[-1].split()[1:]]


def main() -> None:
    """Print a line a way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bursts", type=int, default=40)
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--only", default="", help="ways with this text in their names")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for way in (each for each in WAYS if asked.only in each):
            low, middle = took(way, asked.bursts, Path(folder), "-")
            print(f"{way:40} {low:8.2f} {middle:8.2f} us a launch", flush=True)
            if asked.profile:
                asked.profile.mkdir(parents=True, exist_ok=True)
                name = "".join(each if each.isalnum() else "-" for each in way)
                took(way, asked.bursts, Path(folder), str(asked.profile / f"{name}.txt"))


if __name__ == "__main__":
    main()
