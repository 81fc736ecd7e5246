"""How surely a figure differs: the difference of its means over launches, and bounds on that.

Launches that follow each other are alike (clocks and caches wander), so they are no independent
samples: each side's are cut, in order, into at most :data:`BLOCKS` blocks, whose means are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.diff._student import quantile

Floats = NDArray[np.float64]
Rows = NDArray[np.integer[Any]]

BLOCKS: Final = 10
BETWEEN_RUNS: Final = 0.002
"""What two runs of one kernel differ by though nothing changed: no number of launches shows it."""


@dataclass(frozen=True, slots=True)
class Design:
    """Which launches are compared with which: blocks of each side's, as rows of its figures.

    Where they are ``paired``, block k is compared with block k. ``allowance`` is the part of the
    figure by which the sides may differ without any cause in the kernel.
    """

    name: str
    before: tuple[Rows, ...]
    after: tuple[Rows, ...]
    paired: bool
    allowance: float


def blocks(rows: Rows) -> tuple[Rows, ...]:
    """Cut launches into blocks, in order."""
    return tuple(np.array_split(rows, max(1, min(BLOCKS, len(rows)))))


@dataclass(frozen=True, slots=True)
class Contrast:
    """``after - factor * before``: its estimate, its standard error, its degrees of freedom."""

    before: float
    after: float
    estimate: float
    error: float
    freedom: float
    slack: float  # what is allowed for beside noise, in the figure's unit

    def reach(self, outside: float) -> float:
        """Return how far on each side the bound is that is passed with this probability."""
        return quantile(outside, self.freedom) * self.error + self.slack


def contrast(
    design: Design, before: Floats, after: Floats, tick: float = 0.0, factor: float = 1.0
) -> Contrast | None:
    """Return the contrast of a figure of each launch; None where there are too few to know.

    Launches without the figure have NaN. It is known no finer than to one ``tick``.
    """
    parts = _means(design.before, before), _means(design.after, after)
    if design.paired:
        both = ~np.isnan(parts[0]) & ~np.isnan(parts[1])
        a, b = (part[both] for part in parts)
    else:
        a, b = (part[~np.isnan(part)] for part in parts)
    if min(len(a), len(b)) < 2:
        return None
    first, second = float(a.mean()), float(b.mean())
    if design.paired:
        error, freedom = float((b - factor * a).std(ddof=1)) / sqrt(len(a)), len(a) - 1.0
    else:
        error, freedom = _welch(factor * a, b)
    slack = design.allowance * abs(first + second) / 2 + tick
    return Contrast(first, second, second - factor * first, error, freedom, slack)


def _means(groups: tuple[Rows, ...], figures: Floats) -> Floats:
    """Return the mean of each block's launches that have the figure."""
    values = [figures[rows] for rows in groups]
    known = [each[~np.isnan(each)] for each in values]
    return np.array([each.mean() if len(each) else np.nan for each in known], np.float64)


def _welch(a: Floats, b: Floats) -> tuple[float, float]:
    """Return the standard error of a difference of means, and its degrees of freedom."""
    one, two = (float(part.var(ddof=1)) / len(part) for part in (a, b))
    if one + two == 0:
        return 0.0, float(min(len(a), len(b)) - 1)
    freedom = (one + two) ** 2 / (one**2 / (len(a) - 1) + two**2 / (len(b) - 1))
    return sqrt(one + two), freedom
