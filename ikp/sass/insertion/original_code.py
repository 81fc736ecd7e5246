"""``PlainCode``: a copy of the plain code before the patched code, for blocks that do not record.

The copy has the same words in the same order, so relative branches inside it stay inside it.
Attributes that hold code addresses list those of the copy, too.
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
    """A kernel's plain code, as it was before any insertion."""

    words: Words
    places: list[bytes]  # the code addresses in each attribute that holds some

    @classmethod
    def of(cls, cubin: Cubin, kernel: Kernel) -> PlainCode:
        """Return the plain code of a kernel with no insertions yet.

        Raises:
            PatchError: code of the copy would lead into the patched code, or not be complete.
        """
        words = kernel.words
        if len(places(words, cubin.sm, kernel.name).indirect):
            raise PatchError(f"{kernel.name} has one table for its indirect branches.")
        if relocated(cubin, kernel).any():
            raise PatchError(f"{kernel.name} has addresses that the loader writes into its code.")
        held = [each for each in kernel.attributes if each.code in attributes.HOLDS_PLACES]
        if any(2 * len(each.data) > attributes.MOST_BYTES for each in held):
            raise PatchError(f"{kernel.name} has too many code addresses in its attributes.")
        return cls(words, [each.data for each in held])

    def behind(self, steps: Sequence[int], sm: int) -> Insertion:
        """Return the insertion at a kernel's start: some steps, then the copy.

        The steps end in a branch over the copy. The copy begins at a line of 128 bytes, as it did.
        """
        *asked, jump = steps
        padding = [PASSED] * (-len(steps) % LINE)
        over = rows([jump])
        set_distances(over, branches(sm), np.array([len(self.words) * BYTES]))
        return Insertion(0, (*padding, *asked, number(over[0]), *map(number, self.words)), True)

    def span_of(self, before: Insertion) -> tuple[int, int]:
        """Return the range of bytes of the copy in a kernel's code."""
        end = len(before.words) * BYTES
        return end - len(self.words) * BYTES, end

    def follow(self, cubin: Cubin, name: str, before: Insertion) -> None:
        """Add the copy's code addresses to the attributes that list those of the kernel.

        Args:
            cubin: the file, with all insertions made.
            name: the kernel's name.
            before: the insertion with the copy.
        """
        kernel = cubin.kernel(name)
        begin, _ = self.span_of(before)
        with attempt(cubin, kernel):
            held = [each for each in kernel.attributes if each.code in attributes.HOLDS_PLACES]
            for first, data in zip(held, self.places, strict=True):
                second = Attribute(Format.SIZED, first.code, data)
                attributes.move([second], lambda address: address + begin, name)
                first.value = first.data + second.data
            info = cubin.elf.find(f".nv.info.{name}")
            if info is not None:
                info.data = attributes.write(kernel.attributes)
