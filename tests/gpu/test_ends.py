"""Programs that end: what they print then, by destructors of theirs, is as without ikp."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]
PROGRAM = """
import os, sys
import torch, triton, triton.language as tl

@triton.jit
def scaled(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    for _ in range(4):
        v = v * 1.5 + 0.25
    tl.store(y + i, v, mask=i < n)

def run():
    x = torch.ones(5000, device="cuda")
    y = torch.empty_like(x)
    scaled[(20,)](x, y, 5000, BLOCK=256)
    return float(y.sum())

class Late:
    def __init__(self, fails):
        self.fails = fails
    def __del__(self, write=os.write):
        write(1, b"destroyed\\n")
        if self.fails:
            raise ValueError("by a destructor")

late = Late(False)
bound = scaled, Late(True)
for _ in range(LAUNCHES):
    total = run()
os.write(1, b"over %f\\n" % total)
raise SystemExit("a message")
"""


@pytest.mark.parametrize("launches", [1, 12])
def test_destructors_at_the_end_run_as_without_ikp(tmp_path: Path, launches: int) -> None:
    """Of a module that a recorded kernel refers to: they ran when nothing could be printed."""
    program = tmp_path / "prog.py"
    program.write_text(PROGRAM.replace("LAUNCHES", str(launches)))

    def run(*words: str) -> tuple[int, str, list[str]]:
        done = subprocess.run(
            [sys.executable, *words, str(program)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
            capture_output=True,
            text=True,
            check=False,
            timeout=250,
        )
        own = ("a message", "Exception ignored", "ValueError")
        return (
            done.returncode,
            done.stdout,
            [line.split(" <")[0] for line in done.stderr.splitlines() if line.startswith(own)],
        )

    assert run("-m", "ikp", "run", "--force") == run()
