"""Reads the trace in a file that :mod:`ikp.exporters.perfetto._writer` wrote, now or earlier."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING

from ikp.core.trace import Trace
from ikp.errors import ExportError
from ikp.exporters.perfetto._unpacked import unpacked, unreadable
from ikp.exporters.perfetto._walk import PACKET, Bytes, begins_with_columns, number
from ikp.exporters.perfetto.column_file import (
    Choose,
    ColumnFile,
    ForeignError,
    damaged,
    damaged_columns,
    foreign,
)
from ikp.exporters.protobuf.varints import DamagedError

if TYPE_CHECKING:
    from ikp.exporters.perfetto.head import Head

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
    from ikp.exporters.perfetto.head import Head

    with open_columns(path) as columns:
        return Head.of(columns.launches, columns.slots, columns.others)


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
