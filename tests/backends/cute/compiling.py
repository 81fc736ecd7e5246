"""Compiles CuTe kernels for a GPU that need not be there."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from cutlass import Float32, Int32, cute
from cutlass.cute.runtime import make_fake_compact_tensor

from ikp.backends.argument import Argument
from ikp.core.segment import Spec
from tests.backends.sass import Code, spec

TARGETS = ("sm_80", "sm_90a", "sm_100a")
DEFAULT = "sm_90a"


def prof(of: Spec | None = None) -> Argument:
    """Return what a session would hand out, in CPU memory: compiling reads no byte of it."""
    memory = torch.zeros(8192, dtype=torch.uint8)
    return Argument(memory, 4096, str(of or spec()))


def compile_cute(function: Callable[..., Any], *args: Any, target: str = DEFAULT) -> Code:
    """Compile a host function that launches one kernel."""
    before = os.environ.get("CUTE_DSL_ARCH")
    os.environ["CUTE_DSL_ARCH"] = target
    try:
        options = (cute.KeepPTX, cute.KeepCUBIN, cute.GPUArch(target))
        made = cute.compile[options](function, *args)
    finally:
        del os.environ["CUTE_DSL_ARCH"]
        if before is not None:
            os.environ["CUTE_DSL_ARCH"] = before
    return Code(SimpleNamespace(asm={"ptx": made.__ptx__, "cubin": made.__cubin__}))  # type: ignore[arg-type]


def floats() -> Any:
    """Return the kernels' tensor: a description, no memory."""
    return make_fake_compact_tensor(Float32, (1 << 14,))


def number() -> Any:
    """Return the kernels' number."""
    return Int32(5)
