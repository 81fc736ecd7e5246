"""A CuPy program under ``ikp run``: what it prints is the same, all is recorded, and no torch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cupy")

import ikp
from tests.gpu.test_driver import known_chip

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("known_chip")]

__all__ = ["known_chip"]

BLOCKS, EACH, REPLAYS = 256, 2, 3
PROGRAM = f"""
import cupy
source = '''extern "C" __global__ void uneven(float* out, int each) {{
    #pragma unroll 1
    for (int i = 0; i < (blockIdx.x * 7 % {BLOCKS}) * each; i++) {{
        out[blockIdx.x * blockDim.x + threadIdx.x] += i;
        __syncthreads();
    }}
}}'''
kernel = cupy.RawKernel(source, "uneven")
out = cupy.zeros({BLOCKS} * 64, cupy.float32)
for _ in range(3):
    kernel(({BLOCKS},), (64,), (out, {EACH}))
stream = cupy.cuda.Stream(non_blocking=True)
cupy.cuda.Device().synchronize()
with stream:
    stream.begin_capture()
    kernel(({BLOCKS},), (64,), (out, 1))
    graph = stream.end_capture()
for _ in range({REPLAYS}):
    graph.launch(stream)
stream.synchronize()
print(float(out.sum()))
"""


def ran(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    done = subprocess.run(
        [sys.executable, *command, "x.py"],
        cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def test_all_is_recorded_and_no_torch_is_imported(tmp_path: Path) -> None:
    """Also where the counts of records are so uneven that no rows of a buffer are alike."""
    (tmp_path / "x.py").write_text(PROGRAM)
    plain = ran(tmp_path)
    options = ("--kernel", "uneven", "--launch", ":", "--sample", "1", "--replays", str(REPLAYS))
    done = ran(tmp_path, "-m", "ikp", "run", *options)
    assert done.stdout.splitlines()[0] == plain.stdout.splitlines()[0]
    imported = set(re.findall(r"^import time:.*\| +([\w.]+)$", done.stderr, re.MULTILINE))
    assert "ikp.session.storage" in imported and not imported & {"torch", "triton"}
    trace = ikp.load(tmp_path / "ikp-x.pftrace")
    assert [each.label for each in trace.launches] == ["uneven"] * (3 + REPLAYS)
    assert not any(each.dropped for each in trace.launches)
    counts = [launch.kept for launch in trace.launches]
    assert counts[:3] == [counts[0]] * 3 and counts[3:] == [counts[3]] * REPLAYS
    assert all(counts)
