"""What the plugin's C++ verbs cost: nvcc's machine code, for GPUs that need not be there."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from ikp.core.abi import ClockKind, OverflowMode
from ikp.core.segment import Spec
from tests.plugins.kernels import ARCHS, MODES, NEEDS_NVCC, SOURCE, repeated
from tests.products import pairwise

pytestmark = pytest.mark.any_pins
opcodes = pytest.importorskip("tests.backends.opcodes", reason="triton brings cuobjdump")


@NEEDS_NVCC
@ARCHS
@MODES
def test_machine_code_has_no_synchronisation_and_no_local_memory(
    build: Any, arch: str, mode: OverflowMode
) -> None:
    from tests.backends.sass import LOCAL_MEMORY, SYNCHRONISING

    found = Counter(opcodes.names(build(SOURCE, arch, spec=Spec(overflow=mode))))
    assert found["STG"] > 10
    assert {name: found[name] for name in (*SYNCHRONISING, *LOCAL_MEMORY) if found[name]} == {}


@NEEDS_NVCC
@pytest.mark.parametrize(
    ("arch", "mode", "clock"),
    pairwise(["sm_80", "sm_90a"], OverflowMode, [ClockKind.CYCLES, ClockKind.CYCLES64]),
)
def test_a_range_costs_at_most_so_many_instructions(
    build: Any, arch: str, mode: OverflowMode, clock: ClockKind
) -> None:
    budget = 10 if clock is ClockKind.CYCLES else 13
    spec = Spec(overflow=mode, clock=clock)
    few, many = (len(opcodes.words_of(build(repeated(n), arch, spec=spec))) for n in (8, 24))
    stores = 1  # the kernel's own
    assert (many - few) / 16 - stores <= budget


@NEEDS_NVCC
@ARCHS
def test_off_is_the_kernel_without_ikp(build: Any, arch: str) -> None:
    off = repeated(3)
    plain = re.sub(r"#include.*|ikp::(?:Range|init|finish).*?;", "", off)
    plain = plain.replace("ikp::Prof prof", "ulonglong2 prof")
    assert "ikp" not in plain
    assert opcodes.words_of(build(off, arch)) == opcodes.words_of(build(plain, arch))
