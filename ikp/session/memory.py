"""How large a segment is to be: as it was asked for, or as its launch needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import index
from typing import Any, Final

from ikp.core import abi
from ikp.core.abi import OverflowMode
from ikp.core.segment import MAX_WARPS, Selection, Spec
from ikp.errors import UsageError

DEFAULT_BYTES: Final = {"timeline": 32 << 20, "totals": 8 << 20}
"""Where nothing is known of the launch."""
RECORDS: Final = {"timeline": 512, "totals": 32}
"""For how many records there is room in each warp of a launch that is known."""
SMALL: Final = {"timeline": 8192, "totals": 512}
"""For how many, where that takes less than the default: a thousand small launches may be queued."""
MOST_BYTES: Final = 256 << 20
MARGIN: Final = 2
MORE: Final = 64
"""Where memory is short, a warp has room for twice what earlier launches made, and so many more;
but no buffer gets less than the default for it."""
SHARE: Final = 8
"""Beyond the default, no more than this part of the device's free memory is taken unasked."""


@dataclass(frozen=True, slots=True)
class Room:
    """How large a buffer is to be: as given, or as its launch needs."""

    size: Any = None
    grid: Any = None
    num_warps: Any = None

    def nbytes(
        self,
        spec: Spec,
        chosen: Selection,
        device: Any,
        default: Any,
        made: int | None = None,
        attempted: int = 0,
    ) -> Any:
        """Return the size as it was given, here or as the default; else what suits the launch.

        Args:
            spec: how the kernel records.
            chosen: which warps and blocks record.
            device: torch's.
            default: the session's size, where the user gave one.
            made: the records of the busiest warp of earlier launches like this, where memory is
                short and they are known.
            attempted: the same, kept or not, where memory isn't short: a buffer that nobody gave a
                size has room for so many, as far as memory that is taken unasked goes.

        Raises:
            UsageError: what is known of the launch can't be used.
        """
        unknown = self.grid is None and self.num_warps is None
        slots, headers = (0, 0) if unknown else slots_of(self.grid, self.num_warps, chosen)
        size = default if self.size is None else self.size
        if size is not None:
            return size
        size = inferred(spec, slots, lambda: free_bytes(device), attempted)
        if made is not None and slots:
            enough = abi.segment_bytes(slots, MARGIN * made + MORE, spec.overflow, spec.clock)
            most = DEFAULT_BYTES["totals" if spec.totals else "timeline"]
            size = min(size, max(enough, most))
        return size + headers * abi.DENSE_HEADER_BYTES


def inferred(
    spec: Spec, slots: int, free_bytes: Callable[[], int | None], attempted: int = 0
) -> int:
    """Return the size in bytes of a buffer for a launch that has so many ``slots``; 0: any number.

    A warp has room for more than ``attempted`` records, if it is to keep the first ones.
    ``free_bytes`` returns how much the device has left, where that is known. It is asked only where
    more than the default is wanted: the answer takes its time, and there may be many launches.
    """
    mode = "totals" if spec.totals else "timeline"
    stops = spec.overflow is OverflowMode.STOP
    records = max(RECORDS[mode], _with_room(attempted) if stops else 0)
    wanted = abi.segment_bytes(slots, records, spec.overflow, spec.clock) if slots else 0
    if wanted <= DEFAULT_BYTES[mode]:
        roomy = max(records, SMALL[mode])
        enough = abi.segment_bytes(slots, roomy, spec.overflow, spec.clock) if slots else None
        return min(DEFAULT_BYTES[mode], enough or DEFAULT_BYTES[mode])
    free = free_bytes()
    most = MOST_BYTES if free is None else min(MOST_BYTES, free // SHARE)
    return max(DEFAULT_BYTES[mode], min(wanted, most))


def _with_room(attempted: int) -> int:
    """Return at least a quarter more, one of four numbers up to each doubling.

    Buffers of one size take each other's memory, and launches with other data need a few more.
    """
    enough = attempted + attempted // 4
    step = 1 << max(0, enough.bit_length() - 3)
    return -(-enough // step) * step


def slots_of(grid: Any, num_warps: Any, selection: Selection) -> tuple[int, int]:
    """Return how many warps of a launch record, and how many headers stand behind their slots.

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
    blocks, warps = math.prod(index(size) for size in sizes), index(num_warps)
    return selection.count_slots(blocks, warps), selection.count_headers(blocks, warps)


def _is_count(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool) and index(value) >= 0


def free_bytes(device: Any) -> int | None:
    """Return how much memory a GPU has left; None for the host."""
    if getattr(device, "type", "cpu") == "cpu":
        return None
    import torch

    return int(torch.cuda.mem_get_info(device)[0])
