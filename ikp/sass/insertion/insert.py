"""``insert``: put instructions into a kernel; ``PlainCode``: put a copy of its code before it.

The copy of the plain code is for blocks that do not record. It has the same words in the same
order, so relative branches inside it stay inside it. Attributes that hold code addresses list those
of the copy, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ikp.errors import PatchError
from ikp.sass.cubins import attributes
from ikp.sass.cubins.attributes import Attribute, Format
from ikp.sass.cubins.cubin import Cubin, Kernel
from ikp.sass.cubins.instruction import (
    BRA,
    BRA_UNIFORM,
    BYTES,
    LINE,
    PADDING,
    PASSED,
    AddressFields,
    DistanceField,
    Numbers,
    Words,
    branch,
    branches,
    distances,
    number,
    opcodes,
    places,
    rows,
    set_distances,
)
from ikp.sass.insertion._references import follow, move_tables, return_moves
from ikp.sass.insertion.displacement import Displacement, Insertion, attempt, check, shift, spread

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
    kernel: Kernel,
    words: Words,
    added: Sequence[Insertion],
    collectives: Numbers,
    far: DistanceField,
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
    cubin: Cubin, kernel: Kernel, old: Words, out: Words, found: AddressFields, to: Displacement
) -> None:
    """Write the new distance into each instruction that encodes a code address."""
    linked = cubin.relocated(kernel)  # the loader writes their distances itself
    for field, at in found.jumps:
        _aim_some(kernel, old, out, field, at[~np.isin(at, linked)], to, to.land)
    for field, at in found.joins:
        _aim_some(kernel, old, out, field, at[~np.isin(at, linked)], to, to.start)
    for field, at in found.bases:
        _keep_base(kernel, old, out, field, at, to)


def _aim_some(
    kernel: Kernel,
    old: Words,
    out: Words,
    field: DistanceField,
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
    kernel: Kernel, old: Words, out: Words, field: DistanceField, at: Numbers, to: Displacement
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


def _set_values(out: Words, at: Numbers, values: Sequence[int]) -> None:
    new = np.array(values, np.uint64) << np.uint64(32)
    out[at, 0] = (out[at, 0] & _LOW) | new


def _appended(
    out: Words, to: Displacement, edges: Sequence[OnEdge], far: DistanceField, count: int
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


@dataclass(frozen=True)
class PlainCode:
    """A kernel's plain code, as it was before any insertion."""

    words: Words
    places: list[bytes]  # the code addresses in each attribute that holds some

    @classmethod
    def of(cls, cubin: Cubin, kernel: Kernel) -> PlainCode:
        """Return the plain code of a kernel with no insertions yet.

        Raises:
            PatchError: code of the copy would lead into the patched code, or not be complete.
        """
        words = kernel.words
        if len(places(words, cubin.sm, kernel.name).indirect):
            raise PatchError(f"{kernel.name} has one table for its indirect branches.")
        if len(cubin.relocated(kernel)):
            raise PatchError(f"{kernel.name} has addresses that the loader writes into its code.")
        held = [each for each in kernel.attributes if each.code in attributes.HOLDS_PLACES]
        if any(2 * len(each.data) > attributes.MOST_BYTES for each in held):
            raise PatchError(f"{kernel.name} has too many code addresses in its attributes.")
        return cls(words, [each.data for each in held])

    def behind(self, steps: Sequence[int], sm: int) -> Insertion:
        """Return the insertion at a kernel's start: some steps, then the copy.

        The steps end in a branch over the copy. The copy begins at a line of 128 bytes, as it did.
        """
        *asked, jump = steps
        padding = [PASSED] * (-len(steps) % LINE)
        over = rows([jump])
        set_distances(over, branches(sm), np.array([len(self.words) * BYTES]))
        return Insertion(0, (*padding, *asked, number(over[0]), *map(number, self.words)), True)

    def span_of(self, before: Insertion) -> tuple[int, int]:
        """Return the range of bytes of the copy in a kernel's code."""
        end = len(before.words) * BYTES
        return end - len(self.words) * BYTES, end

    def follow(self, cubin: Cubin, name: str, before: Insertion) -> None:
        """Add the copy's code addresses to the attributes that list those of the kernel.

        Args:
            cubin: the file, with all insertions made.
            name: the kernel's name.
            before: the insertion with the copy.
        """
        kernel = cubin.kernel(name)
        begin, _ = self.span_of(before)
        with attempt(cubin, kernel):
            held = [each for each in kernel.attributes if each.code in attributes.HOLDS_PLACES]
            for first, data in zip(held, self.places, strict=True):
                second = Attribute(Format.SIZED, first.code, data)
                attributes.move([second], lambda address: address + begin, name)
                first.value = first.data + second.data
            info = cubin.elf.find(f".nv.info.{name}")
            if info is not None:
                info.data = attributes.write(kernel.attributes)
