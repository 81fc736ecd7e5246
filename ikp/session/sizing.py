"""How large a buffer is for which nobody gave a size."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import index
from typing import Any, Final

from ikp.core import abi
from ikp.core.selection import MAX_WARPS, Selection
from ikp.core.spec import Spec
from ikp.errors import UsageError

DEFAULT_BYTES: Final = {"timeline": 32 << 20, "totals": 8 << 20}
"""Where nothing is known of the launch, and the least that is taken where it is."""
RECORDS: Final = {"timeline": 512, "totals": 32}
"""For how many records there is room in each warp of a launch that is known."""
MOST_BYTES: Final = 256 << 20
SHARE: Final = 8
"""Beyond the default, no more than this part of the device's free memory is taken unasked."""


@dataclass(frozen=True, slots=True)
class Room:
    """How large a buffer is to be: as given, or as its launch needs."""

    size: Any = None
    grid: Any = None
    num_warps: Any = None

    def slots(self, selection: Selection) -> int:
        """Return how many warps will record; 0 where nothing is known of the launch.

        Raises:
            UsageError: what is known can't be used.
        """
        if self.grid is None and self.num_warps is None:
            return 0
        return slots_of(self.grid, self.num_warps, selection)


def inferred(spec: Spec, slots: int, free_bytes: Callable[[], int | None]) -> int:
    """Return the size in bytes of a buffer for a launch that has so many ``slots``.

    ``free_bytes`` returns how much the device has left, where that is known. It is asked only where
    more than the default is wanted: the answer takes its time, and there may be many launches.
    """
    mode = "totals" if spec.totals else "timeline"
    wanted = abi.segment_bytes(slots, RECORDS[mode], spec.overflow, spec.clock)
    if wanted <= DEFAULT_BYTES[mode]:
        return DEFAULT_BYTES[mode]
    free = free_bytes()
    most = MOST_BYTES if free is None else min(MOST_BYTES, free // SHARE)
    return max(DEFAULT_BYTES[mode], min(wanted, most))


def slots_of(grid: Any, num_warps: Any, selection: Selection) -> int:
    """Return how many warps of a launch record.

    Args:
        grid: blocks: an integer, or up to three of them.
        num_warps: warps of each block.
        selection: which of them record.

    Raises:
        UsageError: an argument is missing or can't be used.
    """
    sizes = tuple(grid) if isinstance(grid, (tuple, list)) else (grid,)
    if not 1 <= len(sizes) <= 3 or not all(_is_count(size) for size in sizes):
        raise UsageError(
            f"grid={grid!r} is no grid: give the number of blocks, or up to three of them, as to "
            "the launch."
        )
    if not _is_count(num_warps) or index(num_warps) > MAX_WARPS:
        raise UsageError(
            f"num_warps={num_warps!r}: with grid, give also how many warps a block has, 1 to "
            f"{MAX_WARPS}."
        )
    blocks = selection.count_blocks(math.prod(index(size) for size in sizes))
    return blocks * len(selection.chosen_warps(index(num_warps)))


def _is_count(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool) and index(value) >= 0
