"""The fields of the launch header, in one table: name, width, and where each word's value is from.

Emitters of device code (PTX, SASS, LLVM IR, CUDA C++) and writers in numpy read this table. So a
new field is a line here, and its reader. Its value needs no line in an emitter where its origin is
one that the emitter has, or where it is a constant of the table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any, Final, TypeVar

import numpy as np

ABI_VERSION: Final = 1
MAGIC: Final = 0x31504B49
"""``b"IKP1"`` as a little-endian word: the first word of a launched segment."""
WORD_BYTES: Final = 4
ROW_BYTES: Final = 16
"""The widest store of one thread; it is aligned to its size."""
_T = TypeVar("_T")


class Origin(StrEnum):
    """Where the value of a word is from. The values are no names of fields."""

    CONSTANT = "constant"  # known when the code is generated: in the table, or by the field's name
    GRID_X = "%nctaid.x"  # blocks of the launch
    GRID_Y = "%nctaid.y"
    GRID_Z = "%nctaid.z"
    BLOCK_X = "%ntid.x"  # threads of a block
    BLOCK_Y = "%ntid.y"
    BLOCK_Z = "%ntid.z"
    GRID_ID = "%gridid"
    WARPS = "warps of a block"
    SLOT_BYTES = "bytes of a slot"
    LAUNCHES = "one more than before"
    HOST = "host"  # written before the launch
    RESERVED = "reserved"  # zero


_GRID: Final = (Origin.GRID_X, Origin.GRID_Y, Origin.GRID_Z)
_BLOCK: Final = (Origin.BLOCK_X, Origin.BLOCK_Y, Origin.BLOCK_Z)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the launch header: little-endian words of 32 bits."""

    name: str
    origins: tuple[Origin, ...] = (Origin.CONSTANT,)  # one for each word
    value: int | None = None  # of a constant that is equal in all kernels


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a field."""

    name: str  # the field's; of several words, with the axis: "grid_x"
    offset: int  # bytes from the header's start
    origin: Origin
    value: int | None = None
    field: str = ""
    part: int | None = None  # which of the field's words, if there are several

    @property
    def key(self) -> str:
        """What its value is found by: its own name, if it is a constant, else its origin."""
        return self.name if self.origin is Origin.CONSTANT else self.origin


FIELDS: Sequence[Field] = (
    Field("magic", value=MAGIC),
    Field("abi", value=ABI_VERSION),
    Field("grid", _GRID),
    Field("block", _BLOCK),
    Field("warps_per_block", (Origin.WARPS,)),
    Field("slot_bytes", (Origin.SLOT_BYTES,)),
    Field("clock"),  # ClockKind
    Field("overflow"),  # OverflowMode
    Field("grid_id", (Origin.GRID_ID,)),  # identifies the launch: equal in every slot that it used
    Field("launches", (Origin.LAUNCHES,)),  # into this segment since it was zeroed
    Field("language"),  # Language
    Field("options"),  # Option
    Field("warps", (Origin.HOST,)),  # mask of the warps of a block that record,
    Field("first_block", (Origin.HOST,)),  # ... and of the blocks: the first,
    Field("block_step", (Origin.HOST,)),  # the distance between two,
    Field("block_count", (Origin.HOST,)),  # and at most how many
    Field("whole"),  # region id of the range from each warp's init to its finish; 0: none
    Field("together"),  # of Option.DENSE: how many warps' records lie in one row,
    Field("margin"),  # ... and how many a warp may write behind the last that it keeps
    Field("reserved", (Origin.RESERVED,) * 9),
)


def layout() -> np.dtype[np.void]:
    """Return the launch header as numpy has it: a field of several words is a row of them."""
    return np.dtype(
        [
            (each.name, "<u4", *([len(each.origins)] if len(each.origins) > 1 else []))
            for each in FIELDS
        ]
    )


def words() -> Iterator[Word]:
    """Yield all words of the header."""
    offset = 0
    for each in FIELDS:
        several = len(each.origins) > 1
        for part, origin in enumerate(each.origins):
            axis = f"_{'xyz'[part]}" if len(each.origins) == 3 else ""
            yield Word(
                *(each.name + axis, offset, origin, each.value, each.name),
                part if several else None,
            )
            offset += WORD_BYTES


def written(given: Collection[str]) -> list[Word]:
    """Return the words that a kernel writes, in order.

    Args:
        given: the keys whose value the kernel has. All other words stay as they are, but those
            whose constant is in the table.
    """
    return [each for each in words() if each.key in given or each.value is not None]


def sizes(grid: Sequence[_T], block: Sequence[_T]) -> dict[str, _T]:
    """Return the values of the words that have a launch's blocks and a block's threads, by key."""
    return {**dict(zip(_GRID, grid, strict=True)), **dict(zip(_BLOCK, block, strict=True))}


def value_of(word: Word, given: Mapping[str, _T]) -> _T | int:
    """Return the value of a written word: the table's own, or else what is given."""
    return given[word.key] if word.value is None else word.value


def rows(some: Iterable[Word]) -> list[list[Word]]:
    """Divide words into runs that adjoin each other inside one row of ``ROW_BYTES``."""
    found: list[list[Word]] = []
    for each in some:
        last = found[-1][-1].offset if found else -WORD_BYTES
        if found and each.offset == last + WORD_BYTES and each.offset % ROW_BYTES:
            found[-1].append(each)
        else:
            found.append([each])
    return found


def stores(some: Iterable[Word], apart: Origin | None = None) -> list[list[Word]]:
    """Divide words into aligned stores of 4, 2 or 1 words.

    Args:
        some: words in order.
        apart: words of this origin are stored by themselves.
    """
    found = []
    for _, group in groupby(some, lambda each: each.origin is apart):
        for rest in rows(group):
            while rest:
                at = rest[0].offset // WORD_BYTES
                size = next(n for n in (4, 2, 1) if n <= len(rest) and not at % n)
                found.append(rest[:size])
                del rest[:size]
    return found


def write(header: Any, given: Mapping[str, int]) -> None:
    """Write to the launch header of a segment in host memory.

    Args:
        header: one launch header, an array of shape ``(1,)``; changed in place.
        given: values by key: of an ``Origin``, or of a constant's name.
    """
    there = header.view("<u4")
    for each in written({*given, Origin.LAUNCHES}):
        at = each.offset // WORD_BYTES
        if each.origin is Origin.LAUNCHES:
            there[at] += 1
        else:
            there[at] = value_of(each, given)
