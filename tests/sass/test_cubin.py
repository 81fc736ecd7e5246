"""What is told of a cubin and its kernels."""

from __future__ import annotations

import pytest

from ikp.errors import PatchError
from ikp.sass.cubins.attributes import Parameter
from ikp.sass.cubins.cubin import Cubin
from tests.sass.assembled import cubin as assembled
from tests.sass.module import CHIPS, KERNELS, cubin

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]


@pytest.mark.parametrize("chip", CHIPS)
def test_kernels(chip: str) -> None:
    made = Cubin.read(cubin(chip))
    assert f"sm_{made.sm}{made.suffix}" == chip.removesuffix(" old")
    assert (made.elf.abi == 7) == (chip == "sm_90a old") or chip == "sm_80"
    assert set(made.kernels) == set(KERNELS)
    for kernel in made.kernels.values():
        assert kernel.entry and 8 <= kernel.registers <= 64
        assert len(kernel.words) % 8 == 0
    assert made.kernel("loop").parameters == [Parameter(0, 0, 8), Parameter(1, 8, 4)]
    assert any("mix" in each.name for each in made.kernel("calls").functions)


def test_parameters_of_very_many_bytes_are_told_in_another_form() -> None:
    body = "{ .reg .u64 a; ld.param.u64 a, [s]; st.global.u64 [a], a; ret; }"
    ptx = f".visible .entry k(.param .align 8 .b8 s[20008], .param .u32 n_) {body}"
    parameters = Cubin.read(assembled(ptx, "sm_90a")).kernel("k").parameters
    assert parameters == [Parameter(0, 0, 20008), Parameter(1, 20008, 4)]


def test_unchanged_is_the_same() -> None:
    assert Cubin.read(cubin()).write() == cubin()


def test_an_elf_file_for_something_else_is_refused() -> None:
    data = bytearray(cubin())
    data[18] = 62
    with pytest.raises(PatchError, match="machine 62"):
        Cubin.read(bytes(data))
    data = bytearray(cubin())
    data[8] = 9
    with pytest.raises(PatchError, match="ABI 9"):
        Cubin.read(bytes(data))
