"""Atomics of 16 bits that ptxas emulates with 32-bit ones: the register of the true address.

The word around the 16 bits is loaded and exchanged at an aligned address. An attribute lists those
instructions, each with the register that holds the lower half of the true address, for tools
that report which address an instruction touches. So the instruction counts as a reader of that
register, which inserted code must not overwrite there.
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
    """Return the register that each such instruction reads beside its operands: index -> bit.

    Raises:
        PatchError: the attribute lists other instructions.
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
