"""Compiled kernels of every kind that ikp records in."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from ikp.core.abi import ClockKind, OverflowMode
from ikp.inspection import inspector
from ikp.inspection._images import Image
from ikp.inspection.report import KernelReport
from ikp.sass.disassembly import listing
from tests.backends.gluon import kernels as gluon_kernels
from tests.backends.gluon.compiling import compile_gluon, tile_type
from tests.backends.sass import Code, compile_kernel, spec
from tests.inspection.ptx_oracle import disassembled
from tests.kernels import choices, control, gemm, straight
from tests.products import THOROUGH

OUT_AND_N = {"out": "*i32", "n": "i32"}
BOTH = {"LOAD": True, "DOT": True, **gemm.TILES}


def pipelined(
    capability: int,
    schedule: bool = True,
    clock: ClockKind = ClockKind.CYCLES,
    overflow: OverflowMode = OverflowMode.STOP,
    **options: Any,
) -> Code:
    """Return the pipelined GEMM, with a range around its loads and one around its dot."""
    made = {**gemm.OPTIONS, **options}
    on = spec(overflow, clock, schedule)
    return compile_kernel(gemm.gemm, gemm.TYPES, on, BOTH, capability, divisible=True, **made)


def unrolled(kind: str = "payload", records: int = 40, **options: Any) -> Code:
    """Return straight-line code: many pieces of work, a record around each."""
    constants = {"STORES": records, "RECORDS": records, "KIND": kind}
    types = {"x": "*i32", "p": "i32"}
    return compile_kernel(straight.straight, types, spec(**options), constants)


def gluon_gemm(schedule: bool = True) -> Code:
    """Return the example: warp-specialised, with TMA and WGMMA."""
    from examples import gemm_gluon as it

    types = {"left": tile_type(it.BM, it.BK), "right": tile_type(it.BK, it.BN), "out": "*fp16"}
    types |= {"N": "i32", "K": "i32"}
    return compile_gluon(it.gemm, types, spec(schedule=schedule), {"STAGES": it.STAGES})


def _control(name: str, capability: int = 90, **options: Any) -> Code:
    return compile_kernel(getattr(control, name), OUT_AND_N, spec(**options), capability=capability)


def _choices(name: str, **options: Any) -> Code:
    return compile_kernel(getattr(choices, name), OUT_AND_N, spec(**options))


def _gluon(name: str, capability: int, **options: Any) -> Code:
    made = getattr(gluon_kernels, name)
    return compile_gluon(made, OUT_AND_N, spec(**options), capability=capability)


KERNELS: dict[str, Callable[[], Code]] = {
    "gemm sm_80": lambda: pipelined(80),
    "gemm sm_90": lambda: pipelined(90),
    "gemm sm_90 not placed": lambda: pipelined(90, schedule=False),
    "gemm sm_80 spilled": lambda: pipelined(80, maxnreg=96),
    "nested": lambda: _control("nested"),
    "nested sm_80": lambda: _control("nested", 80),
    "nested sm_100": lambda: _control("nested", 100),
    "nested, ring": lambda: _control("nested", overflow=OverflowMode.WRAP),
    "nested, global timer": lambda: _control("nested", clock=ClockKind.GLOBALTIMER),
    "nested, 64 bits": lambda: _control("nested", clock=ClockKind.CYCLES64),
    "nested, 64 bits sm_100": lambda: _control("nested", 100, clock=ClockKind.GLOBALTIMER64),
    "nested, stream": lambda: _control("nested", overflow=OverflowMode.STREAM),
    "nested, stream of 64 bits": lambda: _control(
        "nested", overflow=OverflowMode.STREAM, clock=ClockKind.CYCLES64
    ),
    "gemm sm_90, stream": lambda: pipelined(90, overflow=OverflowMode.STREAM),
    "conditions, stream": lambda: _choices("conditional", overflow=OverflowMode.STREAM),
    "gluon specialised, stream": lambda: _gluon("specialised", 90, overflow=OverflowMode.STREAM),
    "overlapping, 64 bits": lambda: _control("overlapping", clock=ClockKind.CYCLES64),
    "unrolled, 64 bits": lambda: unrolled(clock=ClockKind.CYCLES64),
    "run-time ids, 64 bits": lambda: unrolled("run-time id", clock=ClockKind.CYCLES64),
    "gemm sm_90, 64 bits": lambda: pipelined(90, clock=ClockKind.CYCLES64),
    "conditions, 64 bits": lambda: _choices("conditional", clock=ClockKind.CYCLES64),
    "indices, 64 bits": lambda: _choices("placed", clock=ClockKind.CYCLES64),
    "functional": lambda: _control("functional"),
    "overlapping": lambda: _control("overlapping"),
    "overlapping sm_80": lambda: _control("overlapping", 80),
    "overlapping sm_100": lambda: _control("overlapping", 100),
    "early return": lambda: _control("early_return"),
    "unrolled": unrolled,
    "instants": lambda: unrolled("instant"),
    "run-time ids": lambda: unrolled("run-time id"),
    "conditions": lambda: _choices("conditional"),
    "indices": lambda: _choices("placed"),
    "gluon control sm_90": lambda: _gluon("control", 90),
    "gluon control sm_100": lambda: _gluon("control", 100),
    "gluon specialised sm_90": lambda: _gluon("specialised", 90),
    "gluon specialised sm_100": lambda: _gluon("specialised", 100),
    "gluon gemm": gluon_gemm,
}

AGAIN = {
    *("nested sm_100", "overlapping sm_80", "gluon control sm_90", "gluon specialised sm_100"),
    *("unrolled, 64 bits", "nested, 64 bits sm_100"),
}
"""What differs from others in the GPU alone, or in a clock that others have, too."""
CASES = [
    pytest.param(name, marks=pytest.mark.any_pins if name.endswith("64 bits") else ())
    for name in KERNELS
    if THOROUGH or name not in AGAIN
]
"""Those of 64 bits are found with the newest Triton: test_wide_clock.py counts them with each."""


@cache
def code(name: str) -> Code:
    """Compile a case."""
    return KERNELS[name]()


def image(made: Code) -> Image:
    """Return what is inspected of a compiled kernel."""
    return Image(made.compiled.asm["cubin"], made.ptx, "a test")


@cache
def kernel(name: str) -> KernelReport:
    """Inspect a case."""
    return only(code(name))


@cache
def machine_code(cubin: bytes) -> listing.Code:
    """Disassemble the one kernel of a cubin, once: all that is asked of it starts from this."""
    text, _ = disassembled(cubin)
    (made,) = listing.parse(text)
    return made


def only(made: Code) -> KernelReport:
    """Inspect a compiled kernel, as ``inspector.report`` does."""
    (found,) = inspector._kernel(machine_code(made.compiled.asm["cubin"]), image(made))
    return found
