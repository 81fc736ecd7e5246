"""Windows of a program that goes on: what was prepared before one opens."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import ikp  # noqa: E402
from tests.repo.tree import ROOT  # noqa: E402

pytestmark = pytest.mark.gpu

PROGRAM = """\
import os, sys, time
from pathlib import Path
import torch, triton, triton.language as tl

@triton.jit
def scaled(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for _ in range(4):
        tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

switch, x = Path(sys.argv[1]), torch.ones(1 << 18, device="cuda")

def launch():
    begin = time.perf_counter()
    scaled[(256,)](x, x.numel(), BLOCK=1024)
    torch.add(x, 0.5, out=x)
    torch.cuda.synchronize()
    return time.perf_counter() - begin

def patches():
    return set(Path(os.environ["TRITON_CACHE_DIR"]).glob("ikp-patch-*"))

for _ in range(3): launch()
until = time.monotonic() + 100
while not patches() and time.monotonic() < until: time.sleep(0.1)
before = patches()
switch.touch()
time.sleep(1)
took = [launch() for _ in range(20)]
after = patches()
switch.unlink()
print(f"{len(before)} before, {len(after - before)} in the window, {1000 * max(took):.1f} ms")
"""


def test_kernels_that_ran_before_a_window_are_patched_when_it_opens(tmp_path: Path) -> None:
    """Triton's; torch's has texts of assertions in its module, and is patched in the window."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("records in machine code are known for sm_90 alone")
    program, switch = tmp_path / "prog.py", tmp_path / "go"
    program.write_text(PROGRAM)
    options = ("--while", str(switch), "--kernel", "*", "--out", str(tmp_path / "x.pftrace"))
    done = subprocess.run(
        [sys.executable, "-m", "ikp", "run", *options, str(program), str(switch)],
        cwd=ROOT,
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "triton")},
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    assert re.fullmatch(r"1 before, 1 in the window, .* ms\n", done.stdout), done.stderr
    trace = ikp.load(tmp_path / "x.window1.pftrace")
    assert {each.label.split("<")[0] for each in trace.launches} >= {"scaled"}
    assert len(trace.launches) == 2 * 8 and trace.slots.finished.all()
