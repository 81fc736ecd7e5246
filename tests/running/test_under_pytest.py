"""Tests of kernels under ``ikp run -m pytest``: pytest shows of them what it shows under Python."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ikp
from tests.processes import use_slim_torch
from tests.repo.tree import ROOT

pytestmark = pytest.mark.any_pins
COMMAND = str(ROOT / "tests" / "cli" / "command.py")
OPTIONS = ("-q", "-p", "no:cacheprovider", "--tb=short")
"""The long form shows arguments, and a kernel marked in its source has one more."""
TESTS = """\
import warnings

import pytest
import triton
import triton.language as tl

@triton.jit
def add(n):
    for i in range(n):
        n += i

@triton.jit
def broken(n):
    n + nothing_of_that_name

@triton.jit
def counted(n):
    n += 1

def test_wrong_launches_that_a_test_expects():
    with pytest.raises(TypeError):
        add[None](4)
    with pytest.raises(TypeError):
        add[(1,)](4, 5)
    add[(1,)](4)

def test_a_kernel_that_fails():
    broken[(1,)](4)

def test_a_launch_that_fails():
    add[(1,)]()

def test_a_grid_is_asked_once():
    def grid(meta):
        print("asked")
        warnings.warn("asked")
        return (2,)
    counted[grid](4)
    raise AssertionError
"""


QUIET = """\
import warnings

def test_warnings_are_errors(capfd):
    warnings.simplefilter("error")
    import pycuda
    from ikp.warning import warn
    warn("of a kernel")
    assert capfd.readouterr() == ("", "")
"""


def shown(folder: Path, *before: str) -> tuple[str, str, int]:
    """Return what pytest prints, less times; what comes on stderr; and the exit code."""
    use_slim_torch(folder)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, *before, "-m", "pytest", *OPTIONS, "test_kernels.py"],
        check=False,
        cwd=folder,
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    return re.sub(r"in \d+\.\d+s", "", done.stdout), done.stderr, done.returncode


def test_pytest_shows_what_it_shows_under_python(tmp_path: Path) -> None:
    (tmp_path / "test_kernels.py").write_text(TESTS)
    plain, _, code = shown(tmp_path)
    output, told, under_ikp = shown(tmp_path, COMMAND, "run", "--detail", "ops")
    assert re.search(r"3 failed, 1 passed, \d warning", plain)
    assert (output, under_ikp) == (plain, code)
    assert "add: 1 of 1 launches recorded" in told  # of those that could be launched
    assert "counted: 1 of 1 launches recorded" in told
    ranges = ikp.load(tmp_path / "ikp-pytest.pftrace").to_pandas().region
    assert sum(name.startswith("for i iteration") for name in ranges) == 4


def test_a_test_sees_no_warning_and_no_line_of_ikp(tmp_path: Path) -> None:
    (tmp_path / "pycuda.py").write_text("")  # whoever imports it may come to the driver
    (tmp_path / "test_kernels.py").write_text(QUIET)
    output, told, code = shown(tmp_path, COMMAND, "run", "--level", "machine")
    assert code == 0, output
    assert told.count("ikp: of a kernel\n") == 1
