"""Totals in CuTe kernels: declared by init, which is traced before they are known."""

from __future__ import annotations

import re
from dataclasses import replace

import cutlass
import pytest
from cutlass import Float32, Int32, cute

import ikp
from ikp.backends.triton._hooks import names_in_code
from ikp.core.abi import Kind
from ikp.core.regions import region_id
from ikp.targets import ptx_slot, ptx_totals
from ikp.targets.ptx_totals import Counter
from tests.backends.cute import kernels
from tests.backends.cute.compiling import TARGETS, compile_cute, floats, number, prof
from tests.backends.sass import LOCAL_MEMORY, SYNCHRONISING, Code, spec

pytestmark = pytest.mark.compiled

PAIR = 6
SUMMED = replace(spec(), totals=True)


@cute.jit
def helper(g: cute.Tensor, at: Int32):
    with ikp.range("helper", 1.5):
        g[at] = g[at] * Float32(3.0)


@cute.kernel
def control(g: cute.Tensor, n: Int32, prof):
    """Verbs in loops, branches and helpers, conditions, tokens, and a finish in each role."""
    ctx = ikp.init(prof)
    at, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(at // 32)
    token = ikp.start_async(ctx, "flight", 0)
    if warp == 0:
        for i in cutlass.range(n, unroll=1):
            with ikp.range("loop", i, where=i % 2 == 0):
                helper(g, at)
            ikp.instant("tick", i)
            ctx = ikp.end_async(ctx, token)
            token = ikp.start_async(ctx, "flight", i)
        ikp.finish()
    else:
        with ikp.range("else"):
            g[at] = g[at] + Float32(7.0)
        ikp.finish()


@cute.kernel
def placed(g: cute.Tensor, n: Int32, prof):
    ikp.init(prof)
    ikp.instant("x", index=n)


@cute.kernel
def numbered(g: cute.Tensor, n: Int32, prof):
    ikp.init(prof)
    with ikp.range(n):
        g[0] = Float32(n)


def launched(kernel: object, target: str = "sm_90a", *, on: bool = True) -> Code:
    arguments = (kernel, floats(), number(), prof(SUMMED) if on else None)
    return compile_cute(kernels.launch, *arguments, target=target)


@pytest.mark.parametrize("target", TARGETS)
def test_a_range_costs_six_instructions_and_no_store(target: str) -> None:
    one, eight = (
        compile_cute(
            kernels.launch_straight, floats(), number(), prof(SUMMED), "range", n, target=target
        )
        for n in (1, 8)
    )
    assert 0 < eight.size - one.size <= 7 * PAIR
    assert eight.opcodes["STG"] == one.opcodes["STG"]
    assert not eight.count(LOCAL_MEMORY)


@pytest.mark.parametrize("target", TARGETS)
def test_init_declares_what_comes_after_it(target: str) -> None:
    code = launched(control, target)
    ranges = [Counter(Kind.RANGE, region_id(name)) for name in ("flight", "helper", "loop", "else")]
    wanted = {*ranges, Counter(Kind.INSTANT, region_id("tick"))}
    assert set(ptx_totals.used(code.ptx)) == wanted
    init = code.ptx.index(ptx_slot.INIT_MARK)
    for counter in wanted:
        (declared,) = re.finditer(rf"\.reg \.u32 {counter.count};", code.ptx)
        assert init < declared.start() < code.ptx.index(f"add.u32 {counter.count}")
    assert names_in_code(code.ptx) == {
        region_id(name): name for name in ("flight", "helper", "loop", "else", "tick")
    }
    off = launched(control, target, on=False)
    assert code.count(SYNCHRONISING) == off.count(SYNCHRONISING)
    assert not code.count(LOCAL_MEMORY)


def test_each_finish_writes_all_that_its_warps_can_have_counted() -> None:
    text = launched(control).ptx
    places = [match.start() for match in re.finditer(re.escape(ptx_slot.FINISH_MARK), text)]
    blocks = [text[at : text.index("// ikp.end", at)] for at in places]
    for block in blocks:
        written = {counter.region for counter in ptx_totals.used(block)}
        role = "loop" if region_id("loop") in written else "else"
        assert region_id(role) in written
    assert any(region_id("else") in {c.region for c in ptx_totals.used(b)} for b in blocks)
    assert any(region_id("loop") in {c.region for c in ptx_totals.used(b)} for b in blocks)


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_warp_specialised_roles(target: str) -> None:
    made = kernels.Roles(2)
    summed, off = (
        compile_cute(made, floats(), number(), buffer, target=target)
        for buffer in (prof(SUMMED), None)
    )
    assert summed.opcodes["USETMAXREG"] == off.opcodes["USETMAXREG"] == 2
    kept = SYNCHRONISING + LOCAL_MEMORY
    assert summed.count(kept) == off.count(kept)
    names = ("produce", "consume", "step")
    assert {each.region for each in ptx_totals.used(summed.ptx)} == {*map(region_id, names)}


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (placed, "gives an index, but the session keeps totals"),
        (numbered, "known only at run time, but the session keeps totals"),
    ],
)
def test_what_registers_can_not_hold_is_refused(kernel: object, message: str) -> None:
    with pytest.raises(Exception, match=message):
        launched(kernel)
