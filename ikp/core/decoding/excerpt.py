"""``Excerpt``: the part of a segment that the host copied, where it did not copy all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Excerpt:
    """A segment of which the host has only some records of each slot; the others count as empty."""

    nbytes: int  # of the whole segment
    head: Bytes  # the launch header
    heads: Bytes  # of the slots, a row each; then those of warps without a slot
    counts: Ints  # by slot: how many of its first records the host has
    records: Bytes  # these, slot by slot
    tail: bool  # whether the memory behind all that a launch writes is not zero
