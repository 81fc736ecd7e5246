"""Atomics of 16 bits that ptxas makes of 32-bit ones: which register has the address meant.

The word around the 16 bits is loaded and exchanged at an aligned address. An attribute lists those
instructions, each with the register that holds the lower half of the address that was meant: for
tools that say which address an instruction touches. So it reads that register, as far as anybody
else is to write there.
"""

from __future__ import annotations

from typing import Final

from ikp.errors import PatchError
from ikp.sass.cubins.attributes import Code
from ikp.sass.cubins.cubin import Kernel
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.resources import R

_TOUCHES: Final = ("LD", "LDG", "LDS", "ATOM", "ATOMG", "ATOMS")


def addressed(kernel: Kernel, instructions: tuple[Instruction, ...]) -> dict[int, int]:
    """Return what such instructions read beside their operands: index -> the register's bit.

    Raises:
        PatchError: what is listed is not that.
    """
    listed = (each for each in kernel.attributes if each.code == Code.EMULATED_ATOMICS)
    pairs = [
        pair for each in listed for pair in zip(each.words[::2], each.words[1::2], strict=False)
    ]
    if not pairs:  # as nearly always
        return {}
    known = {i.address: at for at, i in enumerate(instructions) if i.op in _TOUCHES}
    if any(place not in known or register >= R.count for place, register in pairs):
        raise PatchError(
            f"{kernel.name} lists emulated atomics where there are none: that is not known here."
        )
    return {known[place]: 1 << R.first + register for place, register in pairs}
