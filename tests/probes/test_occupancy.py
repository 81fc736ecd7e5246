"""How many registers a thread may have: what the driver can launch, and how many warps fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.probes.placement.register_choice import cost, register_counts
from ikp.sass.assembly.chips import HOPPER
from ikp.sass.cubins.capacity import most_registers_of, warps_with

pytestmark = pytest.mark.any_pins


@given(st.integers(1, 32))
def test_a_block_can_be_launched_with_the_most_registers_and_with_no_more(warps: int) -> None:
    most = most_registers_of(warps)
    assert warps_with(most) >= warps > (warps_with(most + 1) if most < 512 else 0)


@given(st.integers(1, 32), st.integers(16, 255))
def test_no_kernel_gets_registers_with_which_its_block_does_not_fit(warps: int, has: int) -> None:
    if has <= most_registers_of(warps):  # else the plain kernel is not launched either
        assert all(warps_with(each) >= warps for each in register_counts(has, warps, HOPPER))


def test_a_block_of_19_warps_has_room_with_96_registers_and_not_with_104() -> None:
    """With 104, the driver did not launch cuFFT's ``regular_fft<999>``."""
    assert (warps_with(96), warps_with(104), warps_with(255)) == (20, 16, 8)
    assert most_registers_of(19) == 96
    assert max(register_counts(90, 19, HOPPER)) == 96


def test_fewer_blocks_are_told_by_the_parts_of_an_sm() -> None:
    assert not cost(4, 96, 96, HOPPER)
    (told,) = cost(19, 96, 104, HOPPER)
    assert "room for 0 blocks, not 1" in told
