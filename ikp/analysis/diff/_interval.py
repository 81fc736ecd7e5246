"""Confidence bounds on the difference of a figure's means over two sets of launches.

Launches that follow each other are alike (clocks and caches wander), so they are no independent
samples. Each side's launches are cut, in order, into at most :data:`BLOCKS` blocks: the means of
blocks are the samples. Student's t distribution is here because numpy lacks its tail probability
and quantile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from math import exp, hypot, isnan, lgamma, log, log1p, nan, sqrt
from operator import add
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

_STEPS = 300
_ENOUGH = 1e-15
_TINY = 1e-300


def tail(t: float, freedom: float) -> float:
    """Return the probability of a value above ``t``, which is 0 or more."""
    return 0.5 * _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


@cache
def quantile(upper: float, freedom: float) -> float:
    """Return the value that is exceeded with probability ``upper``, at most 0.5."""
    low, high = 0.0, 1.0
    while tail(high, freedom) > upper:
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle, freedom) > upper else (low, middle)
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly, the other side's does not
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a
    ratio, above, below = 1.0, 1.0, 0.0
    for step in range(_STEPS):
        m = step // 2
        if step == 0:
            factor = 1.0
        elif step % 2:
            factor = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            factor = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        below = 1 / _apart(1 + factor * below)
        above = _apart(1 + factor / above)
        ratio *= above * below
        if step and abs(1 - above * below) < _ENOUGH:
            break
    return front * (ratio - 1)


def _apart(value: float) -> float:
    """Return a divisor that is not zero."""
    return value if abs(value) > _TINY else _TINY


Floats = NDArray[np.float64]
Rows = NDArray[np.integer[Any]]

BLOCKS: Final = 10


@dataclass(frozen=True, slots=True)
class Allowance:
    """How far two sides differ without a cause in the kernel, which no number of launches shows.

    Both are standard deviations of the difference. ``kernel`` is a part of the kernel's figure,
    ``region`` a part of a region's own figure. For a region's time in a warp, it is no more than
    ``kernel`` of the warp's time: regions take time from each other.
    """

    kernel: float = 0.0
    region: float = 0.0


BETWEEN_RUNS: Final = Allowance(0.004, 0.015)
"""The allowance for two processes that run one kernel, on an H200 (decision 46)."""
_CERTAIN: Final = 1e6
"""Degrees of freedom of an error that is not estimated from the launches."""


@dataclass(frozen=True, slots=True)
class Design:
    """Which launches are compared: blocks of each side's launches, as rows of its figures.

    In a ``paired`` design, block k of one side is compared with block k of the other.
    """

    name: str
    before: tuple[Rows, ...]
    after: tuple[Rows, ...]
    paired: bool
    allowance: Allowance


@cache
def blocks(launches: int) -> tuple[Rows, ...]:
    """Cut so many launches into blocks, in order; a program may have many kernels of as many."""
    return tuple(np.array_split(np.arange(launches), max(1, min(BLOCKS, launches))))


class Contrast(NamedTuple):
    """``after - factor * before``: its estimate, its standard error, its degrees of freedom."""

    before: float
    after: float
    estimate: float
    error: float
    freedom: float
    unseen: float  # standard error that no launch shows
    tick: float = 0.0  # a step of the clock: the figure is known no finer

    def reach(self, outside: float) -> float:
        """Return the distance to the estimate that is exceeded with this probability a side."""
        noise = quantile(outside, self.freedom) * self.error
        return hypot(noise, quantile(outside, _CERTAIN) * self.unseen) + self.tick


def _known(part: Iterable[float]) -> list[float]:
    """Return what is no NaN."""
    return [each for each in part if not isnan(each)]


def _both_known(before: list[float], after: list[float]) -> tuple[list[float], list[float]]:
    """Return two lists of pairs' sides, without pairs of which one is NaN."""
    if not isnan(sum(before) + sum(after)):
        return before, after
    pairs = [(x, y) for x, y in zip(before, after, strict=True) if not (isnan(x) or isnan(y))]
    return [x for x, _ in pairs], [y for _, y in pairs]


def contrast(
    design: Design,
    before: Floats,
    after: Floats,
    unseen: Callable[[float], float],
    tick: float = 0.0,
    factor: float = 1.0,
) -> Contrast | None:
    """Return the contrast of a figure of each launch; None of fewer than two samples on a side.

    Launches without the figure have NaN. ``unseen`` returns, for the figure's mean, the standard
    error that no launch shows. The figure is known no finer than to one ``tick``.
    """
    parts = _means(design.before, before), _means(design.after, after)
    a, b = _both_known(*parts) if design.paired else tuple(map(_known, parts))
    if min(len(a), len(b)) < 2:
        return None
    first, second = mean_of(a), mean_of(b)
    if design.paired:
        apart = [y - factor * x for x, y in zip(a, b, strict=True)]
        error, freedom = sqrt(_variance(apart)) / sqrt(len(a)), len(a) - 1.0
    else:
        error, freedom = _welch([factor * each for each in a], b)
    mean = abs(first + second) / 2
    estimate = second - factor * first
    return Contrast(first, second, estimate, error, freedom, unseen(mean), tick)


SMALL: Final = 8
"""Values below which numpy, too, adds one after the other, and takes longer than Python does: a
program may have ten thousand kernels of a few launches each."""


def mean_of(values: Floats | Sequence[float]) -> float:
    """Return the mean of one value or more."""
    if len(values) >= SMALL:
        return float(np.mean(values))
    listed: Sequence[float] = values.tolist() if isinstance(values, np.ndarray) else values
    return reduce(add, listed) / len(listed)


def _variance(values: Sequence[float]) -> float:
    """Return the variance that two values or more are a sample of."""
    if len(values) >= SMALL:
        return float(np.var(values, ddof=1))
    mean = reduce(add, values) / len(values)
    squares = [(each - mean) * (each - mean) for each in values]
    return reduce(add, squares) / (len(values) - 1)


def _means(groups: tuple[Rows, ...], figures: Floats) -> list[float]:
    """Return the mean of each block's launches that have the figure; NaN where none has it."""
    if len(groups) == len(figures):  # a launch in each
        single = figures.tolist()
        return [single[rows[0]] for rows in groups]
    values = [figures[rows] for rows in groups]
    known = [each[~np.isnan(each)] for each in values]
    return [mean_of(each) if len(each) else nan for each in known]


def _welch(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Return the standard error of a difference of means, and its degrees of freedom."""
    one, two = (_variance(part) / len(part) for part in (a, b))
    if one + two == 0:
        return 0.0, float(min(len(a), len(b)) - 1)
    freedom = (one + two) ** 2 / (one**2 / (len(a) - 1) + two**2 / (len(b) - 1))
    return sqrt(one + two), freedom
