"""A program without torch has none after ``ikp run``, either: a whole session, on a fake driver."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ikp
from ikp.session.memory import DEFAULT_BYTES
from tests.backends.driver.driving import fake_driver
from tests.core.decoding.checks import assert_holds
from tests.host import work
from tests.sass.compiled import code
from tests.segments import Segment, Truth

pytestmark = pytest.mark.any_pins

PROGRAM = """
import ctypes, sys
import pycuda  # a way to the driver
IMPORT
library, handle = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p
library.cuLaunchKernel.argtypes = [handle, *[ctypes.c_uint] * 7, *[handle] * 3]
module, function = handle(), handle()
library.cuModuleLoadData(ctypes.byref(module), open("kernel.cubin", "rb").read())
library.cuModuleGetFunction(ctypes.byref(function), module, b"matmul")
for _ in range(4):
    assert not library.cuLaunchKernel(function, 12, 1, 1, 256, 1, 1, 0, None, None, None)
"""
CPU_TORCH = """
from types import SimpleNamespace
import sys
made = SimpleNamespace(is_built=lambda: False)
sys.modules["torch"] = SimpleNamespace(backends=SimpleNamespace(cuda=made))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a driver, and a kernel of a Python package that comes to it."""
    made = tmp_path_factory.mktemp("torchless")
    fake_driver(made)
    (made / "kernel.cubin").write_bytes(code("matmul").compiled.asm["cubin"])
    (made / "pycuda.py").touch()
    return made


def run(folder: Path, *options: str, imports: str = "") -> tuple[ikp.Trace, list[Truth], str]:
    """Run the program; return its trace, what its launches made, and what was printed."""
    model = Segment(DEFAULT_BYTES["timeline"])
    truth = model.run(work(5))
    (folder / "records").write_bytes(bytes(model.data))
    (folder / "x.py").write_text(PROGRAM.replace("IMPORT", imports))
    env = {**os.environ, "LD_LIBRARY_PATH": str(folder), "FAKE_RECORDS": str(folder / "records")}
    env |= {"PYTHONPROFILEIMPORTTIME": "1", "XDG_CACHE_HOME": str(folder / "cache")}
    command = [*(sys.executable, "-m", "ikp", "run", "--force", "--level", "machine"), *options]
    done = subprocess.run(
        [*command, "x.py"], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return ikp.load(folder / "ikp-x.pftrace"), [truth] * 4, done.stderr


@pytest.mark.parametrize("options", [["--check"], ["--host", "--launch", ":", "--detail", "ops"]])
def test_a_program_without_torch_gets_none(folder: Path, options: list[str]) -> None:
    """In any process, from its first line to the end of ikp's: nor a language that it has not."""
    trace, truths, printed = run(folder, *options)
    assert_holds(trace, *truths)
    imported = set(re.findall(r"^import time:.*\| +([\w.]+)$", printed, re.MULTILINE))
    assert "ikp.session.storage" in imported, "the imports of ikp are seen"
    assert not imported & {"torch", "triton", "cutlass", "cupy"}
    refused = "ikp: --host: what the host did is not recorded: the program does not import torch"
    assert (refused in printed) == ("--host" in options)


def test_a_torch_for_the_cpu_alone_is_asked_nothing_of_a_gpu(folder: Path) -> None:
    """It knows no GPU that the program launches kernels on by other packages."""
    trace, truths, _ = run(folder, imports=CPU_TORCH)
    assert_holds(trace, *truths)
