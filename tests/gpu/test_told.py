"""What recording did to a program's launches is measured, however the program launches."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

import ikp
from ikp.backends.timed import FURTHER, WELL_KNOWN
from ikp.core.run_figures import TIMED
from ikp.core.turns import IN_TURN

pytestmark = pytest.mark.gpu

PROGRAM = """\
import time, torch, triton, triton.language as tl

@triton.jit
def queued(x, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at) + 1)

@triton.jit
def awaited(x, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at) + 2)

@triton.jit
def short(x, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at) + 3)

x = torch.ones(1 << 24, device="cuda")
y = torch.empty_like(x)
right = []
for kernel, size in ((queued, 1 << 24), (awaited, 1 << 24), (short, 1 << 20)):
    for number in range(110):
        kernel[(size // 1024,)](x, y, BLOCK=1024)
        if kernel is awaited:
            torch.cuda.synchronize()
            time.sleep(0.001)
        if kernel is short:
            right.append((y[:size] == 4).all())
            y.zero_()
torch.cuda.synchronize()
assert all(map(bool, right)), "a launch computed something else"
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> ikp.Trace:
    folder: Path = tmp_path_factory.mktemp("told")
    (folder / "prog.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "ikp", "run", "--no-explain", "prog.py"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return ikp.load(folder / "ikp-prog.pftrace")


@pytest.mark.parametrize("label", ["queued", "awaited", "short"])
def test_launches_are_timed_in_turn_whether_the_gpu_is_idle_or_not(
    trace: ikp.Trace, label: str
) -> None:
    made = json.loads(trace.provenance[TIMED + label])
    assert made["in_turn"] and made["recorded_us"] is not None
    assert 0.9 < made["recorded_us"] / made["plain_us"] < 1.5


@pytest.mark.parametrize("label", ["queued", "awaited", "short"])
def test_further_launches_are_timed_and_not_kept(trace: ikp.Trace, label: str) -> None:
    """The rule: some pairs more are timed where a few don't know the difference well enough."""
    made = json.loads(trace.provenance[TIMED + label])
    pairs, well = made["launches"][0], made["error_us"] < WELL_KNOWN * made["plain_us"]
    assert 6 <= pairs <= FURTHER, made
    assert well or pairs >= FURTHER // 2, made
    assert sum(launch.label == label for launch in trace.launches) == len(IN_TURN)


def test_no_time_of_the_host_is_in_a_measure(trace: ikp.Trace) -> None:
    """The rule: by events, launches that are waited for take as long as those that are not."""
    queued, awaited = (
        json.loads(trace.provenance[TIMED + label]) for label in ("queued", "awaited")
    )
    for key in ("recorded_us", "plain_us"):
        assert awaited[key] == pytest.approx(queued[key], abs=4)
