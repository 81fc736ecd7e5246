"""Kernels in CUDA C++ for the plugin's tests, a CPU that runs their PTX, and their machine code."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ikp.core import abi
from ikp.core.abi import OverflowMode
from tests.machines.ptx_machine import Dim, Machine

Modules = Callable[[str], ModuleType]
BASE = 0x7F12_3456_7000
SOURCE = Path(__file__).with_name("example.cu")
NEEDS_NVCC = pytest.mark.skipif(not shutil.which("nvcc"), reason="nvcc isn't installed")
ARCHS = pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
MODES = pytest.mark.parametrize("mode", OverflowMode, ids=lambda mode: mode.name)


def plain(ptx: str) -> str:
    """Replace what nvcc writes and the test machine lacks; its memory has one address space."""
    ptx = re.sub(r"cvta\.to\.global\.u64", "mov.u64", ptx)
    return re.sub(r"neg\.s32\s+(\S+),", r"sub.s32 \1, 0,", ptx)


def emulate(ptx: bytes, nbytes: int, n: int, grid: Dim = (1, 1, 1), block: Dim = (32, 1, 1)) -> Any:
    """Run ``every_verb`` on the CPU; return the segment."""
    machine = Machine()
    data = machine.memory.map(BASE, nbytes)
    machine.launch(plain(ptx.decode()), [BASE, nbytes - abi.LAUNCH_HEADER_BYTES, n], grid, block)
    return data


def repeated(pairs: int) -> str:
    body = '  { ikp::Range r("step", n); x[n] = n; }\n' * pairs
    return (
        '#include "ikp.cuh"\nextern "C" __global__ void k(volatile unsigned* x, unsigned n, '
        f"ikp::Prof prof) {{\n  ikp::init(prof);\n{body}  ikp::finish();\n}}\n"
    )
