"""Which warps and blocks of a launch record: the others have no slot, and theirs is divided up.

The host writes the choice into the launch header before the kernel runs, so that one compiled
kernel serves every choice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from operator import index
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.errors import UsageError

MAX_WARPS = 32
"""Warps of the largest block there can be."""
ALL = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Selection:
    """A mask of warps, and every ``block_step``-th block from ``first_block``, ``block_count``."""

    warps: int = ALL
    first_block: int = 0
    block_step: int = 1
    block_count: int = ALL

    @classmethod
    def of(cls, header: np.void) -> Self:
        """Return what a launch header says, whether or not its kernel heeds it."""
        return cls(*(int(header[name]) for name in cls.__slots__))

    def words(self) -> NDArray[np.uint32]:
        """Return the launch header's words from ``warps`` on."""
        return np.array(astuple(self), "<u4")

    def chosen_warps(self, warps: int) -> NDArray[np.int64]:
        """Return the numbers of the warps that record, of blocks with ``warps`` warps."""
        return np.flatnonzero(self.warps >> np.arange(warps) & 1)

    def count_blocks(self, blocks: int) -> int:
        """Return how many of ``blocks`` blocks record."""
        behind = max(0, blocks - self.first_block)
        return min(-(-behind // self.block_step), self.block_count)

    def rank(self, block: int) -> int | None:
        """Return the number of a block among those that record; None if it does not."""
        rank, rest = divmod(block - self.first_block, self.block_step)
        return rank if not rest and 0 <= rank < self.block_count else None

    def chosen_blocks(self, rank: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the linear ids of the blocks that record, by their number among them."""
        return self.first_block + rank * self.block_step


EVERYTHING = Selection()
WORDS_AT = abi.field_offsets(abi.LAUNCH_HEADER)["warps"]
"""Where the words stand in the launch header."""


def select(warps: Iterable[int] | None, blocks: range | None, granularity: int | str) -> Selection:
    """Return the selection that a user's arguments describe.

    Args:
        warps: numbers of warps in their block; None takes all.
        blocks: linear block ids, as a range with a positive step; None takes all.
        granularity: ``"warp"``, ``"block"``, or how many warps share a slot: the first records.

    Raises:
        UsageError: an argument can't be used.
    """
    every = granularity
    if isinstance(every, str):
        every = {"warp": 1, "block": MAX_WARPS}.get(every, 0)
    if every not in (1, 2, 4, 8, 16, MAX_WARPS) or isinstance(every, bool):
        raise UsageError(
            f"granularity={granularity!r} is unknown: use 'warp', 'block', or 2, 4, 8 or 16 warps."
        )
    mask = sum(1 << warp for warp in range(0, MAX_WARPS, every))
    if warps is not None:
        if every > 1:
            raise UsageError("give warps or granularity, not both: each says which warps record.")
        mask = sum(1 << warp for warp in _checked_warps(warps))
    if blocks is None:
        return Selection(mask)
    given: object = blocks  # whatever its type says
    if not isinstance(given, range) or blocks.step < 1 or blocks.start < 0 or not len(blocks):
        raise UsageError(
            f"blocks={blocks!r} can't be used: give a range of linear block ids that is not empty "
            "and counts up, like range(0, 1024, 8)."
        )
    return Selection(mask, blocks.start, blocks.step, min(len(blocks), ALL))


def _checked_warps(warps: Iterable[int]) -> set[int]:
    try:
        chosen = {index(warp) for warp in warps}
    except TypeError:
        chosen = set()
    if not chosen or min(chosen) < 0 or max(chosen) >= MAX_WARPS:
        raise UsageError(
            f"warps={warps!r} can't be used: give the numbers of warps in their block, "
            f"0 to {MAX_WARPS - 1}, like [0, 4]."
        )
    return chosen
