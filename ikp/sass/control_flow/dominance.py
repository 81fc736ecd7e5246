"""Dominator tree of basic blocks, by the algorithm of Cooper, Harvey and Kennedy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ikp.sass.control_flow.graph import Ways


@dataclass(frozen=True)
class Dominance:
    """The dominator tree: each block's parent is its immediate dominator."""

    entered: dict[int, int]  # the number of a block in a preorder walk of the tree
    left: dict[int, int]  # ... and how many blocks the walk has entered when it leaves the block

    def holds(self, above: int, below: int) -> bool:
        """Whether every path to ``below`` passes ``above``; False where no path leads there."""
        if above not in self.entered or below not in self.entered:
            return False
        return self.entered[above] <= self.entered[below] and self.left[below] <= self.left[above]

    def below(self, some: Iterable[int]) -> set[int]:
        """Return the blocks that some others strictly dominate."""
        inside = bytearray(len(self.entered))
        for block in some:
            if block in self.entered:
                first, end = self.entered[block] + 1, self.left[block]
                inside[first:end] = b"\1" * (end - first)
        return {block for block, at in self.entered.items() if inside[at]}


def dominance(order: Sequence[int], before: Ways) -> Dominance:
    """Return the dominator tree of some blocks.

    Args:
        order: the blocks in reverse postorder, the start first.
        before: for each block, those that may come before it.
    """
    parents = _parents(order, before)
    below: dict[int, list[int]] = {}
    for block, parent in parents.items():
        if block != parent:
            below.setdefault(parent, []).append(block)
    return _walked(order[0], below)


def _parents(order: Sequence[int], before: Ways) -> dict[int, int]:
    number = {block: n for n, block in enumerate(order)}
    parents = {order[0]: order[0]}

    def common(a: int, b: int) -> int:
        while a != b:
            while number[a] > number[b]:
                a = parents[a]
            while number[b] > number[a]:
                b = parents[b]
        return a

    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            known = [each for each in before[block] if each in parents]
            parent = known[0]
            for other in known[1:]:
                parent = common(parent, other)
            if parents.get(block) != parent:
                parents[block] = parent
                changed = True
    return parents


def _walked(start: int, below: dict[int, list[int]]) -> Dominance:
    entered: dict[int, int] = {}
    left: dict[int, int] = {}
    work = [(start, False)]
    while work:
        block, done = work.pop()
        if done:
            left[block] = len(entered)
        else:
            entered[block] = len(entered)
            work.append((block, True))
            work += [(each, False) for each in below.get(block, ())]
    return Dominance(entered, left)
