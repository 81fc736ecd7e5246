"""What ikp does for launches is done beside them: the program, its graphs and profile are whole."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import ikp  # noqa: E402
from tests.gpu.driver_program import NORMS, STEPS  # noqa: E402
from tests.gpu.test_driver import PROGRAM, known_chip, ran  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("known_chip")]

__all__ = ["known_chip"]


def recorded(what: str, path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    every = ("--launch", ":", *options, "--out", str(path))
    return ran("-m", "ikp", "run", *every, *PROGRAM, what)


@pytest.mark.parametrize(
    ("kernels", "label"), [((), "triton_"), (("--kernel", "*elementwise*"), "elementwise_kernel")]
)
def test_graphs_that_torch_compile_makes_are_whole(
    kernels: tuple[str, ...], label: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.pftrace"
    plain = ran(*PROGRAM, "overhead")
    done = recorded("overhead", path, *kernels)
    assert done.stdout == plain.stdout
    assert any(label in each.label for each in ikp.load(path).launches), done.stderr


def test_torch_profiler_sees_every_kernel_beside_records(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    plain = ran(*PROGRAM, "profiled")
    assert plain.stdout.startswith("20 1 ")
    done = recorded("profiled", path, "--kernel", "*softmax*")
    assert done.stdout == plain.stdout, done.stderr
    found = [each for each in ikp.load(path).launches if "softmax" in each.label]
    assert len(found) == 21, done.stderr


@pytest.mark.parametrize("what", ["terminated", "endless"])
def test_a_signal_ends_the_program_and_leaves_the_trace(what: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    options = ("--launch", ":", "--kernel", "*softmax*", "--out", str(path))
    command = [sys.executable, "-m", "ikp", "run", *options, *PROGRAM, what]
    with subprocess.Popen(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        began = time.monotonic()
        program.send_signal(signal.SIGTERM)
        try:
            _, told = program.communicate(timeout=60)
        finally:
            program.kill()
        assert program.returncode == -signal.SIGTERM, told
    assert time.monotonic() - began < 40
    found = [each for each in ikp.load(path).launches if "softmax" in each.label]
    assert len(found) >= 20
    assert ("a kernel had not ended" in told) == (what == "endless"), told


def test_many_launches_take_bounded_time_and_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    plain, began = ran(*PROGRAM, "steps"), time.monotonic()
    done = recorded("steps", path, "--kernel", "*layer_norm*", "--memory", "4096")
    whole = time.monotonic() - began
    assert done.stdout == plain.stdout
    before, after = (
        json.loads(next(line for line in each.stderr.splitlines() if line.startswith("{")))
        for each in (plain, done)
    )
    trace, launches = ikp.load(path), STEPS * NORMS
    us = {name: 1e6 * (after[name] - before[name]) / launches for name in ("s", "cpu_s")}
    kept = [each for each in trace.launches if "layer_norm" in each.label]
    print(
        f"{len(kept)} of {launches + 1} launches; {us['s']:.0f} us a launch more, of which the "
        f"thread {us['cpu_s']:.0f}; {after['s'] / before['s']:.1f} times as long; RSS "
        f"{after['rss_mb'] - before['rss_mb']:.0f} MB more; whole {whole:.0f} s; file "
        f"{path.stat().st_size / 2**20:.0f} MB"
    )
    assert len(kept) == launches + 1
    assert us["cpu_s"] < 400
    assert after["rss_mb"] - before["rss_mb"] < 2048
    assert whole < 240
