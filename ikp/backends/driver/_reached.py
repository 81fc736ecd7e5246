"""The memory that the parameters of a launch point to, found without knowing their types.

Every aligned word of 64 bits in them may be a pointer: it is one where it lies in memory of the
device that somebody holds. So pointers in structs that are passed by value are found, as CuTe and
CUTLASS pass tensors and torch its iterators, and those in descriptors for TMA, whose first word is
the address. So are those in memory, where that is small enough for a table of pointers.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

import numpy as np

from ikp.backends.driver._hook import Launch
from ikp.errors import PatchError
from ikp.machine import cuda
from ikp.machine.cubins.attributes import Parameter
from ikp.machine.rehearsal import Buffer, DeviceMemory, apart

_WORD: Final = 8
_TABLE: Final = 1 << 20
"""Bytes of the largest memory that is looked through for pointers."""
_LOWEST, _HIGHEST = 1 << 20, 1 << 48
"""Between these, addresses of a device lie."""
_HELD: Final = "active_allocated"
_PACKED: Final = 1
"""What stands before the parameters' address, where a launch has them in one piece."""


def buffers(
    launch: Launch,
    parameters: Sequence[Parameter],
    variables: Iterable[tuple[str, int]],
    find: Callable[[str], int | None],
    records: int,
) -> list[Buffer]:
    """Return the memory that a kernel may write, as far as it can be found.

    Args:
        launch: how it is launched.
        parameters: the plain kernel's.
        variables: of its module, and their sizes.
        find: returns where one of these is.
        records: an address in the memory that ikp records into: an old pointer there means others.
    """
    held = Held(torch_blocks(), records)
    made = [
        Buffer(f"argument {each.ordinal}{_place(at)}", *block)
        for each in parameters
        for at, word in _words(_value(launch, each), each.offset)
        if (block := held.around(word)) is not None
    ]
    made += [
        Buffer(name, address, size)
        for name, size in variables
        if (address := find(name)) is not None
    ]
    return apart([*made, *_beyond(made, held)])


def _beyond(found: Sequence[Buffer], held: Held) -> Iterator[Buffer]:
    """Yield what only memory points to."""
    known = {each.address for each in found}
    todo = [each for each in found if _may_be_table(each)]
    memory = DeviceMemory()
    memory.wait()
    while todo:
        table = todo.pop()
        words = np.frombuffer(memory.read(table.address, table.nbytes & -_WORD), "<u8")
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
    """Yield a parameter's aligned words, each with where it begins in the parameter."""
    first = -offset % _WORD
    count = (len(value) - first) // _WORD
    if count <= 0:
        return  # numpy refuses to begin behind the end, as the first word of a bool may
    for number, word in enumerate(np.frombuffer(value, "<u8", count, first).tolist()):
        yield first + _WORD * number, word


def _value(launch: Launch, parameter: Parameter) -> bytes:
    """Return what a launch passes for one parameter."""
    if launch.params:
        address = launch.params[parameter.ordinal]
    else:
        packed = _packed(launch)
        address = packed and packed + parameter.offset
    return ctypes.string_at(address, parameter.size) if address else b""


def _packed(launch: Launch) -> int:
    """Return where a launch has its parameters in one piece; 0 where it has them otherwise."""
    at = 0
    while launch.extra and (key := launch.extra[at]):
        if key == _PACKED:
            return int(launch.extra[at + 1] or 0)
        at += 2
    return 0


Block = tuple[int, int]
"""An address and a size in bytes."""


class Held:
    """Memory of the device that somebody holds."""

    def __init__(self, blocks: Iterable[tuple[int, int, bool]], records: int) -> None:
        """Take torch's blocks: where each begins, its bytes, and whether it is held.

        That in which ``records`` lies is left out, whoever's it is.
        """
        self._records = records
        self._blocks = sorted(
            (start, size, held and not start <= records < start + size)
            for start, size, held in blocks
        )
        self._starts = [start for start, _, _ in self._blocks]

    def around(self, word: int) -> Block | None:
        """Return the block that a word points into; None where it is no pointer."""
        number = bisect_right(self._starts, word) - 1
        if number >= 0:
            start, size, held = self._blocks[number]
            if word < start + size:  # torch's: what lies around the block is of others
                return (start, size) if held else None
        found = _allocation(word)
        if found is not None and 0 <= self._records - found[0] < found[1]:
            return None
        return found


def _allocation(word: int) -> Block | None:
    """Return what a program has allocated by itself."""
    try:
        return cuda.allocation(word) if cuda.on_device(word) else None
    except PatchError:
        return None


def torch_blocks() -> list[tuple[int, int, bool]]:
    """Return the blocks of torch's allocator: where each begins, its bytes, whether it is held."""
    import torch

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
