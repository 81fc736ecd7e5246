"""Where calls inside a kernel's code return to: an address that a MOV puts into a register.

A called function ends in a RET.REL, which goes to that address, counted from the start of the code.
The value of the MOV is the address after the call, and it stands before the call: so it was for
1,808 calls of kernels from libraries, 9 instructions before at most, and later for a few that were
60. A function that is called from one place alone may set it itself, on each way to a RET: there,
the MOV's register is the RET's, or is copied to that. Where anything else has that value, the
kernel is refused. A number may equal it by chance (0x400, where shared memory begins): one set
under a guard is not it.

A CALL.REL needs none if it goes to a place in the same function, which compilers use as a jump out
of a loop.
"""

from __future__ import annotations

import numpy as np

from ikp.errors import PatchError
from ikp.sass.cubins.cubin import Kernel
from ikp.sass.cubins.encodings import MOVE, RET, Places
from ikp.sass.cubins.instruction import BYTES, Field, Numbers, Words, distances, guard, opcodes

_ALWAYS = (7, False)
_COPIES = {0x202: (0, 32), 0x224: (1, 0)}
"""Opcodes of MOV and IMAD.MOV: the half of the word, and the bits, where the source stands."""
_IMAD_OF_NUMBER = 0x424
_SOON = 4
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
        sure = len(near) == 1 or (not near and _jumps(kernel, call * BYTES, target))
        if not (near or sure) and np.count_nonzero(targets == target) == 1:
            near = _set_inside(words, fitting, *_function(kernel, target))
            sure = bool(near)
        if not sure:
            raise PatchError(
                f"{kernel.name} calls a function at byte {call * BYTES:#x} of its code, and which "
                "instruction sets the address to return to is not known. Leave this kernel out."
            )
        made += near
    return np.array(made, np.int64)


def _unguarded(words: Words, moves: list[int]) -> list[int]:
    """Return the last of some MOVs if it alone is done always; else all of them."""
    always = [at for at in moves if guard(int(words[at, 0])) == _ALWAYS]
    return always if always == moves[-1:] else moves


def _set_inside(words: Words, moves: Numbers, start: int, end: int) -> list[int]:
    """Return the MOVs of a function whose values are where it returns to; none if one isn't."""
    rets = np.flatnonzero(opcodes(words) == RET)
    inside = (rets >= start // BYTES) & (rets < end // BYTES)
    goals = {int(word) >> 24 & 0xFF for word in words[rets[inside], 0]}
    own = [int(at) for at in moves if start <= at * BYTES < end]
    if any(_in_another_way(words[start // BYTES : end // BYTES], words[at]) for at in own[:1]):
        return []
    return own if all(_comes_to(words, at, goals) for at in own) else []


def _in_another_way(words: Words, move: Words) -> bool:
    """Whether an IMAD.MOV sets what a MOV does: that may be where it returns to as well."""
    same = (words[:, 0] ^ move[0]) >> np.uint64(32) == 0
    return bool((same & (opcodes(words) == _IMAD_OF_NUMBER)).any())


def _comes_to(words: Words, move: int, goals: set[int]) -> bool:
    """Whether what a MOV sets is soon in one of some registers."""
    register = _target(words[move])
    for word in words[move + 1 : move + 1 + _SOON]:
        source = _COPIES.get(int(word[0]) & 0xFFF)
        if source and int(word[source[0]]) >> source[1] & 0xFF == register:
            return _target(word) in goals
    return register in goals


def _target(word: Words) -> int:
    return int(word[0]) >> 16 & 0xFF


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
