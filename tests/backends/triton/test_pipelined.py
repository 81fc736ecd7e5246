"""A pipelined GEMM with records keeps its pipeline: the same copies, MMAs, barriers and stages."""

from __future__ import annotations

from functools import cache

import pytest
import triton

from ikp.backends.triton._hooks import names_in_code
from ikp.core.abi import OverflowMode
from tests.backends.sass import (
    CAPABILITIES,
    LOCAL_MEMORY,
    SYNCHRONISING,
    Code,
    compile_kernel,
    spec,
)
from tests.kernels.gemm import OPTIONS, TILES, TYPES, gemm
from tests.products import THOROUGH, pairwise

pytestmark = pytest.mark.compiled

KEPT = {
    80: ("HMMA", "LDGSTS", "LDGDEPBAR", "LDSM", "BAR"),
    90: ("HGMMA", "LDGSTS", "LDGDEPBAR", "WARPGROUP", "WARPSYNC", "BAR"),
    100: ("UTCHMMA", "LDGSTS", "LDGDEPBAR", "UTCBAR", "SYNCS", "LDTM", "STTM", "BAR"),
}
MMA = {80: "HMMA", 90: "HGMMA", 100: "UTCHMMA"}
THREADS = 32 * OPTIONS["num_warps"]
NO_PREDICATION = pytest.mark.xfail(
    tuple(int(part) for part in triton.__version__.split(".")[:2]) < (3, 9),
    raises=RuntimeError,
    strict=True,
    reason="before 3.9, Triton can't pipeline a loop with tcgen05 and volatile assembly in it",
)
RECORDED = ((True, False), (False, True), (True, True))
"""Whether the loads and the dot have a range around them."""


def blocks_per_sm(registers: int) -> int:
    """Return how many blocks the register file of an SM holds."""
    return 65536 // (THREADS * (-(-registers // 8) * 8))


@cache
def code(
    capability: int,
    load: bool,
    dot: bool,
    mode: OverflowMode | None = OverflowMode.STOP,
    schedule: bool = True,
) -> Code:
    return compile_kernel(
        gemm,
        TYPES,
        None if mode is None else spec(mode, schedule=schedule),
        {"LOAD": load, "DOT": dot, **TILES},
        capability,
        divisible=True,
        **OPTIONS,
    )


@pytest.mark.parametrize(
    ("capability", "on", "mode"),
    [
        pytest.param(*case, marks=NO_PREDICATION if case[0] == 100 else ())
        for case in pairwise(CAPABILITIES, RECORDED, OverflowMode)
    ],
)
def test_the_pipeline_is_unchanged(
    capability: int, on: tuple[bool, bool], mode: OverflowMode
) -> None:
    load, dot = on
    plain = code(capability, load=False, dot=False, mode=None)
    recorded = code(capability, load, dot, mode)
    kept = plain.count(KEPT[capability])
    assert kept["LDGSTS"] >= 16
    assert kept[MMA[capability]] >= 4
    assert recorded.count(KEPT[capability]) == kept
    assert recorded.shared == plain.shared > 0
    assert recorded.count(SYNCHRONISING) == plain.count(SYNCHRONISING)
    assert recorded.count(LOCAL_MEMORY) == plain.count(LOCAL_MEMORY) == {}
    assert blocks_per_sm(recorded.allocated) == blocks_per_sm(plain.allocated)
    names = set(names_in_code(recorded.ptx).values())
    assert names == {name for name, on in (("load", load), ("dot", dot)) if on}
    records = recorded.ptx.count("// ikp.store")  # twice as many where an iteration was peeled off
    assert records in {load + dot, 2 * (load + dot)}
    published = 11 * (mode is OverflowMode.STREAM)
    assert recorded.size - plain.size <= 130 + (12 + published) * records


def test_no_store_stands_between_the_barrier_and_the_mma() -> None:
    """There, each cycle leaves the tensor cores idle; without scheduling, the loads' store does."""

    def stores_before_the_first_mma(schedule: bool) -> int:
        instructions = code(90, load=True, dot=True, schedule=schedule).instructions
        first = next(i for i, text in enumerate(instructions) if "HGMMA" in text)
        barrier = max(i for i in range(first) if instructions[i].startswith("BAR"))
        return sum("STG" in text for text in instructions[barrier:first])

    assert stores_before_the_first_mma(schedule=False) == 1
    assert stores_before_the_first_mma(schedule=True) == 0


@pytest.mark.parametrize("capability", CAPABILITIES if THOROUGH else (90,))
def test_without_recording_the_ranges_make_no_difference(capability: int) -> None:
    bare = code(capability, load=False, dot=False, mode=None)
    for load, dot in RECORDED:
        assert code(capability, load, dot, None).ptx_without_lines == bare.ptx_without_lines
