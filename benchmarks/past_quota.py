"""What a program's steps take once none of its launches is recorded any more, over plain Python.

``python -m benchmarks.past_quota [--rounds 3]``: a training loop of small layers, in which the host
is what takes the time, and a Triton kernel, each in a process of its own, in turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

FIRST, STEPS = 40, 300
PROGRAM = f"""
import time, torch, triton, triton.language as tl

@triton.jit
def scales(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 0.999, mask=at < n)

torch.manual_seed(0)
layers = [[torch.nn.Linear(256, 256), torch.nn.LayerNorm(256), torch.nn.GELU()] for _ in range(8)]
model = torch.nn.Sequential(*[each for layer in layers for each in layer]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(64, 256, device="cuda")

def step():
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    for _ in range(20):
        scales[(4,)](x, 4096, BLOCK=1024)

took = []
for number in range({FIRST} + {STEPS}):
    torch.cuda.synchronize()
    began = time.perf_counter()
    step()
    torch.cuda.synchronize()
    took.append(time.perf_counter() - began)
took = sorted(took[{FIRST}:])
print("a step takes", took[len(took) // 2])
"""
WAYS = {
    "plain": (),
    "ikp run": ("-m", "ikp", "run"),
    "ikp run --kernel '*'": ("-m", "ikp", "run", "--kernel", "*"),
    "ikp run --kernel nothing": ("-m", "ikp", "run", "--kernel", "nothing"),
}


def took(way: str, folder: Path) -> float:
    """Return a step's median time in seconds, one way."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    out = ("--force", "--out", str(folder / "x.pftrace")) if WAYS[way] else ()
    command = [sys.executable, *WAYS[way], *out, str(program)]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ, timeout=200
    )
    if ran.returncode:
        raise SystemExit(ran.stderr)
    (line,) = (each for each in ran.stdout.splitlines() if each.startswith("a step takes"))
    return float(line.split()[-1])


def main() -> None:
    """Print each way's time over plain Python's of the same round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    made: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            made.append({})
            for way in WAYS:
                made[-1][way] = took(way, Path(folder))
                print(f"round {number}: {way:26} {1e3 * made[-1][way]:.3f} ms a step", flush=True)
    for way in WAYS:
        ratios = [each[way] / each["plain"] for each in made]
        each = statistics.median(one[way] for one in made)
        print(
            f"{way:26} {statistics.median(ratios):.4f} ({min(ratios):.4f} to {max(ratios):.4f})"
            f"  {1e3 * each:.3f} ms a step"
        )


if __name__ == "__main__":
    main()
