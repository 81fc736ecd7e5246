"""What records of 64-bit clocks cost in compiled kernels of the three languages: no GPU needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import pytest

from ikp.core.abi import ClockKind, OverflowMode
from ikp.core.segment import Spec
from ikp.targets import ptx
from tests.backends.cute.dump import dump_to_temporary_folder
from tests.backends.sass import (
    CAPABILITIES,
    LOCAL_MEMORY,
    SYNCHRONISING,
    Code,
    compile_kernel,
    spec,
)
from tests.kernels import control
from tests.kernels.straight import straight as triton_straight
from tests.products import pairwise

pytestmark = pytest.mark.compiled
dump_to_temporary_folder()

RANGE, RUN_TIME_ID = 13, 15
"""SASS instructions that a range may cost: 10 and 12 with 32 bits."""
PUBLISHED = 8
"""What it costs a range that its warp publishes its start, and its count."""
LANGUAGES = ("triton", "gluon", "cute")
OTHER_KINDS = ("payload", "functional", "instant", "run-time id")
WIDE = (ClockKind.CYCLES64, ClockKind.GLOBALTIMER64)
MARKED = "v2.b32 [a+16], {"


@cache
def straight(
    language: str,
    records: int,
    kind: str = "range",
    capability: int = 90,
    mode: OverflowMode = OverflowMode.STOP,
    clock: ClockKind = ClockKind.CYCLES64,
) -> Code:
    """Compile straight-line code with so many records in it."""
    on = spec(mode, clock)
    if language == "cute":
        return _cute("launch_straight", on, capability, kind, records)
    constants = {"STORES": 8, "RECORDS": records, "KIND": kind}
    types = {"x": "*i32", "p": "i32"}
    if language == "triton":
        return compile_kernel(triton_straight, types, on, constants, capability)
    from tests.backends.gluon import kernels
    from tests.backends.gluon.compiling import compile_gluon

    return compile_gluon(kernels.straight, types, on, constants, capability)


@cache
def controlled(language: str, on: Spec | None, capability: int = 90) -> Code:
    """Compile loops, branches, helpers and tokens that cross them."""
    types = {"out": "*i32", "n": "i32"}
    if language == "triton":
        return compile_kernel(control.overlapping, types, on, capability=capability)
    if language == "gluon":
        from tests.backends.gluon import kernels
        from tests.backends.gluon.compiling import compile_gluon

        return compile_gluon(kernels.control, types, on, capability=capability)
    return _cute("launch", on, capability, "control")


def _cute(launch: str, on: Spec | None, capability: int, *more: Any) -> Code:
    pytest.importorskip("cutlass")
    from tests.backends.cute import kernels
    from tests.backends.cute.compiling import compile_cute, floats, number, prof

    target = f"sm_{capability}" + "a" * (capability >= 90)
    buffer = None if on is None else prof(on)
    host: Callable[..., Any] = getattr(kernels, launch)
    if launch == "launch":
        arguments: tuple[Any, ...] = (getattr(kernels, more[0]), floats(), number(), buffer)
    else:
        arguments = (floats(), number(), buffer, *more)
    return compile_cute(host, *arguments, target=target)


@pytest.mark.parametrize(
    ("language", "kind", "capability", "mode", "clock"),
    [
        *pairwise(LANGUAGES, ["range"], CAPABILITIES, OverflowMode, WIDE),
        *product(LANGUAGES, OTHER_KINDS, [90], [OverflowMode.STOP], WIDE[:1]),
    ],
)
def test_a_record_costs_at_most_three_instructions_more(
    language: str, kind: str, capability: int, mode: OverflowMode, clock: ClockKind
) -> None:
    budget = RUN_TIME_ID if kind == "run-time id" else RANGE
    if mode is OverflowMode.STREAM:
        budget += PUBLISHED
    one, eight = (straight(language, n, kind, capability, mode, clock) for n in (1, 8))
    more = eight.size - one.size
    assert 0 < more <= 7 * budget
    reads = [code.clock_reads for code in (one, eight)]
    assert reads[1] - reads[0] == 7 * (1 if kind == "instant" else 2)
    assert eight.ptx.count(ptx.STORE_MARK) == eight.ptx.count(MARKED) == 8
    assert eight.count(LOCAL_MEMORY) == {}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("clock", WIDE)
def test_tokens_loops_and_branches_carry_64_bits(language: str, clock: ClockKind) -> None:
    wide, narrow = (
        controlled(language, spec(clock=each)) for each in (clock, ClockKind(clock - 3))
    )
    plain = controlled(language, None)
    assert wide.count(SYNCHRONISING) == plain.count(SYNCHRONISING)
    assert wide.count(LOCAL_MEMORY) == {}
    assert wide.ptx.count(ptx.STORE_MARK) == narrow.ptx.count(ptx.STORE_MARK) > 1
    assert wide.ptx.count(MARKED) == wide.ptx.count(ptx.STORE_MARK)
    assert wide.ptx.count(ptx.CLOCK_MARK) == narrow.ptx.count(ptx.CLOCK_MARK)
    # Each is read whole: no half of a clock word comes from a read of 32 bits.
    assert f"mov.u32 %r1, {narrow_register(clock)};" not in wide.ptx
    assert ptx.CLOCK_READ[clock].partition(" ")[2].split(", ")[1] in wide.ptx


def narrow_register(clock: ClockKind) -> str:
    return ptx.CLOCK_READ[clock.unit].split(", ")[1].rstrip(";")
