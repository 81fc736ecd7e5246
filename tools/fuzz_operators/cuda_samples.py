"""Samples in CUDA C++, each of something that compilers and drivers do in a way of its own.

Each file is built by nvcc into a shared library, with the kernel's host code: dynamic parallelism,
debug builds and launch attributes need more than NVRTC has.
"""

from __future__ import annotations

import atexit
import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from tools.fuzz_operators.cases import Case

FOLDER = Path(__file__).parent / "samples"
_COUNT = 1 << 14
"""Words that a sample returns at most: ``COUNT`` in ``sample.h``."""
_BUILD = ("-std=c++17", "-shared", "-Xcompiler", "-fPIC", "-lineinfo")
_LIMIT_S = 300


class SampleError(Exception):
    """A sample can't be built, or says that a call of CUDA failed."""


def options(source: Path) -> list[str]:
    """Return what a sample's first line asks of nvcc."""
    found = re.match(r"// nvcc: (.*)", source.read_text(encoding="utf-8"))
    return found[1].split() if found else []


def built(source: Path, arch: str, folder: Path) -> Path:
    """Build a sample.

    Args:
        source: its file.
        arch: such as ``sm_90a``.
        folder: where the library goes.

    Raises:
        SampleError: there is no nvcc, or it refuses the file.
    """
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if nvcc is None:
        raise SampleError("nvcc was not found on PATH: the samples in CUDA C++ need it.")
    made = folder / f"{source.stem}.so"
    own = options(source)
    lines = [each for each in _BUILD if each != "-lineinfo" or "-G" not in own]
    done = subprocess.run(
        [nvcc, f"-arch={arch}", *lines, str(source), "-o", str(made), *own],
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT_S,
    )
    if done.returncode:
        raise SampleError(f"nvcc refuses {source.name}: {done.stderr.strip()[-1000:]}")
    return made


class CudaSamples:
    """The samples, built for one architecture."""

    def __init__(self, arch: str = "sm_90a") -> None:
        self._arch = arch
        self._built: dict[str, Path | SampleError] = {}

    def prepare(self) -> None:
        """Build all samples, and import torch, in whose memory records lie."""
        import torch  # noqa: F401

        folder = Path(tempfile.mkdtemp(prefix="samples-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)

        def build(name: str) -> Path | SampleError:
            try:
                return built(FOLDER / f"{name}.cu", self._arch, folder)
            except SampleError as error:
                return error

        with ThreadPoolExecutor() as pool:
            self._built = dict(zip(self.names(), pool.map(build, self.names()), strict=True))

    def names(self) -> list[str]:
        """Return the samples."""
        return sorted(each.stem for each in FOLDER.glob("*.cu"))

    def cases(self, name: str) -> Iterator[Case]:
        """Yield a sample's only case.

        Raises:
            SampleError: it could not be built.
        """
        library = self._built[name]
        if isinstance(library, SampleError):
            raise library
        run = ctypes.CDLL(str(library)).run

        def computed(out: Any) -> list[Any]:
            if code := run(out.ctypes.data_as(ctypes.c_void_p)):
                raise SampleError(f"{name} ended with CUDA's error {code}")
            return [out]

        yield Case("sample", lambda: np.zeros(_COUNT, np.uint32), computed)

    def wait(self) -> None:
        """Wait for the GPU."""
        import torch

        torch.cuda.synchronize()
