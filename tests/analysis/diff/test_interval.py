"""The contrast of a figure of launches: its error and its degrees of freedom."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from ikp.analysis.diff._interval import BETWEEN_RUNS, Design, blocks, contrast

pytestmark = pytest.mark.any_pins

BEFORE = np.array([100.0, 104.0, 97.0, 103.0, 99.0, 101.0])
AFTER = np.array([103.0, 108.0, 101.0, 104.0, 105.0, 106.0])


def design(count: int, *, paired: bool) -> Design:
    rows = blocks(count)
    return Design("in turn", rows, rows, paired, BETWEEN_RUNS)


def test_pairs_have_one_degree_of_freedom_fewer_than_there_are() -> None:
    found = contrast(design(6, paired=True), BEFORE, AFTER, lambda _: 0.0)
    assert found is not None
    apart = AFTER - BEFORE
    assert found.freedom == 5
    assert found.estimate == pytest.approx(apart.mean())
    assert found.error == pytest.approx(apart.std(ddof=1) / sqrt(6))


def test_a_pair_of_which_one_lacks_the_figure_counts_for_none() -> None:
    before = BEFORE.copy()
    before[2] = np.nan
    found = contrast(design(6, paired=True), before, AFTER, lambda _: 0.0)
    assert found is not None and found.freedom == 4


def test_sides_of_their_own_have_the_freedom_of_welch() -> None:
    """By the formula, of variances that differ."""
    after = AFTER * np.array([1, 1.1, 0.9, 1, 1.2, 0.8])
    found = contrast(design(6, paired=False), BEFORE, after, lambda _: 0.0)
    assert found is not None
    a, b = BEFORE.var(ddof=1) / 6, after.var(ddof=1) / 6
    assert found.freedom == pytest.approx((a + b) ** 2 / (a**2 / 5 + b**2 / 5))
    assert 5 < found.freedom < 10
