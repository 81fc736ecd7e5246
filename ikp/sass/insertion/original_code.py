"""A kernel's own code, put once more in front of what becomes of it: who does not record runs that.

It is the same words in the same order, so what leads from one to another of them, or adds to where
it stands itself, leads to the copy. Places of which attributes tell are told twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ikp.errors import PatchError
from ikp.sass.cubins import attributes
from ikp.sass.cubins.attributes import Attribute, Format
from ikp.sass.cubins.cubin import Cubin, Kernel
from ikp.sass.cubins.encodings import branches, places
from ikp.sass.cubins.instruction import (
    BYTES,
    LINE,
    PASSED,
    Words,
    number,
    rows,
    set_distances,
)
from ikp.sass.insertion._transaction import attempt
from ikp.sass.insertion.displacement import Insertion
from ikp.sass.insertion.insert import relocated


@dataclass(frozen=True)
class PlainCode:
    """A kernel's own code, as it was before anything was put into it."""

    words: Words
    told: list[bytes]  # places in it, as each attribute holds them that does

    @classmethod
    def of(cls, cubin: Cubin, kernel: Kernel) -> PlainCode:
        """Return that of a kernel that nothing was put into yet.

        Raises:
            PatchError: the copy would lead to places in the other, or not be whole.
        """
        words = kernel.words
        if len(places(words, cubin.sm, kernel.name).indirect):
            raise PatchError(f"{kernel.name} has one table for its indirect branches.")
        if relocated(cubin, kernel).any():
            raise PatchError(f"{kernel.name} has addresses that the loader writes into its code.")
        held = [each for each in kernel.attributes if each.code in attributes.HOLDS_PLACES]
        if any(2 * len(each.data) > attributes.MOST_BYTES for each in held):
            raise PatchError(f"{kernel.name} has too many places of which its attributes tell.")
        return cls(words, [each.data for each in held])

    def behind(self, steps: Sequence[int], sm: int) -> Insertion:
        """Return it as what a kernel begins with, behind steps that end in a branch over it.

        It begins with a line of the cache, as it did.
        """
        *asked, jump = steps
        padding = [PASSED] * (-len(steps) % LINE)
        over = rows([jump])
        set_distances(over, branches(sm), np.array([len(self.words) * BYTES]))
        return Insertion(0, (*padding, *asked, number(over[0]), *map(number, self.words)), True)

    def stands(self, before: Insertion) -> tuple[int, int]:
        """Return from which byte of a kernel's code to which the copy stands."""
        end = len(before.words) * BYTES
        return end - len(self.words) * BYTES, end

    def follow(self, cubin: Cubin, name: str, before: Insertion) -> None:
        """Let all that names places in a kernel's code name those in the copy, too.

        Args:
            cubin: the file, into whose kernel all was put that is to be.
            name: the kernel's.
            before: the copy.
        """
        kernel = cubin.kernel(name)
        begin, _ = self.stands(before)
        with attempt(cubin, kernel):
            held = [each for each in kernel.attributes if each.code in attributes.HOLDS_PLACES]
            for first, data in zip(held, self.told, strict=True):
                second = Attribute(Format.SIZED, first.code, data)
                attributes.move([second], lambda place: place + begin, name)
                first.value = first.data + second.data
            info = cubin.elf.find(f".nv.info.{name}")
            if info is not None:
                info.data = attributes.write(kernel.attributes)
