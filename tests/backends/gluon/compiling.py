"""Compiles Gluon kernels for a GPU that need not be there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from ikp.core.segment import Spec
from tests.backends.sass import Code, source


def compile_gluon(
    kernel: Any,
    types: Mapping[str, str],
    prof: Spec | None = None,
    constants: Mapping[str, Any] | None = None,
    capability: int = 90,
    **options: Any,
) -> Code:
    """Compile ``kernel`` with Triton's launch options; see ``tests.backends.sass.source``."""
    made = source(kernel, types, prof, constants)
    gluon = GluonASTSource(made.fn, made.signature, made.constants, made.attrs)
    return Code(triton.compile(gluon, target=GPUTarget("cuda", capability, 32), options=options))


def tile_type(rows: int, columns: int) -> str:
    """Return Triton's type of a TMA descriptor of float16 tiles."""
    layout = gl.NVMMASharedLayout.get_default_for([rows, columns], gl.float16)
    return f"tensordesc<fp16[{rows}, {columns}],{layout!r}>"
