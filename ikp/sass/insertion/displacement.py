"""Displacement: code to insert, an old instruction's new index, and rollback of refused changes."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ikp.errors import PatchError
from ikp.sass.cubins.cubin import Cubin, Kernel
from ikp.sass.cubins.instruction import BYTES, Numbers, Words, rows


@contextmanager
def attempt(cubin: Cubin, kernel: Kernel) -> Iterator[None]:
    """Roll back all changes to a cubin's sections and a kernel if one is refused.

    The cubin can then still be written.

    Raises:
        PatchError: also where parts of the cubin contradict each other.
    """
    sections = [(each, each.data, each.info) for each in cubin.elf.sections]
    attributes = [(each, each.value) for each in kernel.attributes]
    registers, done = kernel.registers, False
    try:
        yield
        done = True
    except (struct.error, ValueError, LookupError, OverflowError) as error:
        raise PatchError(
            f"The cubin with {kernel.name} is damaged: its parts contradict each other ({error}). "
            "Compile it again."
        ) from error
    finally:
        if not done:
            kernel.registers = registers
            for section, data, info in sections:
                section.data, section.info = data, info
            for attribute, value in attributes:
                attribute.value = value


@dataclass(frozen=True)
class Insertion:
    """Instructions to insert before another one, which goes by its index in the kernel's code.

    ``skipped``: branches to that instruction skip the inserted ones, which are reached only by
    falling through, or by the return of a call. Otherwise, every path to it runs them.
    """

    index: int
    words: tuple[int, ...]  # 128 bits each
    skipped: bool = False


@dataclass(frozen=True)
class Displacement:
    """New indices of each instruction, by its old index; the last entry is the code's end."""

    new: Numbers  # of the instruction itself
    start: Numbers  # of the first instruction inserted before it: falling through leads here
    land: Numbers  # of the target of branches to it
    count: int  # how many instructions there are now, without those appended at the end

    @property
    def old_count(self) -> int:
        """How many instructions there were."""
        return len(self.new) - 1

    def moved(self, place: int) -> int:
        """Return the new address of the instruction at an old address, both in bytes."""
        return self._of(self.new, place)

    def begun(self, place: int) -> int:
        """Return the new address of the code inserted before the instruction at an old address."""
        return self._of(self.start, place)

    def landed(self, place: int) -> int:
        """Return the new target of a branch to an old address; the code's own start stays."""
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
    """Refuse words that are no instructions.

    Raises:
        PatchError: a word is no number of 128 bits.
    """
    if any(not 0 <= word < 1 << 128 for word in words):
        raise PatchError("An added instruction is no number of 128 bits. Pass one for each.")


def shift(count: int, added: Sequence[Insertion]) -> tuple[Displacement, list[Insertion]]:
    """Return the displacement of ``count`` instructions, and the insertions in their final order.

    Of two before the same instruction, the skipped one comes first; else, the order is kept.

    Raises:
        PatchError: an insertion is before an instruction that does not exist, or has a wrong word.
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
    """Return the code with the insertions between its instructions."""
    out = np.empty((to.count, 2), np.uint64)
    out[to.new[:-1]] = words
    free = np.ones(to.count, bool)
    free[to.new[:-1]] = False
    out[free] = rows([word for each in ordered for word in each.words])
    return out
