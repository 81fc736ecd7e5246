"""Rewrites probe code to keep part of a frame in per-thread registers, where uniform ones run out.

Values that never change may lie there: all threads of a warp have them alike, converged or
diverged. The cursor is the warp's, if one uniform register is left. If none is, each thread counts,
and all alike: records are made only where all threads of a warp come. If some came later than
others, theirs would overwrite the same record. Probe code is made as if all registers were uniform;
``fitted`` replaces the instructions of which a register is a thread's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ikp.errors import PatchError
from ikp.sass.assembly.assembler import Resource, Step
from ikp.sass.assembly.forms import add, copy, immediate

FIRST: Final = 64
"""A frame's register numbers from here on are no uniform registers: they index ``Frame.own``."""

_TO_UNIFORM, _FROM_UNIFORM = 0x2CA, 0xE24
_ZERO, _ADD = 0xC82, 0x890
"""The opcodes that set the cursor to zero, and add to it."""
_OPERAND: Final = 0xE00
"""The bits of an opcode that differ where its second operand is uniform, not a thread's."""
_UNIFORM: Final = 0x08000000
"""The bits that differ in the upper half."""
_OTHERS: Final = (0xC0C, 0xC11)


def fitted(steps: Sequence[Step], own: Sequence[int]) -> list[Step]:
    """Return instructions with a frame's per-thread registers in place of uniform numbers.

    Raises:
        PatchError: an instruction has no form with a per-thread register.
    """
    return [_fit(step, own) if own else step for step in steps]


def _fit(step: Step, own: Sequence[int]) -> Step:
    named = [n for file, n in step.reads | step.writes if file == "U" and n >= FIRST]
    if not named:
        return step
    (number,), opcode = named, step.low & 0xFFF
    register, field = own[number - FIRST], step.low >> 16 & 0xFF
    if opcode == _TO_UNIFORM:
        made = copy(register, step.low >> 24 & 0xFF)
    elif opcode == _FROM_UNIFORM:
        made = copy(field, register)
    elif opcode == _ZERO:
        made = immediate(register, 0)
    elif opcode == _ADD:
        made = add(register, register, step.low >> 32)
    elif opcode in _OTHERS:
        low = step.low & ~(0xFF << 32) ^ _OPERAND | register << 32
        return replace(step, low=low, high=step.high ^ _UNIFORM, reads=_swapped(step, register))
    else:
        raise PatchError(f"what is kept is read by opcode {opcode:#x}, in no thread's register.")
    guarded = made.reads | {each for each in step.reads if each[0] == "P"}
    return replace(made, reads=guarded, guard=step.guard, inverted=step.inverted, waits=step.waits)


def _swapped(step: Step, register: int) -> frozenset[Resource]:
    kept = {(file, n) for file, n in step.reads if file != "U" or n < FIRST}
    return frozenset(kept | {("R", register)})
