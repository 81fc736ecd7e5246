"""CUDA C++ to machine code, through nvcc."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from ikp.plugins import KernelError, PluginError, Spec
from ikp_cuda import generated, regions

OVERLOOKED = (
    "A region's name must be a string literal right after its verb, as in "
    'ikp::Range range("load"). Where it stands elsewhere (a macro, an included file), pass it: '
    'names=["load"].'
)


def build(
    source: str | Path,
    arch: str = "sm_90a",
    *,
    spec: Spec | None = None,
    names: Iterable[str] = (),
    options: Iterable[str] = (),
    ptx: bool = False,
) -> bytes:
    """Compile kernels that ``#include "ikp.cuh"`` and return the cubin (or the PTX).

    Args:
        source: C++ text, or the path of a file.
        arch: the GPU: ``"sm_80"``, ``"sm_90a"``, ...
        spec: of the buffer that the kernel will get; None compiles every verb to nothing.
        names: regions beyond those that follow a verb in ``source``.
        options: more of nvcc's options.
        ptx: return PTX text instead.

    Raises:
        PluginError: there is no nvcc.
        KernelError: nvcc refuses the source; the message holds its own.
        RegionError: two names share one id.
    """
    text = source.read_text(encoding="utf-8") if isinstance(source, Path) else source
    virtual = arch.replace("sm_", "compute_")
    target = f"-gencode=arch={virtual},code={virtual if ptx else arch}"
    command = [_nvcc(), "-std=c++20", "-ptx" if ptx else "-cubin", target, *options]
    if isinstance(source, Path):
        command.append(f"-I{source.resolve().parent}")
    with tempfile.TemporaryDirectory(prefix="ikp-cuda-") as name:
        folder = Path(name)
        (folder / "kernel.cu").write_text(text, encoding="utf-8")
        (folder / "ikp_build.h").write_text(
            generated.header(spec, regions.find(text, names)), encoding="utf-8"
        )
        (folder / "ikp.cuh").write_text(_verbs(), encoding="utf-8")
        return _run([*command, f"-I{folder}", "kernel.cu", "-o", "out"], folder)


def _run(command: list[str], folder: Path) -> bytes:
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if ran.returncode:
        said = ran.stderr + ran.stdout
        hint = f"\n{OVERLOOKED}" if "ikp::Region::Region" in said else ""
        raise KernelError(f"nvcc refuses the kernel (exit code {ran.returncode}):\n{said}{hint}")
    return (folder / "out").read_bytes()


def _verbs() -> str:
    return resources.files("ikp_cuda").joinpath("ikp.cuh").read_text(encoding="utf-8")


def _nvcc() -> str:
    found = shutil.which(os.environ.get("NVCC", "nvcc"))
    if found is None:
        raise PluginError(
            "nvcc isn't on the PATH, and CUDA C++ kernels need it: install the CUDA toolkit, or "
            "set NVCC to the compiler's path."
        )
    return found
