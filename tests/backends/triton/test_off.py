"""``prof=None`` gives the machine code of a kernel that never heard of ikp."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from triton import knobs

from tests.backends.sass import CAPABILITIES, compile_kernel, spec
from tests.kernels import control, gemm, straight
from tests.kernels.stripped import stripped
from tests.products import THOROUGH

pytestmark = pytest.mark.compiled

OUT_AND_N = {"out": "*i32", "n": "i32"}
GEMM = {"LOAD": True, "DOT": True, **gemm.TILES}
CASES: list[tuple[ModuleType, str, dict[str, str], dict[str, Any], dict[str, int]]] = [
    (control, "nested", OUT_AND_N, {}, {}),
    (control, "functional", OUT_AND_N, {}, {}),
    (control, "overlapping", OUT_AND_N, {}, {"num_warps": 1}),
    (control, "sentinel", OUT_AND_N, {}, {}),
    (control, "early_return", OUT_AND_N, {}, {}),
    (control, "payloads", {"ints": "*i32", "floats": "*fp32"}, {}, {}),
    (gemm, "gemm", gemm.TYPES, GEMM, gemm.OPTIONS),
    *(
        (
            straight,
            "straight",
            {"x": "*i32", "p": "i32"},
            {"STORES": 8, "RECORDS": 8, "KIND": kind},
            {},
        )
        for kind in ("range", "functional", "run-time id", "instant", "end")
    ),
]

EVERYWHERE = ("nested", "gemm")
"""What is compiled for every GPU: nothing of a kernel without records depends on which."""


@pytest.fixture(autouse=True)
def without_line_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave them out: ptxas has been seen to choose registers by line numbers."""
    monkeypatch.setattr(knobs.compilation, "disable_line_info", True)


@pytest.mark.parametrize(
    ("module", "name", "types", "constants", "options", "capability"),
    [
        pytest.param(*case, capability, id=f"{case[1]} {case[3].get('KIND', '')} sm_{capability}")
        for case in CASES
        for capability in (CAPABILITIES if case[1] in EVERYWHERE or THOROUGH else (90,))
    ],
)
def test_off_is_the_kernel_without_ikp(
    module: ModuleType,
    name: str,
    types: dict[str, str],
    constants: dict[str, Any],
    options: dict[str, int],
    capability: int,
    tmp_path: Path,
) -> None:
    kernel = getattr(module, name)
    bare = getattr(stripped(module, tmp_path), name)
    off = compile_kernel(kernel, types, None, constants, capability, divisible=True, **options)
    plain = compile_kernel(bare, types, None, constants, capability, divisible=True, **options)
    assert off.ptx_without_lines == plain.ptx_without_lines
    if off.words != plain.words:
        # ptxas for sm_100 now and then gives the same text other registers.
        assert capability >= 100
        assert off.names == plain.names
    assert "ikp" not in off.ptx_without_lines
    assert off.shared == plain.shared
    if capability == 90:
        on = compile_kernel(kernel, types, spec(), constants, 90, divisible=True, **options)
        assert on.size > off.size + 50


def test_the_stripped_source_still_does_the_work(tmp_path: Path) -> None:
    source = (Path(stripped(control, tmp_path).__file__ or "")).read_text()
    assert "tl.store(out + pid, x)" in source
    assert "x = timed(x, i)" in source
    assert "while k > 0:\n        k -= 2" in source
    assert "prof" not in source
