"""Reads the trace in a file that :mod:`ikp.exporters.perfetto._writer` wrote, now or earlier."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ikp.core.trace import Trace
from ikp.errors import ExportError
from ikp.exporters.perfetto._refusals import ForeignError, damaged, damaged_columns
from ikp.exporters.perfetto._walk import Bytes, begins_with_columns
from ikp.exporters.perfetto.column_file import Choose, ColumnFile
from ikp.exporters.protobuf.damage import DamagedError
from ikp.paths import path_text

if TYPE_CHECKING:
    from ikp.exporters.perfetto.head import Head

__all__ = ["ForeignError", "open_columns", "read", "read_head", "salvage"]


def read(path: str | PathLike[str], chosen: Choose | None = None) -> Trace:
    """Read a trace: whole, or without the events of chunks that ``chosen`` leaves out.

    ``chosen`` is asked by their heads, and by those alone: see :meth:`ColumnFile.chunks`. Files
    written before there were columns are read whole. What a whole trace is read from is also what
    a viewer shows: the packets in the file are those that its columns were written with.

    Raises:
        ExportError: the file can't be read, is damaged, or was not written by ``ikp``.
    """
    with open_columns(path) as columns:
        if columns is not None:
            if chosen is None:
                columns.check_packets()
            return columns.trace(chosen)
    from ikp.exporters.perfetto import older_reader  # a fifth of what reading imports

    content = _content(path)
    try:
        return older_reader.read(path, content)
    except (DamagedError, UnicodeDecodeError) as error:
        raise damaged(path, error) from error


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
        ForeignError: it is a Perfetto trace, of somebody else or of a layout that isn't known.
        ExportError: the file can't be read, or is damaged.
    """
    from ikp.exporters.perfetto.head import Head

    with open_columns(path) as columns:
        if columns is not None:
            return Head.of(columns.launches, columns.slots, columns.others)
    from ikp.exporters.perfetto import older_reader

    content = _content(path)
    try:
        return older_reader.read_head(path, content)
    except (DamagedError, UnicodeDecodeError) as error:
        raise damaged(path, error) from error


@contextmanager
def open_columns(path: str | PathLike[str]) -> Iterator[ColumnFile | None]:
    """Open the columns of a file; None if it has none, but may be an older file.

    Raises:
        ExportError: the file can't be read, or is damaged, as far as that shows in the block.
    """
    with _opened(path) as file:
        if not begins_with_columns(file.read(_HEAD)):
            yield None
            return
        try:
            yield ColumnFile(path, Bytes(file))
        except (DamagedError, UnicodeDecodeError) as error:
            raise damaged_columns(path, error) from error
        except OSError as error:
            raise _unreadable(path, error) from error


_HEAD = 64


@contextmanager
def _opened(path: str | PathLike[str]) -> Iterator[BinaryIO]:
    try:
        file = Path(path_text(path)).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise _unreadable(path, error) from error
    with file:
        yield file


def _content(path: str | PathLike[str]) -> bytes:
    try:
        content = Path(path_text(path)).read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error
    if not content:
        raise ExportError(f"{path} is empty: writing it failed, or has not begun.")
    return content


def _unreadable(path: str | PathLike[str], error: OSError) -> ExportError:
    return ExportError(f"{path} can't be read: {error.strerror or error}.")
