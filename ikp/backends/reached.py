"""The device memory that the parameters of a launch point to, found without knowing their types.

Every aligned word of 64 bits in them may be a pointer: it is one where it points into allocated
memory of the device. So pointers in structs that are passed by value are found, as CuTe and CUTLASS
pass tensors and torch its iterators. So are those in descriptors for TMA, whose first word is the
address. So are those in memory that is small enough for a table of pointers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np

from ikp.checking.comparison import Buffer, disjoint
from ikp.driver import cuda_memory
from ikp.errors import PatchError
from ikp.session.device import torch_of_program

_WORD: Final = 8
_TABLE: Final = 1 << 20
"""Bytes of the largest memory that is looked through for pointers."""
_SCRATCH: Final = 64 << 20
"""Bytes of freed memory that a launch may use: its launcher allocated it and has freed it since."""
_LOWEST, _HIGHEST = 1 << 20, 1 << 48
"""Bounds of a device's addresses."""
_HELD: Final = "active_allocated"


@dataclass(frozen=True, slots=True)
class Reached:
    """The memory that a launch reaches; all parts are disjoint."""

    written: tuple[Buffer, ...]  # what it may write, and others read
    scratch: tuple[Buffer, ...]  # memory that is freed already


def reached(
    values: Sequence[tuple[int, bytes]],
    variables: Iterable[tuple[str, int, int]],
    records: int,
    names: Mapping[int, str] | None = None,
) -> Reached:
    """Return the memory that a launch may write, as far as it can be found.

    Args:
        values: of each parameter: its offset in bytes, and its bytes.
        variables: of its module: names, addresses and sizes in bytes.
        records: an address in the buffer of records: a pointer into it is a stale one.
        names: of arguments, by the addresses that they point to.
    """
    held = ReachableMemory(torch_blocks(), records)
    words = [
        (word, (names or {}).get(word) or f"argument {number}{_place(at)}")
        for number, (offset, value) in enumerate(values)
        for at, word in _words(value, offset)
    ]
    made = [Buffer(name, *block) for word, name in words if (block := held.around(word))]
    made += [Buffer(*each) for each in variables]
    written = disjoint([*made, *_beyond(made, held)])
    free = [Buffer(name, *block) for word, name in words if (block := held.free_at(word))]
    return Reached(tuple(written), tuple(disjoint(free)))


def _beyond(found: Sequence[Buffer], held: ReachableMemory) -> Iterator[Buffer]:
    """Yield the buffers that only words in other buffers point to."""
    known = {each.address for each in found}
    todo = [each for each in found if _may_be_table(each)]
    while todo:
        table = todo.pop()
        words = np.frombuffer(cuda_memory.read(table.address, table.nbytes & -_WORD), "<u8")
        for word in np.unique(words[(words >= _LOWEST) & (words < _HIGHEST)]).tolist():
            block = held.around(word)
            if block is None or block[0] in known:
                continue
            known.add(block[0])
            made = Buffer(f"what {table.name} points to", *block)
            yield made
            todo += [made] if _may_be_table(made) else []


def _may_be_table(buffer: Buffer) -> bool:
    return _WORD <= buffer.nbytes <= _TABLE


def _place(at: int) -> str:
    return f" (byte {at})" if at else ""


def _words(value: bytes, offset: int) -> Iterator[tuple[int, int]]:
    """Yield a parameter's aligned words, each with its offset in the parameter."""
    first = -offset % _WORD
    count = (len(value) - first) // _WORD
    if count <= 0:
        return  # numpy refuses to begin behind the end, as the first word of a bool may
    for number, word in enumerate(np.frombuffer(value, "<u8", count, first).tolist()):
        yield first + _WORD * number, word


Block = tuple[int, int]
"""An address and a size in bytes."""


class ReachableMemory:
    """Memory that a kernel can reach, and whether it is allocated."""

    def __init__(self, blocks: Sequence[tuple[int, int, bool]], records: int) -> None:
        """Take torch's blocks: the address of each, its bytes, and whether it is allocated.

        The block with ``records`` is left out, in torch's allocator or outside of it.
        """
        self._records = records
        self._blocks = sorted(
            (start, size, held and not start <= records < start + size)
            for start, size, held in blocks
        )
        self._starts = [start for start, _, _ in self._blocks]
        self._records = records

    def free_at(self, word: int) -> Block | None:
        """Return the freed memory that a word points to, from there on; None for any other word."""
        number = bisect_right(self._starts, word) - 1
        if number < 0:
            return None
        start, size, held = self._blocks[number]
        if held or word >= start + size or start <= self._records < start + size:
            return None
        return word, min(start + size - word, _SCRATCH)

    def around(self, word: int) -> Block | None:
        """Return the block that a word points into; None where it is no pointer."""
        number = bisect_right(self._starts, word) - 1
        if number >= 0:
            start, size, held = self._blocks[number]
            if word < start + size:  # torch's: the driver's allocation around it has others' blocks
                return (start, size) if held else None
        found = _allocation(word)
        own = found is not None and found[0] <= self._records < found[0] + found[1]
        return None if own else found


def _allocation(word: int) -> Block | None:
    """Return the allocation of the driver that a word points into; None where there is none."""
    try:
        return cuda_memory.allocation(word) if cuda_memory.reachable(word) else None
    except PatchError:
        return None


def torch_blocks() -> list[tuple[int, int, bool]]:
    """Return the blocks of torch's allocator: address, bytes, and whether each is allocated.

    A program without torch has none.
    """
    torch = torch_of_program()
    if torch is None:
        return []
    try:
        return [block for segment in torch.cuda.memory_snapshot() for block in _blocks(segment)]
    except (RuntimeError, KeyError, TypeError):
        return []  # an allocator of the program's own: then by allocations, as the driver has them


def _blocks(segment: Any) -> Iterator[tuple[int, int, bool]]:
    """Yield the blocks of a segment, which follow each other without gaps."""
    blocks = segment["blocks"]
    starts = accumulate((each["size"] for each in blocks), initial=segment["address"])
    for start, each in zip(starts, blocks, strict=False):
        yield start, each["size"], each["state"] == _HELD
