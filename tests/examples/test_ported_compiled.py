"""The ported Triton and Gluon examples, compiled for Hopper: every range is in the machine code."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import pytest

from ikp.backends.triton._hooks import names_in_code
from tests.backends.gluon.compiling import compile_gluon, tile_type
from tests.backends.sass import LOCAL_MEMORY, SYNCHRONISING, compile_kernel, spec

pytestmark = pytest.mark.compiled

FLOATS = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}


@pytest.fixture
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the example, its kernels made for the compiler though there is no GPU."""
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    return import_module(f"examples.{request.param}")


@pytest.mark.parametrize("example", ["from_triton_distributed"], indirect=True)
def test_the_tilewise_copy(example: ModuleType) -> None:
    types = {"source": "*fp32", "target": "*fp32", "barrier": "*i32", "n": "i32"}
    constants = {"TILE": 4096, "WAIT": True}
    made, plain = (
        compile_kernel(example.copy_1d_tilewise, types, on, constants) for on in (spec(), None)
    )
    assert made.count(SYNCHRONISING) == plain.count(SYNCHRONISING)
    assert made.count(LOCAL_MEMORY) == {}
    assert made.size > plain.size
    assert names_in_code(made.ptx) == {}, "its regions are numbers, which the host names"


@pytest.mark.parametrize("example", ["from_sm_profiler"], indirect=True)
def test_the_quick_start(example: ModuleType) -> None:
    types = {"x": "*fp32", "out": "*fp32"}
    made = compile_kernel(example.my_kernel, types, spec(), {"STEPS": 64, "BLOCK": 1024})
    assert set(names_in_code(made.ptx).values()) == {"memory", "compute", "sync"}
    assert made.count(LOCAL_MEMORY) == {}


@pytest.mark.parametrize("example", ["from_proton"], indirect=True)
def test_the_vector_addition(example: ModuleType) -> None:
    made = compile_kernel(example.add_kernel, FLOATS, spec(), {"BLOCK": 1024})
    assert set(names_in_code(made.ptx).values()) == {"kernel", "load_and_add", "load_x", "load_y"}
    assert made.count(SYNCHRONISING) == made.count(LOCAL_MEMORY) == {}


@pytest.mark.parametrize("example", ["from_proton"], indirect=True)
def test_the_matmul(example: ModuleType) -> None:
    types = {
        "left": tile_type(example.BM, example.BK),
        "right": tile_type(example.BK, example.BN),
        "out": "*fp16",
        "N": "i32",
        "K": "i32",
    }
    constants = {"STAGES": example.STAGES}
    made, plain = (
        compile_gluon(example.matmul_kernel, types, on, constants) for on in (spec(), None)
    )
    assert set(names_in_code(made.ptx).values()) == {"issue TMA", "wait TMA", "wgmma", "store"}
    for opcode in ("HGMMA", "UTMALDG", "SYNCS"):
        assert made.opcodes[opcode] == plain.opcodes[opcode] > 0
    assert made.count(SYNCHRONISING) == plain.count(SYNCHRONISING)
    assert made.count(LOCAL_MEMORY) == {}
