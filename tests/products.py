"""Which cases of a large product are tested: every pair of values, or every case when thorough.

A fault lies in one value or where two meet; hardly one needs three. Of axes that don't meet in
what is tested, each value does once. ``HYPOTHESIS_PROFILE=thorough`` tests the whole product, as it
tests more examples of every property.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from itertools import combinations, product
from typing import Any

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"


def pairwise(*axes: Collection[Any]) -> list[tuple[Any, ...]]:
    """Return cases, one value of each axis in each, so that any two values of two axes meet.

    Always the same ones, in the product's order: whoever caches by an early axis hits. All of the
    product in a thorough run.
    """
    if THOROUGH:
        return list(product(*axes))
    cases = list(product(*(range(len(axis)) for axis in axes)))
    missing = {pair for case in cases for pair in _pairs(case)}
    chosen = []
    while missing:
        best = max(cases, key=lambda case: len(missing & _pairs(case)))
        missing -= _pairs(best)
        chosen.append(best)
    values = [list(axis) for axis in axes]
    return [
        tuple(axis[at] for axis, at in zip(values, case, strict=True)) for case in sorted(chosen)
    ]


def one_by_one(*axes: Collection[Any]) -> list[tuple[Any, ...]]:
    """Return cases in which each value of each axis occurs, beside the first of the others.

    For axes that have nothing to do with each other. All of the product in a thorough run.
    """
    cases = list(product(*axes))
    if THOROUGH:
        return cases
    first = cases[0]
    return [case for case in cases if sum(a != b for a, b in zip(case, first, strict=True)) <= 1]


def spread(found: Sequence[Any], most: int) -> Sequence[Any]:
    """Return at most so many of what was found, from its begin to its end; all if thorough."""
    return found if THOROUGH else found[:: max(1, -(-len(found) // most))]


def _pairs(case: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
    return set(combinations(enumerate(case), 2))
