"""Many slots' ranges put on lanes at once: the next one of each slot in one step of numpy.

A range goes to the lowest lane on which it nests: where the open ranges hold it. That depends on
where those before it went, so slots are taken together, and not the ranges of one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Parts = list[tuple[int, int]]
"""Where the rows of each group begin and end."""

GROUPS: Final = 16
"""Groups from which on an array of their lanes takes less time than a heap for each of them."""
FIRST_LANES, LANES = 8, 64
"""Lanes that such an array has for each group. A group that needs more gets a heap."""


_FIRST_DEPTH: Final = 8
"""Open ranges of a lane that there is room for at first."""
_NEVER: Final = np.iinfo(np.int64).max


def stack_all(opens: Ints, closes: Ints, low: Ints, high: Ints, max_depth: int) -> Ints:
    """Put the ranges of some slots on lanes, each on the lowest one on which it nests.

    Ranges are in the order of opening, those of a slot from ``low`` to ``high``; others get 0.
    """
    lanes = np.zeros(len(opens), np.int64)
    parts, left = alike(low, high)
    for known in (FIRST_LANES, LANES):
        if len(parts) >= GROUPS:
            parts = _stack_many(opens, closes, parts, lanes, known, max_depth)
    for begin, stop in parts + left:
        part = slice(begin, stop)
        lanes[part] = _stack(opens[part], closes[part], max_depth)
    return lanes


def _stack_many(
    opens: Ints, closes: Ints, parts: Parts, lanes: Ints, known: int, max_depth: int
) -> Parts:
    """Put the ranges of slots on lanes, the next one of all slots at a time.

    Returns the slots that have more lanes than ``known``.
    """
    low, high = np.array(parts).T
    goes_on = np.searchsorted(low - high, -np.arange(int(high[0] - low[0])))
    stacks = _Stacks(len(parts), known, min(max_depth, _FIRST_DEPTH))
    first = np.arange(len(parts)) * known
    for step, count in enumerate(goes_on.tolist()):
        rows = low[:count] + step
        lanes[rows] = stacks.push(first[:count], opens[rows], closes[rows], max_depth)
    return [parts[one] for one in np.flatnonzero(stacks.wide).tolist()]


class _Stacks:
    """The ends of the ranges that are open on each lane of each slot, the innermost one last.

    Cells are lanes of slots, slot by slot. Below the outermost range of each is one that never
    ends. A slot that is ``wide`` has no ends here.
    """

    def __init__(self, slots: int, lanes: int, depth: int) -> None:
        self.lanes = lanes
        self.ends = np.full((slots * lanes, depth + 1), _NEVER)
        self.height = np.zeros(slots * lanes, np.int64)
        self.top = np.full(slots * lanes, _NEVER)  # the innermost of each
        self.wide = np.zeros(slots, np.bool_)
        self.deepest = 0  # no lane holds more

    def push(self, first: Ints, opens: Ints, closes: Ints, max_depth: int) -> Ints:
        """Put one range on a lane of each slot, and return which: the lowest one that it fits.

        ``first`` are the first cells of the slots.
        """
        self._pop(opens)
        shape = len(opens), self.lanes
        top = self.top[: len(opens) * self.lanes].reshape(shape)
        fits = top > closes[:, None]
        if self.deepest >= max_depth:
            fits &= self.height[: fits.size].reshape(shape) < max_depth
        lane: Ints = fits.argmax(1)
        cells = first + lane
        there = fits.reshape(-1)[cells]
        if not there.all():
            full = np.flatnonzero(~there)
            self.wide[full] = True
            for state, empty in ((self.ends, _NEVER), (self.height, 0), (self.top, _NEVER)):
                state.reshape(len(self.wide), -1)[full] = empty
        depth = self.height[cells] + 1
        if (deepest := int(depth.max())) > self.deepest:
            self.deepest = deepest
            if deepest >= self.ends.shape[1]:
                self.ends = np.pad(self.ends, ((0, 0), (0, deepest)), constant_values=_NEVER)
        self.height[cells] = depth
        self.top[cells] = self.ends[cells, depth] = closes
        return lane

    def _pop(self, opens: Ints) -> None:
        """Take away what is over when the next range of each slot opens."""
        shape = len(opens), self.lanes
        cells = np.flatnonzero(self.top[: len(opens) * self.lanes].reshape(shape) < opens[:, None])
        while len(cells):
            height = self.height[cells] - 1
            top = self.ends[cells, height]
            self.height[cells], self.top[cells] = height, top
            cells = cells[top < opens[cells // self.lanes]]


def _stack(opens: Ints, closes: Ints, max_depth: int) -> list[int]:
    """Put each range on the lowest lane on which it nests; they are in the order of opening."""
    lanes = []
    stacks: list[list[int]] = []
    for begin, end in zip(opens.tolist(), closes.tolist(), strict=True):
        for lane, stack in enumerate(stacks):  # noqa: B007  the lane is used after the loop
            while stack and stack[-1] < begin:
                stack.pop()
            if not stack or (stack[-1] > end and len(stack) < max_depth):
                break
        else:
            lane, stack = len(stacks), []
            stacks.append(stack)
        stack.append(end)
        lanes.append(lane)
    return lanes


def alike(low: Ints, high: Ints) -> tuple[Parts, Parts]:
    """Return groups, the largest first, of which many go on until the end; and those before."""
    sizes = high - low
    order = np.argsort(-sizes, kind="stable")
    rest = np.cumsum(sizes[order][::-1])[::-1]  # of these and all smaller ones
    alike = np.flatnonzero(rest >= GROUPS * sizes[order])
    cut = int(alike[0]) if len(alike) else len(order)
    parts = list(zip(low[order].tolist(), high[order].tolist(), strict=True))
    return parts[cut:], parts[:cut]
