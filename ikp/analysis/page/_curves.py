"""SVG paths of curves, bands and steps, with scales, ticks and histogram bins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def area(values: Floats, width: float, height: float, most: float) -> str:
    """Return steps over the whole width, filled down to the base."""
    if not len(values) or most <= 0:
        return ""
    step = width / len(values)
    tops = height * (1 - values / most)
    parts = [f"M0 {height:g}"]
    for i, top in enumerate(tops.tolist()):
        parts.append(f"V{top:.1f}H{(i + 1) * step:.1f}")
    return "".join([*parts, f"V{height:g}Z"])


def line(x: Floats, y: Floats) -> str:
    """Return a line through points, in pixels."""
    return _joined("M", x, y)


def band(x: Floats, low: Floats, high: Floats) -> str:
    """Return the area between two lines."""
    if not len(x):
        return ""
    return f"{_joined('M', x, high)}{_joined('L', x[::-1], low[::-1])}Z"


def _joined(first: str, x: Floats, y: Floats) -> str:
    points = [f"{a:.1f} {b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    return first + "L".join(points) if points else ""


def scaled(values: Floats, low: float, high: float, size: float) -> Floats:
    """Return values as distances from 0 to ``size``, ``low`` at 0."""
    return np.asarray((values - low) / (high - low or 1) * size)


def round_ticks(most: float, count: int = 5) -> list[float]:
    """Return round numbers from 0 to at most ``most``."""
    if most <= 0:
        return [0.0]
    raw = most / count
    power = 10.0 ** np.floor(np.log10(raw))
    step = float(power * next(one for one in (1, 2, 5, 10) if one * power >= raw))
    return [i * step for i in range(int(most / step) + 1)]


def histogram(values: Sequence[float] | Floats, bins: int) -> tuple[Floats, Floats]:
    """Return counts and edges of bins of equal ratio: times spread over orders of magnitude."""
    known = np.maximum(np.asarray(values, np.float64), 1)
    low, high = float(known.min()), float(known.max())
    edges = np.geomspace(low, max(high, low * 1.01) * (1 + 1e-12), bins + 1)
    return np.histogram(known, edges)[0].astype(np.float64), edges
