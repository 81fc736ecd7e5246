"""Differences of recorded and plain launches, by their times and places, and their errors."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import combinations_with_replacement
from typing import Final, NamedTuple

from ikp.core.run_figures import TimedLaunches

LEAST: Final = 3
"""Launches of each kind without which they are not compared."""
_RANKED: Final = 6
"""Values without which their signed ranks say nothing in 95 of 100 cases."""
_OF_95: Final = 1.96
"""Standard deviations that 95 of 100 normal values are within."""


class Time(NamedTuple):
    """How long a launch took, with what events take, and its place among all timed ones."""

    place: int
    us: float


def compared(
    grid: tuple[int, int, int], recorded: Sequence[Time], plain: Sequence[Time]
) -> TimedLaunches | None:
    """Return the launches of a grid beside each other; None where too few plain ones have a time.

    Where recorded and plain launches came in turn, each is compared with the one next to it. Else
    the medians of all are.
    """
    return _in_turn(grid, recorded, plain) or _apart(grid, recorded, plain)


def _in_turn(
    grid: tuple[int, int, int], recorded: Sequence[Time], plain: Sequence[Time]
) -> TimedLaunches | None:
    """Return recorded launches beside plain ones next to them; None where too few are."""
    kinds = [(each, True) for each in recorded] + [(each, False) for each in plain]
    pairs: list[tuple[float, float]] = []
    left: tuple[Time, bool] | None = None  # the one before, if it is in no pair
    for time, is_recorded in sorted(kinds):
        if left is None or left[1] == is_recorded:
            left = time, is_recorded
            continue
        pairs.append((time.us, left[0].us) if is_recorded else (left[0].us, time.us))
        left = None
    if len(pairs) < LEAST:
        return None
    longer = [one - other for one, other in pairs]
    with_records = statistics.median(one for one, _ in pairs)
    without = with_records - middle(longer)
    counts = len(pairs), len(pairs)
    return TimedLaunches(grid, with_records, without, error(longer), counts, in_turn=True)


def _apart(
    grid: tuple[int, int, int], recorded: Sequence[Time], plain: Sequence[Time]
) -> TimedLaunches | None:
    """Return the medians of both kinds; None where too few plain launches have a time."""
    some, others = [each.us for each in recorded], [each.us for each in plain]
    if len(others) < LEAST:
        return None
    enough = len(some) >= LEAST
    return TimedLaunches(
        grid,
        statistics.median(some) if enough else None,
        statistics.median(others),
        error(others) + (error(some) if enough else 0.0),
        (len(some), len(others)),
    )


def middle(values: Sequence[float]) -> float:
    """Return the median of the means of all pairs of values (Hodges and Lehmann).

    It spreads less than the median, by a fifth where the values are normal. A few values that
    are far off move it as little. Of values in two heaps it is near their mean.
    """
    return statistics.median(_means(values))


def error(values: Sequence[float]) -> float:
    """Return how far the middle of some values is off at most, in 95 of 100 cases.

    From six values on, Wilcoxon's signed ranks say so, of any symmetric distribution. Fewer can't:
    of normal ones it is 1.7 to 2.3 times their quartiles' distance over their number's root.
    """
    number = len(values)
    if number < _RANKED:
        low, _, high = statistics.quantiles(values, n=4)
        return float(2 * (high - low) / math.sqrt(number))
    means = sorted(_means(values))
    spread = math.sqrt(number * (number + 1) * (2 * number + 1) / 24)
    at = max(int(len(means) / 2 - _OF_95 * spread) - 1, 0)
    center = statistics.median(means)
    return max(center - means[at], means[-1 - at] - center)


def _means(values: Sequence[float]) -> list[float]:
    return [(one + other) / 2 for one, other in combinations_with_replacement(values, 2)]
