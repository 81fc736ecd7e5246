"""Instructions reached by a branch in the place of another, which moves behind the code.

The code grows at its end alone, so no place in it changes: it works where tables or registers hold
places that can't be followed. It costs two branches each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from ikp.errors import PatchError
from ikp.machine._attempt import attempt
from ikp.machine._follow import follow
from ikp.machine.attributes import Code, indirect_branches
from ikp.machine.cubin import Cubin, Kernel
from ikp.machine.encodings import branches, names_place
from ikp.machine.instruction import (
    BYTES,
    PADDING,
    Field,
    Words,
    branch,
    distances,
    number,
    opcodes,
    rows,
)
from ikp.machine.shift import Before, Shift, in_order

_LINE = 8  # instructions: a kernel's code is a multiple of 128 bytes


def trampoline(cubin: Cubin, name: str, added: Sequence[Before]) -> Shift:
    """Let a kernel run instructions before others of it, without moving any but those.

    Returns:
        Where each instruction is now; branches still go where they went.

    Raises:
        PatchError: an instruction can't stand elsewhere, or something about it is not known.
    """
    kernel = cubin.kernel(name)
    with attempt(cubin, kernel):
        return _trampoline(cubin, kernel, added)


def _trampoline(cubin: Cubin, kernel: Kernel, added: Sequence[Before]) -> Shift:
    words, far = kernel.words, branches(cubin.sm)
    count, new, more = len(words), np.arange(len(words) + 1), list[int]()
    ordered = in_order(added)
    out = words.copy()
    for index, group in groupby(ordered, key=lambda each: each.index):
        here, those = count + len(more), list(group)
        _check(cubin, kernel, words, index, any(each.skipped for each in those))
        more += [word for each in those for word in each.words]
        new[index] = count + len(more)
        back = index - count - len(more) - 1
        more += [number(words[index]), branch(far, back * BYTES)]
        out[index] = rows([branch(far, (here - index - 1) * BYTES)])[0]
    more += [PADDING] * (-(count + len(more)) % _LINE)
    out = np.concatenate([out, rows(more)])
    kernel.text.data = out.tobytes()
    stay = np.arange(count + 1)
    to = Shift(new, stay, stay, count)
    follow(cubin, kernel, to, len(out) * BYTES, {each.index * BYTES for each in ordered})
    return to


def _check(cubin: Cubin, kernel: Kernel, words: Words, index: int, skipped: bool) -> None:
    if not 0 <= index < len(words):
        raise PatchError(
            f"{kernel.name} has no instruction {index} to put others before: pass a number from 0 "
            f"to {len(words) - 1}."
        )
    opcode = int(opcodes(words[index : index + 1])[0])
    if names_place(opcode):
        raise PatchError(
            f"Instruction {index} of {kernel.name} (opcode {opcode:#x}) counts from its own place, "
            "or steers what is run in a way that is not known here, so it can't stand behind the "
            "code. Pass the number of another one near it."
        )
    if skipped and index * BYTES in _targets(kernel, words, branches(cubin.sm)):
        raise PatchError(
            f"A branch of {kernel.name} goes to instruction {index}, and a trampoline there can't "
            "tell who comes by a branch. Let the branches run the added instructions too, or take "
            "the instruction before."
        )


def _targets(kernel: Kernel, words: Words, far: Field) -> set[int]:
    """Return the places that branches go to."""
    jumps = np.flatnonzero(np.isin(opcodes(words), (0x947, 0x547, 0x944)))
    found = set(((jumps + 1) * BYTES + distances(words[jumps], far)).tolist())
    for each in kernel.attributes:
        if each.code == Code.INDIRECT_BRANCH_TARGETS:
            for table in indirect_branches(each):
                found.update(table.targets)
    return found
