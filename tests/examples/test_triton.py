"""The Triton examples run as they are, in the interpreter, and check their own results."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

import ikp

pytestmark = pytest.mark.interp

EXPECTED = {
    "softmax_triton": {"row": 16, "load": 16, "max": 16, "exp and sum": 16, "store": 16},
    "gemm_triton": {"load": 16, "dot": 16, "store": 4},
    "persistent_triton": {"tile": 29, "load": 29, "store": 29, "block done": 4},
}
"""How many records of each region the small size has, on a machine without a GPU."""


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_records_what_it_does(name: str, tmp_path: Path) -> None:
    path = tmp_path / "out.pftrace"
    import_module(f"examples.{name}").main(path)
    trace = ikp.load(path)
    assert Counter(trace.to_pandas().region) == EXPECTED[name]
    assert [launch.dropped for launch in trace.launches] == [0]


def test_an_example_runs_as_a_script(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "examples" / "persistent_triton.py"
    command = [sys.executable, script, tmp_path / "out.pftrace"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert "block done" in done.stdout
    assert (tmp_path / "out.pftrace").stat().st_size > 0


def test_the_persistent_kernel_has_a_tail(tmp_path: Path) -> None:
    path = tmp_path / "out.pftrace"
    import_module("examples.persistent_triton").main(path)
    frame = ikp.load(path).to_pandas()
    counts = Counter(frame[frame.region == "tile"].block)
    assert counts == {0: 8, 1: 7, 2: 7, 3: 7}
