"""What is known of the blocks of a kernel's launches, and which of them record."""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Final, NamedTuple

from ikp.core.segment import EVERYTHING, Selection
from ikp.driver import cuda
from ikp.warning import warn

FEW_BLOCKS: Final = 256
"""A launch of no more blocks records in all of them: most run at once, and each is needed."""
MOST_CHOICES: Final = 16
_choices: set[Selection] = set()
"""Which blocks were chosen: each choice has a patched copy of the kernel."""


def _has_code(chosen: Selection) -> bool:
    """Return whether a choice of blocks is in code of its own: so many are, and the next are not.

    Patching takes a tenth of a second, and a program may choose other blocks at each launch.
    """
    if chosen.others:  # there are few of these
        return True
    if chosen not in _choices and len(_choices) >= MOST_CHOICES:
        _tell_of_choices()
        return False
    _choices.add(chosen)
    return True


@cache
def _tell_of_choices() -> None:
    warn(
        f"{MOST_CHOICES} choices of blocks have code of their own. With more of them, all blocks "
        "run the code with records, and those that are not chosen keep none. Choose the same "
        "blocks in more launches.",
        stacklevel=3,
    )


def sampled(grid: tuple[int, int, int], sample: int) -> Selection:
    """Return which blocks record of a launch of which a sample is taken.

    Blocks are counted through the grid: one in a number that shares a factor with its inner
    dimensions would be in some columns alone, and one in an even number on some SMs.

    Args:
        grid: blocks.
        sample: one in how many is to, or in a few more.
    """
    if sample == 1 or math.prod(grid) <= FEW_BLOCKS:
        return EVERYTHING
    last = max(axis for axis, size in enumerate(grid) if size > 1)
    met = 2 * math.prod(grid[:last])
    step = next(each for each in itertools.count(sample) if math.gcd(each, met) == 1)
    return Selection(block_step=step, others=True)


class Grid(NamedTuple):
    """What is known of the blocks of a kernel's launches."""

    flat: bool  # they stand in one dimension
    sure: bool  # nobody else launches it, so it has the slots that it is told of
    select: bool = False  # some warps record, or none of the blocks that there are
    blocks: Selection | None = None  # those do alone, with all their warps

    @classmethod
    def of(
        cls, blocks: tuple[int, int, int], stream: int, chosen: Selection, sample: int = 1
    ) -> Grid:
        """Return that of one launch: who changes a graph's node may ask for other blocks.

        Args:
            blocks: its grid.
            stream: where it is launched.
            chosen: which warps and blocks record.
            sample: one block in how many is to, where nobody has chosen.
        """
        sure = not cuda.capturing(stream)
        if sure and chosen == EVERYTHING:
            chosen = sampled(blocks, sample)
        some = chosen != EVERYTHING
        whole = some and chosen.whole_blocks(math.prod(blocks)) and _has_code(chosen)
        flat = sure and blocks[1:] == (1, 1)
        return cls(flat, sure, some and not whole, chosen if whole else None)

    @property
    def of_ptx(self) -> Grid:
        """The same, where records go into PTX: whatever is chosen, all run the code with them."""
        chosen = self.blocks is not None and not self.blocks.others
        return self._replace(select=self.select or chosen, blocks=None)
