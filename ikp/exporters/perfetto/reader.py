"""Reads the trace, or its ``Head`` alone, in a file that :mod:`ikp.exporters.perfetto._writer`
wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from ikp.core.trace import Launch, Slots, Trace, no_slots
from ikp.core.warps import ordered_warps
from ikp.errors import ExportError
from ikp.exporters.perfetto._schema import ROWS, SHARED
from ikp.exporters.perfetto._walk import (
    PACKET,
    Bytes,
    begins_with_columns,
    number,
    unpacked,
    unreadable,
)
from ikp.exporters.perfetto.column_file import (
    Choose,
    ColumnFile,
    ForeignError,
    damaged,
    damaged_columns,
    foreign,
)
from ikp.exporters.protobuf.varints import DamagedError
from ikp.exporters.timeline.blocks import find_blocks

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Head:
    """The launches, and when and where each warp of each block ran. Times are Unix ns.

    Warps are in the order of slots, and behind them those that left no records.
    """

    launches: tuple[Launch, ...]
    slots: int  # so many of the warps may have left records
    shared: bool  # whether launches of a kernel share the rows that a viewer shows
    launch: Ints
    lane: Ints  # the CTA slot of a launch and an SM, where blocks follow each other: any numbers
    block: Ints
    sm: Ints
    start_ns: Ints
    end_ns: Ints

    @classmethod
    def of(
        cls,
        launches: tuple[Launch, ...],
        slots: Slots,
        others: Slots | None = None,
        *,
        shared: bool = False,
    ) -> Head:
        """Return the head of a trace's slots, and of the warps that left no records."""
        every, place = ordered_warps(slots, others or no_slots())
        _, lane = find_blocks(every, every.start_ns, np.maximum(every.start_ns, every.end_ns))
        columns = (every.launch, lane, every.block, every.sm, every.start_ns, every.end_ns)
        found = (column[place].astype(np.int64) for column in columns)
        return cls(launches, len(slots), shared, *found)


__all__ = ["ForeignError", "open_columns", "read", "read_head", "salvage"]


def read(path: str | PathLike[str], chosen: Choose | None = None) -> Trace:
    """Read a trace: whole, or without the events of chunks that ``chosen`` leaves out.

    ``chosen`` is asked by their heads, and by those alone: see :meth:`ColumnFile.chunks`. What a
    whole trace is read from is also what a viewer shows: the packets in the file are those that its
    columns were written with.

    Raises:
        ExportError: the file can't be read, is damaged, or was not written by ``ikp``.
    """
    with open_columns(path) as columns:
        if chosen is None:
            columns.check_packets()
        return columns.trace(chosen)


def salvage(path: str | PathLike[str]) -> list[tuple[Trace, list[str]]]:
    """Read what is sound of each trace in a damaged file; return what is lost, too, in words.

    Raises:
        ExportError: the file can't be read, or holds nothing that is sound.
    """
    from ikp.exporters.perfetto.salvage import salvage

    return salvage(path, _content(path))


def read_head(path: str | PathLike[str]) -> Head:
    """Read what a viewer must know of a file before it shows it: launches, blocks, but no ranges.

    Raises:
        ForeignError: it is a Perfetto trace, of another program or of a layout that isn't known.
        ExportError: the file can't be read, or is damaged.
    """
    from ikp.exporters.perfetto.reader import Head

    with open_columns(path) as columns:
        shared = columns.head.about.get(ROWS) == SHARED
        return Head.of(columns.launches, columns.slots, columns.others, shared=shared)


@contextmanager
def open_columns(path: str | PathLike[str]) -> Iterator[ColumnFile]:
    """Open the columns of a file.

    Raises:
        ForeignError: it is a Perfetto trace, of another program or of a layout that isn't known.
        ExportError: the file can't be read, or is damaged, as far as that shows in the block.
    """
    with unpacked(path) as file:
        head = file.read(_HEAD)
        if not begins_with_columns(head):
            raise _without_columns(path, head, Bytes(file).size)
        try:
            yield ColumnFile(path, Bytes(file))
        except (DamagedError, UnicodeDecodeError) as error:
            raise damaged_columns(path, error) from error
        except OSError as error:
            raise unreadable(path, error) from error


_HEAD = 64


def _without_columns(path: str | PathLike[str], head: bytes, nbytes: int) -> ExportError:
    """Return the refusal of a file that does not begin with columns, by its first bytes."""
    if not head:
        return ExportError(f"{path} is empty: writing it failed, or has not begun.")
    if not head.startswith(PACKET):
        return damaged(path, DamagedError("it begins with no packet"))
    try:
        size, at = number(head, len(PACKET))
    except DamagedError as error:
        return damaged(path, error)
    if at + size > nbytes:
        return damaged(path, DamagedError("its first packet is cut short"))
    return foreign(path)


def _content(path: str | PathLike[str]) -> bytes:
    with unpacked(path) as file:
        try:
            content = file.read()
        except OSError as error:
            raise unreadable(path, error) from error
    if not content:
        raise ExportError(f"{path} is empty: writing it failed, or has not begun.")
    return content
