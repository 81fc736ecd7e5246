"""What ikp adds to compiled Gluon kernels, and what it must not: no GPU needed."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from triton import knobs

from ikp.backends.triton._hooks import names_in_code
from ikp.backends.triton._load_checks import unclosed
from ikp.core.abi import OverflowMode
from ikp.core.regions import region_id
from ikp.targets import ptx
from tests.backends.gluon import kernels
from tests.backends.gluon.compiling import compile_gluon, tile_type
from tests.backends.sass import CAPABILITIES, LOCAL_MEMORY, SYNCHRONISING, Code, spec
from tests.kernels.stripped import stripped

pytestmark = pytest.mark.compiled

RANGE, RUN_TIME_ID = 10, 12
"""SASS instructions that a range, and one of a run-time id, may cost in straight-line code."""
OUT_AND_N = {"out": "*i32", "n": "i32"}
TENSOR_CORES = ("HGMMA", "UTMALDG", "SYNCS", "WARPGROUP")
SPECIALISING = (90, 100)


@cache
def straight(records: int, kind: str, capability: int = 90, ring: bool = False) -> Code:
    constants = {"STORES": 8, "RECORDS": records, "KIND": kind}
    mode = OverflowMode.WRAP if ring else OverflowMode.STOP
    types = {"x": "*i32", "p": "i32"}
    return compile_gluon(kernels.straight, types, spec(mode), constants, capability)


@cache
def small(kernel: str, on: bool = True, capability: int = 90) -> Code:
    prof = spec() if on else None
    return compile_gluon(getattr(kernels, kernel), OUT_AND_N, prof, capability=capability)


@cache
def gemm(on: bool) -> Code:
    pytest.importorskip("torch")
    from examples import gemm_gluon as it

    types = {"left": tile_type(it.BM, it.BK), "right": tile_type(it.BK, it.BN), "out": "*fp16"}
    types |= {"N": "i32", "K": "i32"}
    return compile_gluon(
        it.gemm, types, spec() if on else None, {"STAGES": it.STAGES}, num_warps=it.WARPS
    )


def entry_of(code: Code) -> list[str]:
    """Return the lines of the kernel's body."""
    return code.ptx[code.ptx.index(".entry") :].split("\n")


@pytest.mark.parametrize(
    ("kind", "capability", "ring", "budget"),
    [
        *(("range", capability, False, RANGE) for capability in CAPABILITIES),
        ("range", 90, True, RANGE),
        ("payload", 90, False, RANGE),
        ("functional", 90, False, RANGE),
        ("instant", 90, False, RANGE),
        ("run-time id", 90, False, RUN_TIME_ID),
    ],
)
def test_a_record_costs_at_most_ten_instructions(
    kind: str, capability: int, ring: bool, budget: int
) -> None:
    one, eight = (straight(n, kind, capability, ring) for n in (1, 8))
    assert 0 < eight.size - one.size <= 7 * budget
    assert eight.ptx.count(ptx.STORE_MARK) == 8


@pytest.mark.parametrize(
    ("kernel", "capability"),
    [
        *(("control", capability) for capability in CAPABILITIES),
        *(("specialised", capability) for capability in SPECIALISING),
    ],
)
def test_recording_synchronises_nothing_and_uses_no_local_memory(
    kernel: str, capability: int
) -> None:
    recorded, off = (small(kernel, on, capability) for on in (True, False))
    unwanted = SYNCHRONISING + LOCAL_MEMORY
    assert recorded.count(unwanted) == off.count(unwanted)
    assert not recorded.count(LOCAL_MEMORY)


@pytest.mark.parametrize("kernel", ["control", "specialised"])
def test_off_is_the_kernel_without_ikp(
    kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # ptxas has been seen to choose registers by line numbers: leave them out.
    monkeypatch.setattr(knobs.compilation, "disable_line_info", True)
    plain = getattr(stripped(kernels, tmp_path), kernel)
    off = compile_gluon(getattr(kernels, kernel), OUT_AND_N)
    bare = compile_gluon(plain, OUT_AND_N)
    assert off.words == bare.words
    assert "ikp_" not in off.ptx


def test_every_place_where_a_verb_may_stand_has_its_record() -> None:
    found = names_in_code(small("control").ptx)
    expected = {"outer", "flight", "loop", "helper", "nested", "then", "while", "unrolled"}
    assert found == {region_id(name): name for name in expected}


@pytest.mark.parametrize(
    ("kernel", "names"), [("control", []), ("specialised", []), ("dropping", ["dropped"])]
)
def test_a_range_that_nothing_records_is_told(kernel: str, names: list[str]) -> None:
    told = list(unclosed(str(small(kernel).compiled.asm["ttgir"])))
    assert [text.split("'")[1] for text in told] == names
    assert all(f"opened at {kernels.__file__}:" in text for text in told)


@pytest.mark.parametrize("capability", SPECIALISING)
def test_workers_find_their_slots_set_up_at_the_entry(capability: int) -> None:
    code = small("specialised", True, capability)
    assert set(names_in_code(code.ptx).values()) == {"default", "one", "two"}
    lines = entry_of(code)
    declared = next(i for i, line in enumerate(lines) if ".reg .u32 ikp_cur" in line)
    first_branch = next(i for i, line in enumerate(lines) if re.search(r"\bbra\b|\bbrx\b", line))
    first_record = next(i for i, line in enumerate(lines) if ptx.STORE_MARK in line)
    assert declared < first_branch < first_record
    assert sum(".reg .u32 ikp_cur" in line for line in lines) == 1


@pytest.mark.parametrize("capability", SPECIALISING)
def test_every_exit_finishes(capability: int) -> None:
    lines = entry_of(small("specialised", True, capability))
    exits = [i for i, line in enumerate(lines) if re.match(r"\s*(?:@\S+\s+)?(?:ret|exit);", line)]
    assert exits
    for at in exits:
        assert "ikp_cur" in "".join(lines[at - 4 : at]), lines[at - 4 : at + 1]


def test_tensor_cores_and_tma_are_as_without_ikp() -> None:
    recorded, off = gemm(True), gemm(False)
    assert off.opcodes["HGMMA"] and off.opcodes["UTMALDG"]
    assert recorded.count(TENSOR_CORES) == off.count(TENSOR_CORES)
    unwanted = SYNCHRONISING + LOCAL_MEMORY
    assert recorded.count(unwanted) == off.count(unwanted)
    assert recorded.registers == off.registers
    assert recorded.opcodes["USETMAXREG"] == off.opcodes["USETMAXREG"]
    names = {"wait empty", "issue TMA", "wait full", "wgmma", "store", "producer", "consumer"}
    assert set(names_in_code(recorded.ptx).values()) == names
