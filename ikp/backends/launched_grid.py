"""``LaunchGrid``: what of a launch's grid decides its kernel's patch; ``sampled`` picks blocks."""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Final, NamedTuple

from ikp.core.segment import EVERYTHING, Selection
from ikp.warning import warn

FEW_BLOCKS: Final = 256
"""A launch of no more blocks records in all of them: most run at once, and each is needed."""
STEPS: Final = (7, 15, 31)
"""The steps of a sample where the user chose none. They are odd: numbers of SMs are even."""
ENOUGH_BLOCKS: Final = 32
"""The largest step is taken with which so many blocks record. What few record perturbs little."""
MOST_CHOICES: Final = 16
"""The most selections of blocks that get a patched copy of the kernel each."""
_choices: set[Selection] = set()
"""The selections of blocks that have a patched copy of the kernel each."""


def _has_code(chosen: Selection) -> bool:
    """Return whether a selection of blocks gets a patched copy of its own: the first ones do.

    Patching takes a tenth of a second, and a program may choose other blocks at each launch.
    """
    if chosen.others:  # a sample: there are few of these
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


def sampled(grid: tuple[int, int, int], sample: int | None) -> Selection:
    """Return which blocks record in a launch of which a sample is taken.

    Blocks are numbered through the grid. A step that shares a factor with the grid's inner
    dimensions would choose blocks of some columns alone. An even step would choose those of some
    SMs.

    Args:
        grid: blocks.
        sample: the step between blocks that record; None for one by the number of blocks. The step
            taken may be a few more.
    """
    blocks = math.prod(grid)
    if sample == 1 or blocks <= FEW_BLOCKS:
        return EVERYTHING
    if sample is None:
        enough = [each for each in STEPS if blocks // each >= ENOUGH_BLOCKS]
        sample = max(enough, default=STEPS[0])
    last = max(axis for axis, size in enumerate(grid) if size > 1)
    met = 2 * math.prod(grid[:last])
    step = next(each for each in itertools.count(sample) if math.gcd(each, met) == 1)
    return Selection(block_step=step, others=True)


class LaunchGrid(NamedTuple):
    """The properties of a kernel's grid, and its selection, that decide how it is patched."""

    flat: bool  # the grid has one dimension
    sure: bool  # the grid is the launch's for sure: no graph replays it with another
    select: bool = False  # the code reads the selection of warps and blocks at run time
    blocks: Selection | None = None  # the code is for these blocks alone, with all their warps

    @classmethod
    def of(
        cls,
        blocks: tuple[int, int, int],
        chosen: Selection,
        sample: int | None = 1,
        *,
        captured: bool,
    ) -> LaunchGrid:
        """Return these properties of one launch; a captured one may be replayed with another grid.

        Args:
            blocks: its grid.
            chosen: which warps and blocks record.
            sample: the step between blocks that record, where the user has chosen none; None for
                one by the number of blocks.
            captured: whether a CUDA graph captures the launch.
        """
        sure = not captured
        if sure and chosen == EVERYTHING:
            chosen = sampled(blocks, sample)
        some = chosen != EVERYTHING
        whole = some and chosen.whole_blocks(math.prod(blocks)) and _has_code(chosen)
        flat = sure and blocks[1:] == (1, 1)
        return cls(flat, sure, some and not whole, chosen if whole else None)

    @property
    def of_ptx(self) -> LaunchGrid:
        """The same for probes in PTX: all blocks run the code with probes, chosen or not."""
        chosen = self.blocks is not None and not self.blocks.others
        return self._replace(select=self.select or chosen, blocks=None)
