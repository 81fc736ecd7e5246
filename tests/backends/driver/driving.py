"""Runs a program whose CUDA driver writes down what it is asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def drive(folder: Path, program: str, code: bytes, kernel: str, ends: int = 0) -> str:
    """Return what a program of this folder prints.

    Args:
        folder: for its files.
        program: the module.
        code: the cubin that it loads.
        kernel: the one that it launches.
        ends: the code with which it has to end.
    """
    fake_driver(folder)
    image = folder / "kernel.cubin"
    image.write_bytes(code)
    command = [sys.executable, "-m", f"tests.backends.driver.{program}", str(image), kernel]
    env = {**os.environ, "LD_LIBRARY_PATH": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == ends, ran.stderr
    return ran.stdout


def fake_driver(folder: Path) -> Path:
    """Compile the driver into a folder; return its file."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "Triton needs a C compiler, and so does this"
    fake, source = folder / "libcuda.so.1", Path(__file__).with_name("fake.c")
    flags = ("-shared", "-fPIC", "-D_GNU_SOURCE", "-Wl,-soname,libcuda.so.1,-Bsymbolic")
    subprocess.run([compiler, *flags, "-o", fake, source], check=True)
    return fake
