"""Kernels whose warps are divided among partitions: they find theirs by a table of jumps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

import ikp
from ikp.backends.triton.unedited import _foreign as foreign
from ikp.core.abi import Language
from ikp.probes import kept_code
from ikp.ptx.marking import MarkedPtx, mark
from ikp.sass.dataflow.reading import read

pytest.importorskip("triton")
from tests.backends.gluon import kernels
from tests.backends.gluon.compiling import compile_gluon, tile_type
from tests.kernels import unedited_gluon

pytestmark = pytest.mark.compiled


def _gemm() -> Any:
    types = {"left": tile_type(128, 64), "right": tile_type(64, 128), "out": "*fp16"}
    types |= {"N": "i32", "K": "i32"}
    return compile_gluon(unedited_gluon.gemm, types, None, {"STAGES": 4}, num_warps=4)


def _two_workers() -> Any:
    return compile_gluon(kernels.specialised, {"out": "*i32", "n": "i32"})


CASES: dict[str, Callable[[], Any]] = {"gemm": _gemm, "two workers": _two_workers}
KEPT = ("BAR", "SYNCS", "USETMAXREG", "HGMMA", "WARPGROUP", "UTMALDG", "LDL", "STL", "BRX")


@cache
def plain(name: str) -> Any:
    return CASES[name]().compiled


@cache
def marked(name: str) -> MarkedPtx:
    made = plain(name)
    return mark(
        *(made.asm["ptx"], made.asm["cubin"], made.name, partial(foreign.assemble, made)),
        detail="ops",
        language=Language.GLUON,
        shared=made.metadata.shared,
    )


def opcodes(cubin: bytes) -> Counter[str]:
    (made,) = read(cubin)
    found = Counter(each.op for each in made.flow.code.instructions)
    return Counter({name: count for name, count in found.items() if name in KEPT})


def test_they_jump_by_a_table() -> None:
    assert "brx.idx" in plain("two workers").asm["ptx"]


@pytest.mark.parametrize("name", CASES)
def test_registers_are_still_passed_on_and_nothing_spills(name: str) -> None:
    """Where the assembler finds too few registers in a partition, it leaves out setmaxnreg."""
    before, after = opcodes(plain(name).asm["cubin"]), opcodes(marked(name).patch.cubin)
    assert before == after
    assert before["USETMAXREG"] > 2 and not before["STL"]


@pytest.mark.parametrize("name", CASES)
def test_ranges_of_all_partitions_hold_what_they_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    made = marked(name)
    path = kept_code.keep(made.patch, plain(name).name, made.text)
    (kernel,) = ikp.inspect(path).kernels
    assert not kernel.warnings
    assert {each.name for each in kernel.ranges} == {*made.patch.names[1:]}


def test_waits_and_products_of_all_partitions_are_named() -> None:
    names = {each.partition(" <")[0] for each in marked("gemm").patch.names}
    places = [each.partition(" producer()")[0] for each in names]
    assert {
        *("gemm", "loop @unedited_gluon.py:15", "loop @unedited_gluon.py:32"),
        *("mbarrier wait @unedited_gluon.py:18", "mbarrier wait @unedited_gluon.py:35"),
        *("TMA load @unedited_gluon.py:20", "wgmma x8 @unedited_gluon.py:36"),
        "wgmma wait @unedited_gluon.py:37",
    } <= {*places}
