"""Products are counted where they run once for each record, and nowhere else."""

from __future__ import annotations

import json

import pytest
import triton
import triton.language as tl

import ikp
from ikp.core.code_facts import CodeFacts
from ikp.core.excess_facts import ExcessFacts
from ikp.inspection import _images
from ikp.inspection._excess import Excess
from ikp.inspection.summary_of_code import code_facts
from ikp.plugins import Image
from ikp.probes.kept_code import MACHINE_MARK
from ikp.probes.patch import patch
from tests.backends.sass import compile_kernel, spec
from tests.inspection.compiled import image
from tests.products import one_by_one

pytestmark = pytest.mark.compiled

SIDE = 64
TYPES = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "n": "i32"}


@triton.jit
def products(a, b, c, n, prof, HOW: tl.constexpr, SIDE: tl.constexpr):
    """Sum n products of tiles, as ``HOW`` says: records and products under conditions, or not."""
    ikp.init(prof)
    at = tl.arange(0, SIDE)
    tile = at[:, None] * SIDE + at[None, :]
    acc = tl.zeros((SIDE, SIDE), tl.float32)
    for k in range(n):
        x = tl.load(a + tile + k * SIDE)
        y = tl.load(b + tile + k * SIDE)
        if HOW == "each":
            with ikp.range("dot", k):
                acc = tl.dot(x, y, acc)
        elif HOW == "each third":
            with ikp.range("dot", k, where=k % 3 == 0):
                acc = tl.dot(x, y, acc)
        elif HOW == "some":
            with ikp.range("dot", k):
                if tl.load(c + k) > 0:
                    acc = tl.dot(x, y, acc)
                    tl.store(c + k, 1.0)
        elif HOW == "several":
            with ikp.range("dot", k):
                for _ in range(k):
                    acc = tl.dot(x, y, acc)
    tl.store(c + tile, acc)


def facts(how: str, capability: int) -> CodeFacts:
    made = compile_kernel(
        products,
        TYPES,
        spec(),
        {"HOW": how, "SIDE": SIDE},
        capability,
        divisible=True,
        num_stages=1,
    )
    (found,) = code_facts(image(made)).values()
    return found


@pytest.mark.parametrize("capability", [80, 90])
def test_products_that_run_once_for_each_record_are_counted(capability: int) -> None:
    found = facts("each", capability)
    assert found.all_products
    assert found.ranges["dot"].flop == 2 * SIDE**3 // 4


@pytest.mark.parametrize(
    ("how", "capability"), one_by_one(["each third", "some", "several"], [90, 80])
)
def test_products_are_not_counted_where_records_do_not_say_how_often_they_ran(
    how: str, capability: int
) -> None:
    found = facts(how, capability)
    assert not found.all_products
    assert found.ranges["dot"].flop is None and found.ranges["dot"].activity == "mma"


@triton.jit
def loops(a, n, prof):
    """Record one range in a loop, and another one in two."""
    ikp.init(prof)
    for k in range(n):
        with ikp.range("here", k):
            tl.store(a + k, tl.load(a + k) + 1)
        with ikp.range("both", k):
            tl.store(a + k, tl.load(a + k) * 2)
    for k in range(n):
        with ikp.range("both", k):
            tl.store(a + k, tl.load(a + k) * 3)


def test_the_mask_of_a_loop_is_not_laid_to_a_range_of_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The records are of both, and the mask is of one: a causal attention has two such loops."""
    monkeypatch.setattr(Excess, "of", lambda *_: ExcessFacts(useful=3.0))
    made = compile_kernel(loops, {"a": "*fp32", "n": "i32"}, spec(), {}, 90)
    (found,) = code_facts(image(made)).values()
    assert found.ranges["here"].excess.useful == 3.0
    assert found.ranges["both"].excess.useful == -1.0


@triton.jit
def one(a, b, c, n, HOW: tl.constexpr, SIDE: tl.constexpr):
    """Multiply two tiles; or some blocks do, by a condition or as the others have returned."""
    at = tl.arange(0, SIDE)
    tile = at[:, None] * SIDE + at[None, :]
    if HOW == "returns":  # noqa: SIM102 - one is known when it is compiled, the other when it runs
        if tl.program_id(0) > n:
            return
    x = tl.load(a + tile)
    y = tl.load(b + tile)
    if HOW == "condition":
        if tl.program_id(0) > n:
            tl.store(c + tile, tl.dot(x, y))
    else:
        tl.store(c + tile, tl.dot(x, y))


@pytest.mark.any_pins  # as all that is told of machine code that was patched
@pytest.mark.parametrize(
    ("how", "capability"), one_by_one(["always", "returns", "condition"], [90, 80])
)
def test_a_kernels_own_products_are_counted_where_every_warp_runs_them(
    how: str, capability: int
) -> None:
    constants = {"HOW": how, "SIDE": SIDE}
    made = compile_kernel(one, TYPES, None, constants, capability, divisible=True)
    ptx = made.compiled.asm["ptx"]
    patched = patch(made.compiled.asm["cubin"], "one", ptx=ptx, detail="kernel", untested=True)
    said = json.dumps({"names": patched.names, "ours": patched.ours})
    (found,) = code_facts(Image(patched.cubin, f"{ptx}\n{MACHINE_MARK} {said}\n", "")).values()
    assert found.all_products == (how == "always")
    assert found.ranges["one"].flop == (2 * SIDE**3 // 4 if how == "always" else None)


@pytest.mark.any_pins
def test_of_a_cubin_with_a_patched_kernel_the_others_are_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A library's cubin may have thousands: to print and parse them takes a program 15 s."""
    made = compile_kernel(one, TYPES, None, {"HOW": "always", "SIDE": SIDE}, 90, divisible=True)
    patched = patch(made.compiled.asm["cubin"], "one", detail="kernel", untested=True)
    said = json.dumps({"names": patched.names, "ours": patched.ours})
    image = Image(patched.cubin, f"{MACHINE_MARK} {said}\n", "")
    whole = code_facts(image)
    monkeypatch.setattr(_images, "disassemble", lambda _: pytest.fail("the whole file is read"))
    assert code_facts(image) == whole
