"""Which blocks of a launch record, and what is known of them."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.backends import launched_grid
from ikp.backends.launched_grid import FEW_BLOCKS, LaunchGrid, sampled
from ikp.core.segment import EVERYTHING, Selection
from ikp.errors import IkpWarning

grid_of = partial(LaunchGrid.of, captured=False)


def test_some_choices_of_blocks_have_code_and_then_all_others_share_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launched_grid, "_choices", set())
    launched_grid._tell_of_choices.cache_clear()
    some = [Selection(first_block=n + 1) for n in range(launched_grid.MOST_CHOICES)]
    assert [grid_of((64, 1, 1), each).blocks for each in some] == some
    more = [Selection(first_block=n) for n in (50, 51)]
    with pytest.warns(IkpWarning, match="16 choices of blocks have code") as told:
        others = [grid_of((64, 1, 1), each) for each in more]
    assert others == [LaunchGrid(flat=True, sure=True, select=True)] * 2 and len(told) == 1
    assert grid_of((64, 1, 1), some[3]).blocks == some[3]
    assert grid_of((64, 1, 1), EVERYTHING) == LaunchGrid(flat=True, sure=True)
    none, warps = Selection(first_block=64), Selection(0b1)
    assert grid_of((8, 8, 1), none) == LaunchGrid(flat=False, sure=True, select=True)
    assert grid_of((8, 8, 1), warps) == LaunchGrid(flat=False, sure=True, select=True)


@given(
    grid=st.tuples(st.integers(1, 300), st.integers(1, 40), st.integers(1, 12)),
    sample=st.integers(1, 40),
)
def test_a_sample_comes_to_every_column_of_a_grid_and_to_blocks_of_every_sm(
    grid: tuple[int, int, int], sample: int
) -> None:
    chosen, blocks = sampled(grid, sample), math.prod(grid)
    if sample == 1 or blocks <= FEW_BLOCKS:
        assert chosen == EVERYTHING
        return
    step = chosen.block_step
    assert chosen == Selection(block_step=step, others=True) and step >= sample and step % 2
    inner = blocks // next(size for size in grid[::-1] if size > 1)
    assert len({at * step % inner for at in range(inner)}) == inner
    others = [n for n in range(sample, step) if n % 2 and math.gcd(n, inner) == 1]
    assert not others, "a smaller step would do"


@given(grid=st.tuples(st.integers(1, 300), st.integers(1, 40), st.integers(1, 12)))
def test_a_sample_that_nobody_chose_is_as_thin_as_leaves_enough_blocks(
    grid: tuple[int, int, int],
) -> None:
    chosen, blocks = sampled(grid, None), math.prod(grid)
    wanted = 31 if blocks >= 31 * 32 else 15 if blocks >= 15 * 32 else 7
    assert chosen == sampled(grid, wanted)
    assert (chosen == EVERYTHING) == (blocks <= FEW_BLOCKS)


def test_a_sample_is_taken_where_nobody_chose_and_nobody_else_launches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large, some = (257, 1, 1), Selection(block_step=7, others=True)
    assert grid_of(large, EVERYTHING, 7) == LaunchGrid(flat=True, sure=True, blocks=some)
    assert grid_of((256, 1, 1), EVERYTHING, 7) == LaunchGrid(flat=True, sure=True)
    assert grid_of(large, EVERYTHING, 1) == LaunchGrid(flat=True, sure=True)
    assert grid_of((1024, 1, 1), EVERYTHING, None).blocks == replace(some, block_step=31)
    one = Selection(first_block=3, block_count=1)
    assert grid_of(large, one, 7).blocks == one
    assert grid_of(large, Selection(0b1), 7) == LaunchGrid(flat=True, sure=True, select=True)
    assert grid_of(large, EVERYTHING, 7).of_ptx == LaunchGrid(flat=True, sure=True)
    assert LaunchGrid.of(large, EVERYTHING, 7, captured=True) == LaunchGrid(flat=False, sure=False)
