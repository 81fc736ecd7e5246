"""Scalar registers for ikp: after the kernel's own, and what happens where there is no room."""

from __future__ import annotations

import re

import pytest

from ikp.errors import KernelError
from ikp_amd._registers import LIMIT, MOST, NAMES, reserve

pytestmark = pytest.mark.any_pins

TEXT = """k:
\ts_add_u32 s[ikp_cur], s[ikp_cur], 1
\ts_endpgm
\t.amdhsa_next_free_sgpr {free}
    .sgpr_count:     {count}
"""


def kernel(free: int | str) -> str:
    return TEXT.format(free=free, count=free + 6 if isinstance(free, int) else 0)


def never(registers: int) -> str:
    raise AssertionError(registers)


@pytest.mark.parametrize("free", [0, 17, 18, 93, 94])
def test_they_follow_the_kernels_own_from_an_even_one_on(free: int) -> None:
    text = reserve(kernel(free), never)
    numbers = [int(n) for n in re.findall(r"\.set ikp_\w+, (\d+)", text)]
    first = free + free % 2
    assert numbers == list(range(first, first + len(NAMES)))
    assert f".amdhsa_next_free_sgpr {numbers[-1] + 1}\n" in text
    assert f".sgpr_count:     {numbers[-1] + 7}\n" in text


@pytest.mark.parametrize("free", [95, 97, MOST])
def test_a_kernel_that_takes_too_many_is_compiled_with_fewer(free: int) -> None:
    asked = []

    def again(registers: int) -> str:
        asked.append(registers)
        return kernel(registers)

    assert f".set {NAMES[0]}, {LIMIT}" in reserve(kernel(free), again)
    assert asked == [LIMIT]


def test_a_kernel_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(KernelError, match=f"takes {MOST} of {MOST} scalar registers"):
        reserve(kernel(MOST), lambda _: kernel(MOST))


def test_a_kernel_whose_registers_are_not_known_is_refused() -> None:
    with pytest.raises(KernelError, match="did not inline"):
        reserve(kernel("max(32, amdgpu.max_num_sgpr)"), never)


def test_a_kernel_that_does_not_record_stays_as_it_is() -> None:
    text = kernel(20).replace("ikp_cur", "3")
    assert reserve(text, never) == text
