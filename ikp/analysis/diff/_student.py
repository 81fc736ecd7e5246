"""Student's t distribution: tail probability and quantile, which numpy lacks."""

from __future__ import annotations

from functools import cache
from math import exp, lgamma, log, log1p

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
