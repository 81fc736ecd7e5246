"""Where calls inside a kernel's code return to: an address that a MOV puts into a register.

A called function ends in a RET.REL, which goes to that address, counted from the start of the code.
The value of the MOV is the address after the call, and it stands before the call: so it was for
1,808 calls of kernels from libraries, 9 instructions before at most, and later for a few that were
60. A function that is called from one place alone may set it itself; such a kernel is refused. A
number may equal it by chance (0x400, where shared memory begins): one set under a guard is not it.

A CALL.REL needs none if it goes to a place in the same function, which compilers use as a jump out
of a loop.
"""

from __future__ import annotations

import numpy as np

from ikp.errors import PatchError
from ikp.machine.cubin import Kernel
from ikp.machine.encodings import MOVE, Places
from ikp.machine.instruction import BYTES, Field, Numbers, Words, distances, guard, opcodes

_ALWAYS = (7, False)
_BEFORE_CALL = 128
"""How many instructions before its call the MOV may stand."""


def return_moves(words: Words, found: Places, kernel: Kernel, far: Field) -> Numbers:
    """Return the MOVs whose value is the address after a call.

    Raises:
        PatchError: a call has none, though the function that it calls returns.
    """
    if not len(found.calls):
        return np.zeros(0, np.int64)
    moves = np.flatnonzero(opcodes(words) == MOVE)
    values = (words[moves, 0] >> np.uint64(32)).astype(np.int64)
    targets = (found.calls + 1) * BYTES + distances(words[found.calls], far)
    made: list[int] = []
    for call, target in zip(found.calls.tolist(), targets.tolist(), strict=True):
        fitting = moves[values == (call + 1) * BYTES]
        near = fitting[(fitting < call) & (fitting >= call - _BEFORE_CALL)].tolist()
        near = _unguarded(words, near) if len(near) > 1 else near
        if len(near) != 1 and (near or not _jumps(kernel, call * BYTES, target)):
            raise PatchError(
                f"{kernel.name} calls a function at byte {call * BYTES:#x} of its code, and which "
                "instruction sets the address to return to is not known. Reach the added code by "
                "trampolines, which move nothing."
            )
        made += near
    return np.array(made, np.int64)


def _unguarded(words: Words, moves: list[int]) -> list[int]:
    """Return the last of some MOVs if it alone is done always; else all of them."""
    always = [at for at in moves if guard(int(words[at, 0])) == _ALWAYS]
    return always if always == moves[-1:] else moves


def _jumps(kernel: Kernel, place: int, target: int) -> bool:
    """Whether a call goes to a place in the same function, which is no function's start."""
    return target != 0 and _function(kernel, target) == _function(kernel, place)


def _function(kernel: Kernel, place: int) -> tuple[int, int]:
    """Return the start and the end of the function that a place is in."""
    ends = [len(kernel.text.data)]
    starts = [0]
    for each in kernel.functions:
        (starts if each.start <= place else ends).append(each.start)
    return max(starts), min(ends)
