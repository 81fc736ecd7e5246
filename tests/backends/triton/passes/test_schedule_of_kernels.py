"""The scheduling pass on PTX that Triton made: valid, and no work leaves or enters a range."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from typing import Any

import pytest

from ikp.backends.triton._hooks import names_in_code
from ikp.backends.triton.passes.schedule import schedule
from ikp.core.abi import OverflowMode
from ikp.ptx.record_insertion import held_back
from ikp.targets.ptx_slot import SCHEDULE_MARK
from tests.backends.sass import compile_kernel, spec
from tests.kernels import assembly, control, gemm, straight
from tests.machines.ptx_order import Line, check_rearranged, empty_ranges, parse

pytestmark = pytest.mark.compiled

OUT_AND_N = {"out": "*i32", "n": "i32"}
BOTH = {"LOAD": True, "DOT": True, **gemm.TILES}
CASES: dict[str, tuple[Any, dict[str, str], dict[str, Any], int, dict[str, int]]] = {
    "nested": (control.nested, OUT_AND_N, {}, 90, {}),
    "functional": (control.functional, OUT_AND_N, {}, 90, {}),
    "overlapping": (control.overlapping, OUT_AND_N, {}, 80, {}),
    "gemm sm_80": (gemm.gemm, gemm.TYPES, BOTH, 80, gemm.OPTIONS),
    "gemm sm_90": (gemm.gemm, gemm.TYPES, BOTH, 90, gemm.OPTIONS),
    "unrolled": (
        straight.straight,
        {"x": "*i32", "p": "i32"},
        {"STORES": 40, "RECORDS": 40, "KIND": "payload"},
        90,
        {},
    ),
}


@cache
def texts(name: str) -> tuple[str, str]:
    """Return a kernel's PTX as the pass takes it, with its mark, and scheduled."""
    kernel, types, constants, capability, options = CASES[name]
    arguments = (kernel, types, spec(OverflowMode.STOP, schedule=False), constants, capability)
    bare = compile_kernel(*arguments, divisible=True, **options).ptx
    bare = "\n".join(line for line in bare.split("\n") if HELD not in line)  # comes afterwards
    assert SCHEDULE_MARK not in bare
    marked = f"{SCHEDULE_MARK}\n{bare}"
    return marked, schedule(marked)


HELD = "bar.warp.sync 0xffffffff;"
KERNELS = pytest.mark.parametrize("name", CASES)


@KERNELS
def test_the_order_stays_valid(name: str) -> None:
    before, after = texts(name)
    assert check_rearranged(before, after), "nothing was moved"
    assert empty_ranges(after) <= empty_ranges(before)
    assert names_in_code(after) == names_in_code(before)


def instructions(ptx: str) -> list[str]:
    """Return what the machine sees: line numbers differ, for LLVM counts the assembly's lines."""
    return [line.text for line in parse(ptx) if not line.is_note and not line.is_store] + [
        "\n".join(text for text in line.text.split("\n") if ".loc" not in text)
        for line in parse(ptx)
        if line.is_store
    ]


@KERNELS
def test_it_is_what_the_compiler_hook_does(name: str) -> None:
    kernel, types, constants, capability, options = CASES[name]
    compiled = compile_kernel(
        kernel, types, spec(), constants, capability, divisible=True, **options
    )
    _, after = texts(name)
    assert instructions(compiled.ptx) == instructions(held_back(after))


FLOAT = re.compile(r"\.(?:f|bf|tf|e4m3|e5m2)\d*")
WORK = {"ld", "st", "atom", "red", "bar", "barrier", "mma", "wgmma", "cp", "fence", "membar",
        "vote", "ldmatrix", "stmatrix", "mbarrier", "elect", "nanosleep"}  # fmt: skip


def is_work(line: Line) -> bool:
    """Whether a line touches memory, waits, computes with floats or on tensor cores.

    The fence before a group of MMAs does nothing of it, and what a shuffle is depends on its use.
    """
    return not any(opcode.startswith("wgmma.fence") for opcode in line.opcodes) and any(
        opcode.split(".")[0] in WORK or FLOAT.search(f".{opcode.partition('.')[2]}")
        for opcode in line.opcodes
    )


@KERNELS
def test_clocks_pass_integer_arithmetic_only(name: str) -> None:
    passed = [later for first, later in check_rearranged(*texts(name)) if first.is_clock]
    assert [line.text for line in passed if is_work(line) or line.border] == []


def feeds(lines: list[Line]) -> dict[str, list[Line]]:
    readers = defaultdict(list)
    for line in lines:
        for register in line.reads:
            readers[register].append(line)
    return readers


def data_uses(line: Line, readers: dict[str, list[Line]]) -> list[str]:
    """Return where results of integer arithmetic end up as data, followed through arithmetic."""
    found, seen, work = [], set(), [line]
    while work:
        made = work.pop()
        for register in made.writes - seen:
            seen.add(register)
            for user in readers[register]:
                bare = re.sub(r"\[[^\]]*\]", "", user.text)
                if user.opcodes[0].startswith(("wgmma.mma", "cp.async", "mbarrier")):
                    bare = "".join(re.findall(r"\{[^}]*\}", user.text))
                used = re.search(re.escape(register) + r"\b", bare) is not None
                if used and (is_work(user) or user.is_store):
                    found.append(user.text)
                elif not is_work(user) and not user.border:
                    work.append(user)
    return found


@KERNELS
def test_clocks_pass_nothing_that_yields_data(name: str) -> None:
    before, after = texts(name)
    readers = feeds([line for line in parse(before) if not line.is_note])
    passed = [later for first, later in check_rearranged(before, after) if first.is_clock]
    assert {line.text: uses for line in passed if (uses := data_uses(line, readers))} == {}


@pytest.mark.parametrize("name", ["gemm sm_90", "gemm sm_80"])
def test_the_loops_stores_stand_at_its_end(name: str) -> None:
    lines = [line for line in parse(texts(name)[1]) if not line.is_note]
    stores = [at for at, line in enumerate(lines) if line.is_store]
    assert len(stores) == 2
    assert stores[1] == stores[0] + 1
    rest = lines[stores[1] + 1 :]
    tail = rest[: next(at for at, line in enumerate(rest) if line.border)]
    assert not any(is_work(line) for line in tail)


@pytest.mark.parametrize("capability", [80, 90])
def test_assembly_by_hand_is_left_alone(capability: int) -> None:
    """A statement on two lines is not parted, a branch beside others is seen, barriers stay."""
    for schedule_it in (True, False):
        on = spec(schedule=schedule_it)
        made = compile_kernel(assembly.by_hand, assembly.TYPES, on, capability=capability)
        assert made.opcodes["BAR"] == 4
        assert set(names_in_code(made.ptx).values()) == {"first", "second", "meet", "third"}
