"""Totals in Gluon kernels: worker partitions have theirs, and nothing is stored on the way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ikp.backends.triton._hooks import names_in_code
from ikp.core.regions import region_id
from ikp.targets import ptx_totals
from tests.backends.gluon import kernels
from tests.backends.gluon.compiling import compile_gluon
from tests.backends.sass import CAPABILITIES, LOCAL_MEMORY, SYNCHRONISING, Code, spec

pytestmark = pytest.mark.compiled

PAIR = 6
OUT_AND_N = {"out": "*i32", "n": "i32"}
SUMMED = replace(spec(), totals=True)


def straight(records: int, kind: str, capability: int) -> Code:
    constants = {"STORES": 8, "RECORDS": records, "KIND": kind}
    types = {"x": "*i32", "p": "i32"}
    return compile_gluon(kernels.straight, types, SUMMED, constants, capability)


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("kind", ["range", "functional"])
def test_a_range_costs_six_instructions_and_no_store(kind: str, capability: int) -> None:
    one, eight = (straight(n, kind, capability) for n in (1, 8))
    assert 0 < eight.size - one.size <= 7 * PAIR
    assert eight.opcodes["STG"] == one.opcodes["STG"]
    assert not eight.count(LOCAL_MEMORY)


def test_every_place_of_a_verb_compiles() -> None:
    names = {"outer", "flight", "loop", "helper", "nested", "then", "while", "unrolled"}
    summed, off = (compile_gluon(kernels.control, OUT_AND_N, prof) for prof in (SUMMED, None))
    assert set(names_in_code(summed.ptx).values()) == names
    assert {each.region for each in ptx_totals.used(summed.ptx)} == {*map(region_id, names)}
    assert summed.count(SYNCHRONISING) == off.count(SYNCHRONISING)
    assert not summed.count(LOCAL_MEMORY)


@pytest.mark.parametrize("capability", [90, 100])
def test_worker_warps_write_their_totals_at_their_exits(capability: int) -> None:
    code = compile_gluon(kernels.specialised, OUT_AND_N, SUMMED, capability=capability)
    names = ("default", "one", "two")
    body = code.ptx[code.ptx.index(".entry") :]
    assert {each.region for each in ptx_totals.used(body)} == {*map(region_id, names)}
    exits = body.count("ret;")
    for name in names:
        register = f"ikp_count_{region_id(name)}"
        declared = body.index(f".reg .u32 {register};")
        assert declared < body.index(f"add.u32 {register}")
        assert body.count(f"high, {register}}};") == exits >= 1
    assert not code.count(LOCAL_MEMORY)
