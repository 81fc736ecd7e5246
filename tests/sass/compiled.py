"""Kernels that are read, compiled and disassembled once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ikp.sass.dataflow.liveness import Liveness
from ikp.sass.dataflow.reading import read
from ikp.sass.disassembly.tools import assemble
from tests.backends.sass import Code, compile_kernel
from tests.sass import kernels

HALF = "*fp16"
TILE = {"BM": 128, "BN": 128, "BK": 64}
PRODUCT = {"a": HALF, "b": HALF, "c": HALF, "N": "i32", "K": "i32"}
ATTENTION = {**dict.fromkeys(("q", "k", "v", "out"), HALF), "n": "i32", "scale": "fp32"}


def _made(
    kernel: Any, types: dict[str, str], constants: dict[str, int], capability: int, **options: Any
) -> Code:
    return compile_kernel(kernel, types, None, constants, capability, divisible=True, **options)


def _attention(capability: int, width: int = 64, **options: Any) -> Code:
    tile = {"D": width, "BM": 128, "BN": 64}
    return _made(kernels.attention, ATTENTION, tile, capability, **options)


def _rms_norm(capability: int) -> Code:
    types = {"x": HALF, "weight": "*fp32", "out": HALF, "columns": "i32", "epsilon": "fp32"}
    return _made(kernels.rms_norm, types, {"BLOCK": 1024}, capability)


def _gathered(capability: int) -> Code:
    types = {"table": "*fp32", "index": "*i32", "out": "*fp32", "steps": "i32"}
    return _made(kernels.gathered, types, {"BLOCK": 256}, capability)


def _flagged() -> Code:
    types = {"flag": "*i32", "x": "*fp32", "out": "*fp32", "n": "i32", "blocks": "i32"}
    return _made(kernels.flagged, types, {"BLOCK": 256}, 90)


CASES: dict[str, Callable[[], Code]] = {
    "matmul": lambda: _made(kernels.matmul, PRODUCT, TILE, 90, num_warps=8, num_stages=3),
    "matmul sm_80": lambda: _made(kernels.matmul, PRODUCT, TILE, 80, num_warps=8, num_stages=3),
    "matmul sm_100": lambda: _made(kernels.matmul, PRODUCT, TILE, 100, num_warps=8, num_stages=3),
    "matmul TMA": lambda: _made(
        kernels.matmul_tma, {**PRODUCT, "M": "i32"}, TILE, 90, num_warps=8, num_stages=3
    ),
    "attention": lambda: _attention(90, num_warps=4, num_stages=3),
    "attention sm_80": lambda: _attention(80, num_warps=4, num_stages=3),
    "rms_norm": lambda: _rms_norm(90),
    "gathered": lambda: _gathered(90),
    "gathered sm_120": lambda: _gathered(120),
    "flagged": _flagged,
}


@cache
def code(name: str) -> Code:
    """Compile a case."""
    return CASES[name]()


@cache
def machine(name: str) -> Liveness:
    """Disassemble a case."""
    (made,) = read(code(name).compiled.asm["cubin"])
    return made


@cache
def assembled(body: str, target: str = "sm_90a") -> Liveness:
    """Assemble and disassemble a kernel of one parameter, a pointer ``p``, from PTX."""
    text = f".version 8.0\n.target {target}\n.address_size 64\n" + KERNEL.format(body=body)
    (made,) = read(assemble(text, "a test"))
    return made


KERNEL = ".visible .entry k(.param .u64 p) {{\n{body}\n}}\n"
