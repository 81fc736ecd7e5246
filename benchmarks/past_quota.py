"""What a program's steps take once none of its launches is recorded any more, over plain Python.

``python -m benchmarks.past_quota [--rounds 5]``: a training loop of small layers, in which the host
is what takes the time, and a Triton kernel, each in a process of its own, in turn. Of plain
processes one is up to 20 % slower than another for its whole life. So each process gives the first
decile of its steps, and the fastest process of each way is what the ways are compared by.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FIRST, STEPS = 40, 200
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
print("a step takes", took[len(took) // 10])
"""
WAYS = {
    "plain": (),
    "ikp run": ("-m", "ikp", "run"),
    "ikp run --kernel '*'": ("-m", "ikp", "run", "--kernel", "*"),
    "ikp run --kernel nothing": ("-m", "ikp", "run", "--kernel", "nothing"),
}


def took(way: str, folder: Path) -> float:
    """Return the first decile of a step's time in seconds, one way."""
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
    """Print the fastest time of each way over the fastest of plain Python."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    made: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            made.append({})
            for way in WAYS:
                made[-1][way] = took(way, Path(folder))
                print(f"round {number}: {way:26} {1e3 * made[-1][way]:.3f} ms a step", flush=True)
    fastest = {way: min(each[way] for each in made) for way in WAYS}
    for way in WAYS:
        ratios = [each[way] / each["plain"] for each in made]
        print(
            f"{way:26} {fastest[way] / fastest['plain']:.4f} (of each round: {min(ratios):.4f} to"
            f" {max(ratios):.4f})  {1e3 * fastest[way]:.3f} ms a step"
        )


if __name__ == "__main__":
    main()
