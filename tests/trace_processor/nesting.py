"""Which range holds which, by a plain algorithm that the writer's fast one must agree with."""

from __future__ import annotations

from collections.abc import Sequence

MOST_NESTED = 511
"""The trace processor drops what is nested deeper."""


def parents(start: Sequence[int], end: Sequence[int], is_range: Sequence[bool]) -> list[int] | None:
    """Return for each event the innermost range that holds it, or -1; None if any two overlap.

    The events are of one lane, in order of recording. One that ended before another one, or just
    when that started, lies before it; else it must have started no earlier, and lies inside. The
    processor stacks instants of one moment, so that all of them can be seen, until it is too deep.
    """
    result = [-1] * len(start)
    holders: list[int] = []  # recorded later, innermost last
    for i in range(len(start) - 1, -1, -1):
        while holders and start[holders[-1]] >= end[i]:
            holders.pop()
        if holders:
            result[i] = holders[-1]
            if start[holders[-1]] > start[i]:
                return None
        if is_range[i]:
            holders.append(i)
    for i in range(1, len(start)):
        if not is_range[i] and not is_range[i - 1] and start[i] == start[i - 1]:
            result[i] = i - 1
    deep = [
        not one and depth > MOST_NESTED for one, depth in zip(is_range, depths(result), strict=True)
    ]
    return [-1 if too_deep else parent for too_deep, parent in zip(deep, result, strict=True)]


def depths(parent: Sequence[int]) -> list[int]:
    """Return how many events hold each one."""
    result = [0] * len(parent)

    def settle(i: int) -> int:
        chain = []
        while parent[i] >= 0 and not result[i]:
            chain.append(i)
            i = parent[i]
        depth = result[i]
        for one in reversed(chain):
            depth += 1
            result[one] = depth
        return depth

    for i in range(len(parent)):
        settle(i)
    return result
