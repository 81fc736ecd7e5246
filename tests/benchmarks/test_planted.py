"""The planted kernels compute the same with their fault and without, and compile as they are meant.

What only a GPU can show, how long they take, benchmarks/planted.py measures. It does so with the
newest versions: what these kernels are with the oldest ones says nothing of ikp.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import ikp
from benchmarks.planted import CASES, ROOT

PLANTED = ROOT / "tests" / "kernels" / "planted"
INTERPRETED = ("tail", "slow_block", "imbalance", "uncoalesced", "launches", "occupancy")
FAULTY = pytest.mark.parametrize("faulty", [True, False], ids=["faulty", "repaired"])
GLUON: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "slow_producer": (
        "paged",
        {"rows": (64, 128), "words": (256, 128), "table": "*i32"},
        {"PAGES": 64},
    ),
    "slow_consumer": ("norms", {"rows": (64, 128), "power": "fp32"}, {"STEPS": 64}),
    "serial_wgmma": ("normalisers", {"queries": (128, 128), "keys": (64, 128)}, {"STEPS": 64}),
    "epilogue": (
        "vocabulary",
        {"rows": (64, 64), "words": (256, 64)},
        {"ROWS": 2048, "DEPTH": 256},
    ),
}
"""The kernel of each case, its operands (shapes: tiles by TMA), and what both twins are told."""
TWINS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "slow_producer": ({"LEVELS": 8}, {"LEVELS": 1}),
    "slow_consumer": ({"GENERAL": True}, {"GENERAL": False}),
    "serial_wgmma": ({"AHEAD": False}, {"AHEAD": True}),
    "epilogue": ({"TEAMS": 1}, {"TEAMS": 2}),
}


pytestmark = pytest.mark.any_pins


def planted(name: str) -> Any:
    return import_module(f"tests.kernels.planted.{name}")


def test_there_is_a_file_for_each_case() -> None:
    found = {path.stem for path in PLANTED.glob("*.py") if "def prepare" in path.read_text()}
    assert found == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_no_name_in_a_trace_gives_the_cause_away(name: str) -> None:
    source = (PLANTED / f"{name}.py").read_text()
    (cause,) = re.findall(r'^LANGUAGE, EXPECTED = "[^"]+", "([^"]+)"', source, re.MULTILINE)
    names = re.findall(r'ikp\.(?:range|role)\("([^"]+)"', source)
    names += re.findall(r"@(?:triton|gluon|cute)\.(?:jit|kernel)\ndef (\w+)", source)
    assert names or name == "stages"
    words = set(re.findall(r"\w{5,}", cause)) - {"loads"}  # what every role that loads is called
    assert not [word for word in words if word in " ".join(names)]


@pytest.mark.interp
@FAULTY
@pytest.mark.parametrize("name", INTERPRETED)
def test_both_twins_compute_the_same(name: str, faulty: bool) -> None:
    case = planted(name).prepare(faulty)
    case.check()
    with ikp.profile() as prof:
        case.run(lambda: prof.buffer("kernel", **case.recorded))
    assert all(launch.kept and not launch.dropped for launch in prof.trace.launches)


@pytest.mark.compiled
@FAULTY
@pytest.mark.parametrize("name", GLUON)
def test_gluon_twins_compile_for_hopper(name: str, faulty: bool) -> None:
    from tests.backends.gluon.compiling import compile_gluon, tile_type
    from tests.backends.sass import LOCAL_MEMORY, spec

    kernel, operands, constants = GLUON[name]
    types = {k: v if isinstance(v, str) else tile_type(*v) for k, v in operands.items()}
    constants = {"STAGES": 4, **constants, **TWINS[name][not faulty]}
    function = getattr(planted(name), kernel)
    code = compile_gluon(function, {**types, "out": "*fp32"}, spec(), constants, num_warps=4)
    assert not code.count(LOCAL_MEMORY)
    assert code.opcodes["UTMALDG"]


@pytest.mark.compiled
def test_registers_are_what_limits_occupancy() -> None:
    from tests.backends.sass import compile_kernel, spec

    floats = dict.fromkeys(("weights", "values", "out"), "*fp32")
    sizes = {"HOPS": 200, "BLOCK": 128, "WIDTH": 128, "PART": 8}
    faulty, repaired = (
        compile_kernel(
            planted("occupancy").follow,
            {"links": "*i32", **floats},
            spec(),
            {"EARLY": early, **sizes},
            divisible=True,
            num_warps=4,
        )
        for early in (True, False)
    )
    assert faulty.allocated > 3 * repaired.allocated
    assert faulty.shared == repaired.shared


@pytest.mark.compiled
@FAULTY
def test_cute_twins_compile_for_hopper(faulty: bool) -> None:
    pytest.importorskip("cutlass")
    from cutlass import Float16, Float32
    from cutlass.cute.runtime import make_fake_compact_tensor

    from tests.backends.cute.compiling import compile_cute, prof
    from tests.backends.sass import LOCAL_MEMORY

    rows = make_fake_compact_tensor(Float32, (32, 16, 132))
    squares = make_fake_compact_tensor(Float32, (32, 32, 8, 132))
    gemm = planted("stages").gemm_cute
    matrices = [
        make_fake_compact_tensor(Float16, shape, stride_order=order, assumed_align=16)
        for shape, order in (
            ((16896, 2048), (1, 0)),
            ((1024, 2048), (0, 1)),
            ((16896, 1024), (1, 0)),
        )
    ]
    with mock.patch.object(gemm, "STAGES", 2 if faulty else gemm.STAGES):
        codes = [
            compile_cute(planted("skew").launch, rows, rows, not faulty, prof()),
            compile_cute(planted("conflicts").launch, squares, squares, 33 - faulty, prof()),
            compile_cute(gemm.matmul, *matrices, 132, prof()),
        ]
    assert not any(code.count(LOCAL_MEMORY) for code in codes)
    assert codes[1].opcodes["LDS"] == codes[1].opcodes["STS"] == 32  # one word at a time


def test_an_unknown_case_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from benchmarks import planted as driver

    with mock.patch("sys.argv", ["planted.py", str(tmp_path), "no"]), pytest.raises(SystemExit):
        driver.main()
    assert "no such case: no" in capsys.readouterr().err
