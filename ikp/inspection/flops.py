"""How many floating-point operations a product of matrices is, by its opcode's shape."""

from __future__ import annotations

import re
from typing import Final

from ikp.sass.disassembly.listing import Instruction

_GROUP: Final = re.compile(r"[A-Z]*GMMA\.(?:SP\.)?(\d+)x(\d+)x(\d+)")
_WARP: Final = re.compile(r"[A-Z]+MMA\.(?:SP\.)?(\d{3,5})(?:\.|$)")
_SHAPES: Final = {
    "16816": (16, 8, 16),
    "1688": (16, 8, 8),
    "1684": (16, 8, 4),
    "16832": (16, 8, 32),
    "16864": (16, 8, 64),
    "16128": (16, 8, 128),
    "884": (8, 8, 4),
    "8816": (8, 8, 16),
    "8832": (8, 8, 32),
}
_WARPS_OF_A_GROUP: Final = 4


def flop(instruction: Instruction) -> int | None:
    """Return the operations of one warp's part in a product, two for each pair that is multiplied.

    A warpgroup's product counts a quarter for each of its warps. None where the opcode doesn't say
    the shape (tcgen05: a descriptor does), where half of a side is left out (sparse), or where the
    product stands under a condition.
    """
    if instruction.guard or ".SP" in instruction.opcode:
        return None
    if found := _GROUP.match(instruction.opcode):
        m, n, k = map(int, found.groups())
        return 2 * m * n * k // _WARPS_OF_A_GROUP
    if (found := _WARP.match(instruction.opcode)) and found[1] in _SHAPES:
        m, n, k = _SHAPES[found[1]]
        return 2 * m * n * k
    return None
