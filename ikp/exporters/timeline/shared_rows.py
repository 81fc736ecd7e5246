"""Rows that launches share: of a trace of very many, those of one kernel follow each other on one.

A viewer takes some kilobytes for each row, shown or not: 100,000 launches with rows of their own
take more memory than a browser gives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.lanes import pack
from ikp.core.sorting import distinct
from ikp.core.trace import Launch

Ints = NDArray[np.int64]

OTHER_ROWS: Final = 4
"""About how many rows a launch has beside its warps': its own, and those of some CTA slots."""
MOST_ROWS: Final = 100_000
"""Rows from which on launches share theirs: by then, a viewer takes 300 MB for them."""


def are_shared(launches: Sequence[Launch], slots: int) -> bool:
    """Return whether launches share rows, in a trace with so many slots."""
    return slots + OTHER_ROWS * len(launches) > MOST_ROWS


def row_of_launch(launches: Sequence[Launch], tops: Sequence[int], used: tuple[Ints, Ints]) -> Ints:
    """Return the number of each launch's row: of launches with one label, that do not overlap.

    Args:
        launches: all of a trace.
        tops: by launch, the row above.
        used: by launch, from when to when its rows are in use.
    """
    kernels: dict[tuple[int, str], int] = {}
    keys = ((top, one.label) for top, one in zip(tops, launches, strict=True))
    kernel = np.array([kernels.setdefault(key, len(kernels)) for key in keys], np.int64)
    number = np.arange(len(launches))
    lane = pack(kernel, *used, (number, number))
    row, first = distinct(kernel, lane)
    place = np.empty(len(first), np.int64)
    place[np.argsort(first)] = np.arange(len(first))  # in the order of their first launches
    found: Ints = place[row]
    return found


def extents_of(
    launch: NDArray[np.integer], used: tuple[Ints, Ints], when: tuple[Ints, Ints]
) -> tuple[Ints, Ints]:
    """Return from when to when each launch's rows are in use.

    Args:
        launch: of each warp.
        used: from when to when each warp's row is.
        when: each launch's start and end.
    """
    start, end = when[0].copy(), when[1].copy()
    np.minimum.at(start, launch, used[0])
    np.maximum.at(end, launch, used[1])
    return start, end
