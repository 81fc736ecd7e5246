"""Kernels that fail with records, on a GPU: each in a program of its own, which may die of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import ikp  # noqa: E402
from tests.gpu.faulty import HEALTHY  # noqa: E402

pytestmark = pytest.mark.gpu

LAST = {"triton": "adds", "torch": "elementwise_kernel"}
SECONDS = 240


@pytest.fixture(autouse=True)
def known_chip() -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("records in machine code are known for sm_90 alone")


def ran(*command: str, **settings: str) -> subprocess.CompletedProcess[str]:
    whole, env = [sys.executable, *command], os.environ | settings
    done = subprocess.run(
        whole, capture_output=True, text=True, check=False, timeout=SECONDS, env=env
    )
    print(done.stderr)
    return done


@pytest.fixture(scope="module")
def right() -> dict[str, str]:
    """What the program prints under python."""
    made = {each: ran("-m", "tests.gpu.faulty", each, "nothing") for each in LAST}
    assert [each.returncode for each in made.values()] == [0, 0]
    return {name: each.stdout for name, each in made.items()}


def recorded(
    path: Path, launcher: str, how: str, *options: str
) -> subprocess.CompletedProcess[str]:
    return ran(
        *("-m", "ikp", "run", "--level", "machine", "--detail", "kernel", "--kernel", "*"),
        *("--out", str(path), *options, "-m", "tests.gpu.faulty", launcher, how),
        TRITON_CACHE_DIR=str(path.parent / "cache"),  # a patch that was kept is not broken
    )


def checks(stderr: str) -> list[str]:
    return re.findall(r"check: (.*)\.$", stderr, re.MULTILINE)


@pytest.mark.parametrize("launcher", LAST)
def test_all_kernels_pass_the_check(launcher: str, right: dict[str, str], tmp_path: Path) -> None:
    """Triton's, with a descriptor in memory that its launcher lends, and torch's own."""
    done = recorded(tmp_path / "x.pftrace", launcher, "nothing", "--check")
    assert (done.returncode, done.stdout) == (0, right[launcher])
    found = checks(done.stderr)
    assert len(found) >= 4, found
    assert [each for each in found if not each.endswith("equal bit for bit")] == []


@pytest.mark.parametrize(
    ("launcher", "how", "words"),
    [
        ("triton", "fault", "with records it ends in CUDA_ERROR_"),
        ("torch", "fault", "with records it ends in CUDA_ERROR_"),
        ("triton", "differs", "out differs from what the plain kernel writes"),
        ("triton", "hangs", r"with records it has not ended after 10[.0-9]* s"),
    ],
)
def test_a_checked_kernel_that_fails_runs_plain_and_the_program_goes_on(
    launcher: str, how: str, words: str, right: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "x.pftrace"
    done = recorded(path, launcher, how, "--check")
    assert (done.returncode, done.stdout) == (0, right[launcher])
    assert re.search(f"{LAST[launcher]}.* fails the check: {words}", done.stderr)
    labels = [each.label for each in ikp.load(path).launches]
    assert labels.count("doubles") == 8 and "described" in labels  # before it, and after
    assert not any(each.startswith(LAST["triton"]) for each in labels)
    assert any(each.endswith("equal bit for bit") for each in checks(done.stderr))


@pytest.mark.parametrize("launcher", LAST)
def test_without_a_check_the_programs_error_is_its_own_and_the_kernel_is_named(
    launcher: str, tmp_path: Path
) -> None:
    """Buffers are so large that some are read back before the program ends."""
    path = tmp_path / "x.pftrace"
    large = ("--launch", ":", "--buffer", "64", "--memory", "8192")
    done = recorded(path, launcher, "fault", *large)
    assert done.returncode == 1 and not done.stdout
    assert re.search(r"^(torch\.\w+|RuntimeError): CUDA error: ", done.stderr, re.MULTILINE)
    (line,) = re.findall(r"^ikp: a kernel failed on the GPU.*$", done.stderr, re.MULTILINE)
    assert re.search(rf"last recorded launch was .*{LAST[launcher]}.*level=machine", line), line
    assert done.stderr.count("Traceback") == 1
    trace = ikp.load(path)
    labels = {each.label for each in trace.launches}
    assert labels >= {"doubles"} and not any(each.startswith("adds") for each in labels)
    assert 0 < len([each for each in trace.launches if each.label == "doubles"]) <= HEALTHY
    assert trace.slots.finished.all() and trace.provenance["fault"] in line


def test_a_users_own_fault_is_no_other_under_ikp(tmp_path: Path) -> None:
    """No kernel with records fails: the program's own does, in the same way as under python."""
    text = "import torch; x = torch.zeros(8, device='cuda'); y = x[torch.tensor([99]).cuda()]; "
    program = tmp_path / "own.py"
    program.write_text(f"import triton\n{text}torch.cuda.synchronize()\n")
    plain = ran(str(program))
    path = tmp_path / "x.pftrace"
    done = ran("-m", "ikp", "run", "--kernel", "*", "--out", str(path), str(program))
    assert done.returncode == plain.returncode != 0
    (error,) = re.findall(r"^\S*Error: CUDA error: .*$", plain.stderr, re.MULTILINE)
    assert error in done.stderr and "ikp: a kernel failed on the GPU" in done.stderr


TIMES = """
import time, torch, ikp
from ikp.backends import checked
from tests.gpu.faulty import adds, doubles

def timed(request):
    began = time.perf_counter()
    verdict = check(request)
    took.append(time.perf_counter() - began)
    print(verdict.text, took[-1], 's', sum(each.nbytes for each in request.memory) >> 20, 'MiB')
    return verdict

check, checked.check, took = checked.check, timed, []
for count in (1 << 26, 1 << 12):
    x = torch.zeros(count, device="cuda"); y = torch.zeros_like(x)
    for kernel, more in ((adds, (0,)), (doubles, ())):
        marked = ikp.instrument(kernel, detail="kernel", level="machine", check=True)
        with ikp.profile() as prof, torch.cuda.stream(torch.cuda.Stream()):
            marked[(count // 128,)](x, y, count, *more)
            torch.cuda.synchronize()
assert max(took) < 30 and took[-1] < 2, took
"""


def test_what_a_check_takes() -> None:
    """Print what the first check of a program takes, which starts a process, and later ones."""
    done = ran("-c", TIMES)
    print(done.stdout)
    assert done.returncode == 0 and done.stdout.count("equal bit for bit") == 4
