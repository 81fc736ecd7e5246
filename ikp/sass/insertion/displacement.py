"""Where instructions are after others were put between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ikp.errors import PatchError
from ikp.sass.cubins.instruction import BYTES, Numbers, Words, rows


@dataclass(frozen=True)
class Insertion:
    """Instructions to be put before one, which is named by its number in the kernel's code.

    ``skipped``: branches to that instruction skip them; they are reached by falling through alone,
    or by returning from a call. Otherwise, whoever comes to it runs them.
    """

    index: int
    words: tuple[int, ...]  # 128 bits each
    skipped: bool = False


@dataclass(frozen=True)
class Displacement:
    """What became of each instruction, by its old number; the last entry is the code's end."""

    new: Numbers  # where it is
    start: Numbers  # the first of what was put before it: who falls through to it, comes here
    land: Numbers  # where branches to it go
    count: int  # how many there are now, without what is appended

    @property
    def old_count(self) -> int:
        """How many there were."""
        return len(self.new) - 1

    def moved(self, place: int) -> int:
        """Return where the instruction at an old place is: in bytes, as places in files are."""
        return self._of(self.new, place)

    def begun(self, place: int) -> int:
        """Return where what was put before the instruction at an old place begins."""
        return self._of(self.start, place)

    def landed(self, place: int) -> int:
        """Return where a branch to an old place goes; the code's own start stays."""
        return self._of(self.land, place) if place else 0

    def _of(self, table: Numbers, place: int) -> int:
        index, within = divmod(place, BYTES)
        if not 0 <= index <= self.old_count or (index == self.old_count and within):
            raise PatchError(
                f"Something in this cubin names byte {place:#x} of a kernel's code, which has "
                f"{self.old_count * BYTES:#x}. The cubin is damaged, or says it in a way that is "
                "not known here: leave this kernel out."
            )
        return int(table[index]) * BYTES + within


def check(words: Sequence[int]) -> None:
    """Refuse what is no instruction.

    Raises:
        PatchError: one is no number of 128 bits.
    """
    if any(not 0 <= word < 1 << 128 for word in words):
        raise PatchError("An added instruction is no number of 128 bits. Pass one for each.")


def shift(count: int, added: Sequence[Insertion]) -> tuple[Displacement, list[Insertion]]:
    """Return where so many instructions go, and what is added in the order in which it stands.

    Of two before the same instruction, the skipped one stands first; else, the order is kept.

    Raises:
        PatchError: one is to stand before an instruction that there isn't, or is none.
    """
    for each in added:
        check(each.words)
    ordered = sorted(added, key=lambda each: (each.index, not each.skipped))
    if ordered and (ordered[0].index < 0 or ordered[-1].index > count):
        raise PatchError(
            f"Instructions are to be put before number {ordered[-1].index} (or "
            f"{ordered[0].index}) of {count}: pass numbers from 0 to {count}."
        )
    all_of, landing = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    at = np.array([each.index for each in ordered], np.int64)
    sizes = np.array([len(each.words) for each in ordered], np.int64)
    met = np.array([not each.skipped for each in ordered], bool)
    np.add.at(all_of, at, sizes)
    np.add.at(landing, at, sizes * met)
    new = np.arange(count + 1) + np.cumsum(all_of)
    return Displacement(new, new - all_of, new - landing, int(new[-1])), ordered


def spread(words: Words, to: Displacement, ordered: Sequence[Insertion]) -> Words:
    """Return the code with what is added between its instructions."""
    out = np.empty((to.count, 2), np.uint64)
    out[to.new[:-1]] = words
    free = np.ones(to.count, bool)
    free[to.new[:-1]] = False
    out[free] = rows([word for each in ordered for word in each.words])
    return out
