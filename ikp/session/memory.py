"""The size of a launch's buffer: as the user gave it, or inferred from grid, mode and memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import index
from typing import Any, Final

from ikp.core import abi
from ikp.core.abi import OverflowMode
from ikp.core.segment import MAX_WARPS, Selection, Spec
from ikp.driver import devices
from ikp.errors import UsageError
from ikp.session.device import Device
from ikp.session.known_launch import ask_device
from ikp.session.storage import drives_cuda

DEFAULT_BYTES: Final = {"timeline": 32 << 20, "totals": 8 << 20}
"""The size of a buffer where the launch's grid is not known."""
RECORDS: Final = {"timeline": 512, "totals": 32}
"""Records per warp that a buffer has room for, where the launch's grid is known."""
SMALL: Final = {"timeline": 8192, "totals": 512}
"""Records per warp where that takes less than the default: a thousand small launches may queue. The
first of these get the default, until it is known how many records a warp makes."""
MOST_BYTES: Final = 256 << 20
MARGIN: Final = 2
MORE: Final = 64
"""Where memory is short, a warp has room for ``MARGIN`` times the records of earlier launches, and
``MORE``; but this reduces no buffer below the default."""
SHARE: Final = 8
"""Beyond the default, a buffer of inferred size is no more than an eighth of the device's free
memory."""


@dataclass(frozen=True, slots=True)
class BufferSize:
    """A buffer's size as the user gave it, or the grid and warps from which to infer it."""

    size: Any = None
    grid: Any = None
    num_warps: Any = None

    def nbytes(
        self,
        spec: Spec,
        chosen: Selection,
        device: Device,
        given: Any,
        made: int | None = None,
        attempted: int = 0,
        *,
        roomy: bool = False,
    ) -> Any:
        """Return the given size, of this buffer or the session; else one inferred from the launch.

        Args:
            spec: how the kernel records.
            chosen: which warps and blocks record.
            device: of the launch.
            given: the session's size, where the user gave one.
            made: the records of the busiest warp of earlier launches like this, where memory is
                short and they are known.
            attempted: the same, kept or not, where memory isn't short: a buffer without a given
                size has room for so many, as far as memory that is taken unasked goes.
            roomy: whether it is the default, or more: not known how many records a warp makes.

        Raises:
            UsageError: the grid, or the number of warps, can't be used.
        """
        unknown = self.grid is None and self.num_warps is None
        slots, headers = (0, 0) if unknown else slots_of(self.grid, self.num_warps, chosen)
        size = given if self.size is None else self.size
        if size is not None:
            return size
        size = inferred(spec, slots, lambda: free_bytes(device), attempted)
        default = DEFAULT_BYTES["totals" if spec.totals else "timeline"]
        if roomy and size < default:
            size = _towards(default, size, free_bytes(device))
        if made is not None and slots:
            enough = abi.segment_bytes(slots, MARGIN * made + MORE, spec.overflow, spec.clock)
            size = min(size, max(enough, default))
        return size + headers * abi.DENSE_HEADER_BYTES


def inferred(
    spec: Spec, slots: int, free_bytes: Callable[[], int | None], attempted: int = 0
) -> int:
    """Return the size in bytes of a buffer for a launch of ``slots`` slots; 0: not known.

    A warp has room for more than ``attempted`` records, if it is to keep the first ones.
    ``free_bytes`` returns the device's free memory, where that is known. It is called only where
    more than the default is wanted: the call is slow, and there may be many launches.
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
    """Return how many warps of a launch record, and how many headers lie behind their slots.

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


def free_bytes(device: Device) -> int | None:
    """Return how much memory a GPU has left; None for the host."""
    if device.type == "cpu":
        return None
    ask_device()
    if drives_cuda():
        return devices.free_bytes(device.index or 0)
    import torch

    return int(torch.cuda.mem_get_info(str(device))[0])


def _towards(default: int, size: int, free: int | None) -> int:
    """Return the default size, or as much of it above a size as free memory may give."""
    return default if free is None else max(size, min(default, free // SHARE))
