"""Return addresses of calls inside a kernel's code: the MOVs that set them (``return_moves``).

A called function ends in a RET.REL, which goes to an address in a register, counted from the start
of the code. A MOV sets this register to the address after the call, and precedes the call. So it
was for 1,808 calls of kernels from libraries, by 9 instructions at most, and later for a few by 60.

A function with a single call may set the address itself, on each path to a RET. There, the MOV's
register is the RET's, or is copied to that. Where the MOV can't be identified, the kernel is
refused. A number may equal the address by chance (0x400, where shared memory begins): one set under
a guard is not it.

A CALL.REL needs no MOV if its target is inside the same function: compilers use it as a jump out of
a loop.
"""

from __future__ import annotations

import numpy as np

from ikp.errors import PatchError
from ikp.sass.cubins.cubin import Kernel
from ikp.sass.cubins.encodings import MOVE, RET, Places
from ikp.sass.cubins.instruction import BYTES, Field, Numbers, Words, distances, guard, opcodes

_ALWAYS = (7, False)
_COPIES = {0x202: (0, 32), 0x224: (1, 0)}
"""Opcodes of MOV and IMAD.MOV -> half of the word, and first bit in it, of the source register."""
_IMAD_OF_NUMBER = 0x424
_SOON = 4
_BEFORE_CALL = 128
"""How many instructions before its call the MOV may be."""


def return_moves(words: Words, found: Places, kernel: Kernel, far: Field) -> Numbers:
    """Return the MOVs whose value is the address after a call.

    Raises:
        PatchError: the MOV of a call is not found, though the called function returns.
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
    """Return the last of some MOVs if it alone has no guard; else all of them."""
    always = [at for at in moves if guard(int(words[at, 0])) == _ALWAYS]
    return always if always == moves[-1:] else moves


def _set_inside(words: Words, moves: Numbers, start: int, end: int) -> list[int]:
    """Return the MOVs of a function that set its return address; none if one is of other use."""
    rets = np.flatnonzero(opcodes(words) == RET)
    inside = (rets >= start // BYTES) & (rets < end // BYTES)
    goals = {int(word) >> 24 & 0xFF for word in words[rets[inside], 0]}
    own = [int(at) for at in moves if start <= at * BYTES < end]
    if any(_in_another_way(words[start // BYTES : end // BYTES], words[at]) for at in own[:1]):
        return []
    return own if all(_comes_to(words, at, goals) for at in own) else []


def _in_another_way(words: Words, move: Words) -> bool:
    """Whether an IMAD.MOV sets the same value as a MOV: it may be the return address as well."""
    same = (words[:, 0] ^ move[0]) >> np.uint64(32) == 0
    return bool((same & (opcodes(words) == _IMAD_OF_NUMBER)).any())


def _comes_to(words: Words, move: int, goals: set[int]) -> bool:
    """Whether the value of a MOV is in one of some registers within a few instructions."""
    register = _target(words[move])
    for word in words[move + 1 : move + 1 + _SOON]:
        source = _COPIES.get(int(word[0]) & 0xFFF)
        if source and int(word[source[0]]) >> source[1] & 0xFF == register:
            return _target(word) in goals
    return register in goals


def _target(word: Words) -> int:
    return int(word[0]) >> 16 & 0xFF


def _jumps(kernel: Kernel, address: int, target: int) -> bool:
    """Whether the target of a call is inside the same function."""
    return target != 0 and _function(kernel, target) == _function(kernel, address)


def _function(kernel: Kernel, address: int) -> tuple[int, int]:
    """Return the start and the end of the function that holds a code address."""
    ends = [len(kernel.text.data)]
    starts = [0]
    for each in kernel.functions:
        (starts if each.start <= address else ends).append(each.start)
    return max(starts), min(ends)
