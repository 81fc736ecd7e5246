"""Conditions and indices in CuTe kernels."""

from __future__ import annotations

from dataclasses import replace

import cutlass
import pytest
from cutlass import Float32, Int32, cute

import ikp
from ikp.backends.triton._hooks import names_in_code
from ikp.core.abi import OverflowMode
from tests.backends.cute import kernels
from tests.backends.cute.compiling import TARGETS, compile_cute, floats, number, prof
from tests.backends.sass import LOCAL_MEMORY, SYNCHRONISING, Code, spec

pytestmark = pytest.mark.compiled


@cute.kernel
def ring_with_index(g: cute.Tensor, n: Int32, prof):
    ikp.init(prof)
    ikp.instant("x", index=n)


@cute.kernel
def float_condition(g: cute.Tensor, n: Int32, prof):
    ikp.init(prof)
    with ikp.range("x", where=Float32(n)):
        g[0] = Float32(n)


@cute.kernel
def wide_index(g: cute.Tensor, n: Int32, prof):
    ikp.init(prof)
    ikp.instant("x", index=cutlass.Int64(n))


@cute.kernel
def numbered_role(g: cute.Tensor, n: Int32, prof):
    ikp.init(prof)
    ikp.role(n)


WRONG = {
    ring_with_index: "an index means nothing",
    float_condition: "must be one boolean or integer",
    wide_index: "must be one integer",
    numbered_role: "ikp.role needs a name",
}


def compiled(target: str, **changes: object) -> Code:
    made = replace(spec(), **changes)  # type: ignore[arg-type]
    return compile_cute(
        kernels.launch, kernels.choices, floats(), number(), prof(made), target=target
    )


@pytest.mark.parametrize("kernel", WRONG, ids=lambda kernel: kernel.__name__)
def test_a_wrong_choice_is_refused(kernel: object) -> None:
    mode = OverflowMode.WRAP if kernel is ring_with_index else OverflowMode.STOP
    with pytest.raises(Exception, match=WRONG[kernel]):
        compile_cute(kernels.launch, kernel, floats(), number(), prof(spec(mode)))


@pytest.mark.parametrize("target", TARGETS)
def test_choices_neither_synchronise_nor_spill(target: str) -> None:
    code = compiled(target)
    assert set(names_in_code(code.ptx).values()) == {"first warp", "third", "down", "always"}
    assert code.count(SYNCHRONISING) == code.count(LOCAL_MEMORY) == {}


@pytest.mark.parametrize("target", TARGETS)
def test_a_kernel_compiled_to_choose_reads_the_choice_and_nothing_else(target: str) -> None:
    code = compiled(target, select=True)
    assert code.count(SYNCHRONISING) == code.count(LOCAL_MEMORY) == {}
    assert code.ptx.count("ld.global.v4.b32") == 1
