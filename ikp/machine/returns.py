"""Where calls inside a kernel's code return to: an address that a MOV puts into a register.

A called function ends in a RET.REL, which goes to that address, counted from the start of the code.
The MOV stands a few instructions before the call; its value is the address after the call: so it
was in all 1,808 calls of kernels from libraries. A CALL.REL needs none if it goes to a place in the
same function, which compilers use as a jump out of a loop, or to a function that never returns.
"""

from __future__ import annotations

import numpy as np

from ikp.errors import PatchError
from ikp.machine.cubin import Kernel
from ikp.machine.encodings import MOVE, Places
from ikp.machine.instruction import BYTES, Field, Numbers, Words, distances, opcodes

_REACH = 32
"""How many instructions before its call the MOV may stand; 9 was the most that was seen."""


def return_moves(words: Words, found: Places, kernel: Kernel, far: Field) -> Numbers:
    """Return the MOVs whose value is the address after a call.

    Raises:
        PatchError: a call has none, though the function that it calls returns.
    """
    if not len(found.calls):
        return np.zeros(0, np.int64)
    codes, values = opcodes(words), words[:, 0] >> np.uint64(32)
    targets = (found.calls + 1) * BYTES + distances(words[found.calls], far)
    made = []
    for call, target in zip(found.calls.tolist(), targets.tolist(), strict=True):
        first = max(0, call - _REACH)
        near = slice(first, call)
        fits = (codes[near] == MOVE) & (values[near] == (call + 1) * BYTES)
        moves = first + np.flatnonzero(fits)
        if len(moves) != 1 and not (
            len(moves) == 0 and _jumps(kernel, call * BYTES, target, found.returns)
        ):
            raise PatchError(
                f"{kernel.name} calls a function at byte {call * BYTES:#x} of its code, and "
                f"{len(moves)} instructions before it could set the address to return to: which "
                "one would have to change is not known. Reach the added code by trampolines, "
                "which move nothing."
            )
        made += moves.tolist()
    return np.array(made, np.int64)


def _jumps(kernel: Kernel, place: int, target: int, returns: Numbers) -> bool:
    """Whether a call stays in its function, or goes to one that never returns."""
    start, end = _function(kernel, target)
    if start == _function(kernel, place)[0]:
        return target != 0
    return not any(start <= each * BYTES < end for each in returns.tolist())


def _function(kernel: Kernel, place: int) -> tuple[int, int]:
    """Return the start and the end of the function that a place is in."""
    ends = [len(kernel.text.data)]
    starts = [0]
    for each in kernel.functions:
        (starts if each.start <= place else ends).append(each.start)
    return max(starts), min(ends)
