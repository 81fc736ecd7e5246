"""Kernels of Triton's and Gluon's, compiled for chips that need not be there, and marked in PTX."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from ikp.backends.triton.unedited import _foreign as foreign
from ikp.core.abi import Language
from ikp.ptx.marking import MarkedPtx, mark
from tests.sass import compiled as machine

CASES: dict[str, Callable[[], Any]] = {
    **{name: partial(machine.code, name) for name in machine.CASES},
    "rms_norm sm_80": lambda: machine._rms_norm(80),
    "rms_norm sm_100": lambda: machine._rms_norm(100),
    "gathered sm_80": lambda: machine._gathered(80),
    "attention sm_100": lambda: machine._attention(100, num_warps=4, num_stages=3),
}


@cache
def plain(name: str) -> Any:
    """Return what Triton made of a kernel."""
    return CASES[name]().compiled


@cache
def marked(name: str, detail: str = "ops") -> MarkedPtx:
    """Return it with records at every place of a detail."""
    made = plain(name)
    return mark(
        *(made.asm["ptx"], made.asm["cubin"], made.name, partial(foreign.assemble, made)),
        detail=detail,
        language=Language.TRITON,
        shared=made.metadata.shared,
    )
