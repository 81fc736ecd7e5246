"""``insert``: put instructions into a kernel, whose own keep every bit but code addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ikp.errors import PatchError
from ikp.sass.cubins.cubin import Cubin, Kernel
from ikp.sass.cubins.encodings import BRA, BRA_UNIFORM, Places, branches, places
from ikp.sass.cubins.instruction import (
    BYTES,
    LINE,
    PADDING,
    Field,
    Numbers,
    Words,
    branch,
    distances,
    opcodes,
    rows,
    set_distances,
)
from ikp.sass.insertion._branch_tables import move_tables
from ikp.sass.insertion._references import follow
from ikp.sass.insertion._transaction import attempt
from ikp.sass.insertion.displacement import Displacement, Insertion, check, shift, spread
from ikp.sass.insertion.return_addresses import return_moves

_LOW = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True)
class OnEdge:
    """Instructions that are run when a branch, given by its index in the code, is taken."""

    branch: int
    words: tuple[int, ...]  # 128 bits each


def insert(
    cubin: Cubin, name: str, added: Sequence[Insertion], edges: Sequence[OnEdge] = ()
) -> Displacement:
    """Put instructions into a kernel, and update all references to its code addresses.

    Returns:
        The displacement: the new index of each instruction.

    Raises:
        PatchError: an instruction or a reference is not known well enough to move it.
    """
    kernel = cubin.kernel(name)
    with attempt(cubin, kernel):
        return _insert(cubin, kernel, added, edges)


def _insert(
    cubin: Cubin, kernel: Kernel, added: Sequence[Insertion], edges: Sequence[OnEdge]
) -> Displacement:
    words, far = kernel.words, branches(cubin.sm)
    to, ordered = shift(len(words), added)
    found = places(words, cubin.sm, kernel.name)
    _refuse_inside(kernel, words, ordered, found.collectives, far)
    moves = return_moves(words, found, kernel, far)
    move_tables(cubin.elf, kernel, found.indirect.tolist(), to)
    out = spread(words, to, ordered)
    _aim(cubin, kernel, words, out, found, to)
    returns = (words[moves, 0] >> np.uint64(32)).tolist()
    _set_values(out, to.new[moves], [to.begun(each) for each in returns])
    out = np.concatenate([out, _appended(out, to, edges, far, len(words))])
    kernel.text.data = out.tobytes()
    follow(cubin, kernel, to, len(out) * BYTES)
    return to


def _refuse_inside(
    kernel: Kernel, words: Words, added: Sequence[Insertion], collectives: Numbers, far: Field
) -> None:
    """Refuse instructions in the body of a collective: lanes run it that are inactive around it."""
    at = np.array([each.index for each in added], np.int64)
    ends = collectives + 1 + distances(words[collectives], far) // BYTES
    for begin, end in zip(collectives.tolist(), ends.tolist(), strict=True):
        if ((at > begin) & (at < end)).any():
            raise PatchError(
                f"Instructions are to be put into a collective of {kernel.name}, between numbers "
                f"{begin} and {end}. Put them before it or behind it."
            )


def _aim(
    cubin: Cubin, kernel: Kernel, old: Words, out: Words, found: Places, to: Displacement
) -> None:
    """Write the new distance into each instruction that encodes a code address."""
    linked = relocated(cubin, kernel)
    for field, at in found.jumps:
        _aim_some(kernel, old, out, field, at[~linked[at]], to, to.land)
    for field, at in found.joins:
        _aim_some(kernel, old, out, field, at[~linked[at]], to, to.start)
    for field, at in found.bases:
        _keep_base(kernel, old, out, field, at, to)


def _aim_some(
    kernel: Kernel,
    old: Words,
    out: Words,
    field: Field,
    at: Numbers,
    to: Displacement,
    table: Numbers,
) -> None:
    targets = (at + 1) * BYTES + distances(old[at], field)
    if len(at) and (
        targets.min() < 0 or targets.max() >= len(old) * BYTES or (targets % BYTES).any()
    ):
        raise PatchError(
            f"A branch of {kernel.name} leads out of its code: to where is not known. Leave this "
            "kernel out."
        )
    new = table[targets // BYTES] - to.new[at] - 1
    changed = out[to.new[at]]
    set_distances(changed, field, new * BYTES)
    out[to.new[at]] = changed


def _keep_base(
    kernel: Kernel, old: Words, out: Words, field: Field, at: Numbers, to: Displacement
) -> None:
    """Update branches to the code's start plus a register: they still count from the start."""
    if ((at + 1) * BYTES + distances(old[at], field)).any():
        raise PatchError(
            f"{kernel.name} has a branch to a register's value that doesn't count from the code's "
            "start, as every known one does. Leave this kernel out."
        )
    changed = out[to.new[at]]
    set_distances(changed, field, -(to.new[at] + 1) * BYTES)
    out[to.new[at]] = changed


def relocated(cubin: Cubin, kernel: Kernel) -> np.ndarray:
    """Return which instructions the loader relocates: it writes their distances itself."""
    marked = np.zeros(len(kernel.text.data) // BYTES + 1, bool)
    for section, table in cubin.elf.relocations():
        if section.info == kernel.index:
            marked[table["offset"] // BYTES] = True
    return marked


def _set_values(out: Words, at: Numbers, values: Sequence[int]) -> None:
    new = np.array(values, np.uint64) << np.uint64(32)
    out[at, 0] = (out[at, 0] & _LOW) | new


def _appended(
    out: Words, to: Displacement, edges: Sequence[OnEdge], far: Field, count: int
) -> Words:
    """Return the words to append to the code: the instructions on edges, and padding."""
    more: list[int] = []
    for edge in edges:
        check(edge.words)
        at = int(to.new[_checked(out, to, edge.branch, count)])
        here = to.count + len(more)
        target = at + 1 + int(distances(out[at : at + 1], far)[0]) // BYTES
        more += [*edge.words, branch(far, (target - here - len(edge.words) - 1) * BYTES)]
        changed = out[at : at + 1]
        set_distances(changed, far, np.array([(here - at - 1) * BYTES]))
    more += [PADDING] * (-(to.count + len(more)) % LINE)
    return rows(more)


def _checked(out: Words, to: Displacement, index: int, count: int) -> int:
    if not 0 <= index < count or int(opcodes(out)[to.new[index]]) not in (BRA, BRA_UNIFORM):
        raise PatchError(
            f"Instruction {index} is no branch with a target of its own, so it has no edge to put "
            "instructions on. Pass the number of a BRA."
        )
    return index
