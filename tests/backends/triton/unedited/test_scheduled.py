"""Marks after the compiler's scheduling: where pipelining has moved the operations."""

from __future__ import annotations

import re
from typing import Any

import pytest
import triton

from ikp.backends.triton import TritonBackend
from ikp.backends.triton._hooks import names_in_code
from ikp.backends.triton.unedited import _scheduled as scheduled
from ikp.core.abi import ClockKind
from ikp.errors import KernelError, UsageError
from ikp.targets.ptx import STORE_MARK
from ikp.unedited.plan import plan
from tests.backends.triton.unedited.compiling import FakeDriver, compiled
from tests.kernels import unedited

pytestmark = pytest.mark.compiled

OPTIONS = {"num_warps": 8, "num_stages": 3, "BM": 128, "BN": 128, "BK": 64}
UNCHANGED = (
    "wgmma.mma_async",
    "cp.async.cg",
    "wgmma.wait_group",
    "cp.async.wait_group",
    "bar.sync",
)


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.runtime.driver, "_active", FakeDriver())
    TritonBackend()


def matmul(**marks: Any) -> Any:
    import torch

    half = torch.zeros(16, dtype=torch.float16)
    args = (half, half, half, 512, 512, 512)
    return compiled(unedited.matmul, *args, marks=marks or None, **OPTIONS)


def names(code: Any) -> list[str]:
    return list(names_in_code(code.asm["ptx"]).values())


def kinds(code: Any) -> set[str]:
    return {name.partition(" @")[0] for name in names(code)}


@pytest.mark.parametrize(
    ("detail", "expected"),
    [
        ("kernel", {"matmul"}),
        ("loops", {"matmul", "for", "for iteration"}),
        (
            "ops",
            {
                *("matmul", "for", "for iteration", "async_copy_global_to_local", "async_wait"),
                *("warp_group_dot", "warp_group_dot_wait", "store"),
                "warp_group_dot_wait, async_wait",
            },
        ),
    ],
)
def test_a_pipelined_matmul(detail: str, expected: set[str]) -> None:
    plain, code = matmul(), matmul(detail=detail, level="scheduled")
    for instruction in UNCHANGED:
        assert plain.asm["ptx"].count(instruction) == code.asm["ptx"].count(instruction)
    assert plain.metadata.shared == code.metadata.shared
    assert kinds(code) == expected


def test_its_records_hold_64_bits_where_the_session_wants_them() -> None:
    import torch

    half = torch.zeros(16, dtype=torch.float16)
    args = (half, half, half, 512, 512, 512)
    marks = {"detail": "ops", "level": "scheduled"}
    narrow, wide = (
        compiled(unedited.matmul, *args, marks=marks, clock=clock, **OPTIONS).asm["ptx"]
        for clock in (ClockKind.CYCLES, ClockKind.CYCLES64)
    )
    assert wide.count(STORE_MARK) == narrow.count(STORE_MARK) > 3
    # The record of the whole kernel, which finish stores, has a mark of its own.
    assert wide.count("v2.b32 [a+16], {") == wide.count(STORE_MARK) + 1


def test_the_copies_of_a_load_are_named_by_its_line() -> None:
    source = matmul(detail="ops", level="source")
    (load,) = {name for name in names(source) if name.startswith("tl.load")} & {
        name for name in names(source) if name.endswith(_line(source, "a = tl.load"))
    }
    code = matmul(detail="ops", level="scheduled")
    place = load.partition(" ")[2]
    copies = [n for n in names(code) if n.startswith(f"async_copy_global_to_local {place}")]
    assert len(copies) == 3  # two in the prologue of a loop with three stages, one in the loop


def _line(code: Any, text: str) -> str:
    import inspect

    lines, first = inspect.getsourcelines(unedited.matmul.fn)
    return f":{next(first + i for i, line in enumerate(lines) if text in line)}"


def test_the_range_of_a_load_in_the_source_holds_no_copy() -> None:
    """What `level` is for: in a pipelined loop, the copies are elsewhere."""
    held = _held(matmul(detail="ops", level="source").asm["ttgir"])
    assert not any("async_copy" in line for name in held for line in held[name] if "load" in name)
    held = _held(matmul(detail="ops", level="scheduled").asm["ttgir"])
    copies = [name for name in held if name.startswith("async_copy_global_to_local")]
    assert len(copies) == 6
    assert all(any("ttg.async_copy" in line for line in held[name]) for name in copies)


def _held(text: str) -> dict[str, list[str]]:
    """Return the lines between the clock reads of each range, by its name."""
    lines = text.split("\n")
    starts: dict[str, int] = {}
    held = {}
    for at, line in enumerate(lines):
        if "elementwise_inline_asm" not in line:
            continue
        value = re.search(r"(%[\w#]+) =", line)
        stored = re.search(r"// ikp\.store \d+ \\22(.*?)\\22.*pure = false} (%[\w#]+)", line)
        if stored and stored[2] in starts:
            held[stored[1]] = lines[starts[stored[2]] + 1 : at]
        elif value:
            starts[value[1]] = at
    return held


def test_both_levels_have_their_own_entries_in_the_compile_cache() -> None:
    codes = [matmul(detail=d, level=v) for d in ("loops", "ops") for v in ("source", "scheduled")]
    assert len({code.hash for code in codes}) == 4
    assert all(scheduled.MARK not in code.asm["ptx"] for code in codes)


def test_whiles_and_branches() -> None:
    import torch

    x = torch.zeros(64)
    marks = {"detail": "ops", "level": "scheduled"}
    code = compiled(unedited.several, x, x, 4, marks=marks, BLOCK=64)
    assert {"while", "while iteration", "for", "for iteration", "load", "store"} <= kinds(code)


def test_a_hook_that_the_program_sets_later_is_kept() -> None:
    from ikp.backends.triton import _hooks as hooks

    seen: list[Any] = []

    def theirs(*args: Any, **kwargs: Any) -> Any:
        if not args and not kwargs:
            return ("theirs", "theirs")
        seen.append(args)
        return None

    before = triton.knobs.runtime.add_stages_inspection_hook
    triton.knobs.runtime.add_stages_inspection_hook = theirs
    try:
        hooks.install()  # as each launch of a marked kernel does
        triton.knobs.compilation.always_compile = True
        unedited.matmul.ikp_twins.clear() if hasattr(unedited.matmul, "ikp_twins") else None
        assert "for iteration" in kinds(matmul(detail="loops", level="scheduled"))
    finally:
        triton.knobs.compilation.always_compile = False
        triton.knobs.runtime.add_stages_inspection_hook = before
    assert seen


def test_lines_are_chosen_in_the_source_only() -> None:
    with pytest.raises(UsageError, match="lines are chosen in the source"):
        plan(lines="1-2", level="scheduled")


def test_ir_without_a_recording_is_refused() -> None:
    line = f'    %0 = tt.elementwise_inline_asm "{scheduled.MARK} ops\\0A" {{}} -> i32'
    with pytest.raises(KernelError, match=r"no recording: ikp\.init is missing"):
        scheduled.rewrite(f"  tt.func public @f() {{\n{line}\n  }}")
