"""Code as a graph: what inserting must do, said in another way than the code under test says it."""

from __future__ import annotations

from collections.abc import Sequence

from ikp.sass.cubins.instruction import BYTES, PADDING, Words, distances, number, places
from ikp.sass.insertion.displacement import Insertion

Node = tuple[int, int | None]
"""An instruction without its distance, and the number of its target."""

MOVE, CALL = 0x802, 0x944


def graph(words: Words, sm: int) -> list[Node]:
    """Return the code, each distance replaced by the number of the instruction it leads to."""
    found = places(words, sm, "model")
    plain = [number(row) for row in words]
    targets: list[int | None] = [None] * len(words)
    for field, at in (*found.jumps, *found.joins, *found.bases):
        for index, distance in zip(at.tolist(), distances(words[at], field).tolist(), strict=True):
            targets[index] = index + 1 + distance // BYTES
            plain[index] = without(plain[index], field)
    for call in found.calls.tolist():
        for index in range(max(0, call - 32), call):
            if (
                plain[index] & 0xFFF == MOVE
                and plain[index] >> 32 & 0xFFFFFFFF == (call + 1) * BYTES
            ):
                plain[index] &= ~(0xFFFFFFFF << 32)
                targets[index] = call + 1
    return list(zip(plain, targets, strict=True))


def without(word: int, field: object) -> int:
    for half, first, bits in field.parts:  # type: ignore[attr-defined]
        word &= ~(((1 << bits) - 1) << (first + 64 * half))
    return word


def expected(words: Words, sm: int, added: Sequence[Insertion], size: int) -> list[Node]:
    """Return the graph of the code with what is added: built node by node, numbered afterwards."""
    old = graph(words, sm)
    found = places(words, sm, "model")
    jumps = {index for _, at in found.jumps for index in at.tolist()}
    bases = {index for _, at in found.bases for index in at.tolist()}
    out: list[Node] = []
    first, land = [0] * (len(old) + 1), [0] * (len(old) + 1)
    for index in range(len(old) + 1):
        here = [each for each in added if each.index == index]
        first[index] = len(out)
        out += [(word, None) for each in here if each.skipped for word in each.words]
        land[index] = len(out)
        out += [(word, None) for each in here if not each.skipped for word in each.words]
        out += old[index : index + 1]
    stands = iter(range(len(out)))
    numbered: list[Node] = []
    position = {}
    for index in range(len(old)):
        extra = sum(len(each.words) for each in added if each.index <= index)
        position[index + extra] = index
    for at in stands:
        word, target = out[at]
        index = position.get(at)
        if index is not None and target is not None and index not in bases:
            target = (land if index in jumps else first)[target]
        numbered.append((word, target))
    return numbered + [(PADDING, None)] * (size - len(numbered))
