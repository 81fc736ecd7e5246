"""Sketches of durations (DDSketch): percentiles that merge over traces, at most 0.5 % off.

A DDSketch counts values in bins whose bounds grow by a fixed ratio, so a percentile from it is off
by at most a fixed share of its value. Sketches of two sets of values add up to that of both, bin by
bin: in any order, and however the values were divided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ddsketch import DDSketch

RELATIVE_ERROR: Final = 0.005
"""A percentile is at most this share off the duration at its rank. 60 years of nanoseconds take
4,200 bins then, 10 to 100 us take 230."""


def new_sketch() -> DDSketch:
    """Return an empty sketch."""
    from ddsketch import DDSketch

    return DDSketch(RELATIVE_ERROR)


def sketches(group: NDArray[Any], values: NDArray[np.int64]) -> dict[int, DDSketch]:
    """Return a sketch of the values of each group that occurs, by its number.

    All values are put into bins at once. A bin is then added to its sketch as its middle value,
    times the number of values in it.
    """
    if not len(values):
        return {}
    bins = _bins(values)
    least, width = int(bins.min()), int(bins.max() - bins.min()) + 1
    place, count = _counted(group * np.int64(width) + (bins - least))
    found: dict[int, DDSketch] = {}
    rows = zip((place // width).tolist(), (place % width + least).tolist(), count, strict=True)
    for number, one, times in rows:
        if number not in found:
            found[number] = new_sketch()
        found[number].add(_middle(one), times)
    return found


_GAMMA: Final = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_NONE: Final = -1
"""The bin of durations of 0: that of 1 ns is 0."""


def _bins(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bin that a sketch puts each value in: bin i ends with gamma ** i."""
    ends = np.ceil(np.log(np.maximum(values, 1)) / np.log(_GAMMA))
    bins: NDArray[np.int64] = ends.astype(np.int64)
    bins[values <= 0] = _NONE
    return bins


def _middle(one: int) -> float:
    """Return the value of a bin with the least relative distance to all others in it."""
    return 0.0 if one == _NONE else 2 * _GAMMA**one / (1 + _GAMMA)


def _counted(places: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[int]]:
    """Return which places occur, ascending, and how often: by a sort where few of them do."""
    if int(places.max()) > _SPARSE * len(places) + _FEW:
        found, count = np.unique(places, return_counts=True)
        return found, count.tolist()
    count = np.bincount(places)
    found = np.flatnonzero(count)
    return found, count[found].tolist()


_SPARSE, _FEW = 4, 1 << 16


def quantile(sketch: DDSketch, q: float) -> float:
    """Return the value at a quantile of a sketch that is not empty."""
    value = sketch.get_quantile_value(q)
    return np.nan if value is None else float(value)
