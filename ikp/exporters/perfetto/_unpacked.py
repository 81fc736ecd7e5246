"""``unpacked``: a trace file open for reading here and there, whether or not it is compressed."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import BinaryIO, cast

from ikp.errors import ExportError
from ikp.paths import path_text

_GZIP = b"\x1f\x8b"
_AT_ONCE = 1 << 20
_LARGE = 64 << 20
_RATIO = 256
"""Bounds of what is unpacked: columns are packed already, and packets of ranges by far less."""


@contextmanager
def unpacked(path: str | PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file; one that gzip has packed is unpacked into a temporary file first.

    Raises:
        ExportError: it can't be read, or unpacked.
    """
    try:
        file: BinaryIO = Path(path_text(path)).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise unreadable(path, error) from error
    with file:
        packed = file.read(len(_GZIP)) == _GZIP
        file.seek(0)
        if not packed:
            yield file
            return
        with tempfile.TemporaryFile() as plain:
            _unpack(path, file, cast("BinaryIO", plain))
            plain.seek(0)
            yield cast("BinaryIO", plain)


def _unpack(path: str | PathLike[str], file: BinaryIO, plain: BinaryIO) -> None:
    from isal import igzip

    try:
        with igzip.IGzipFile(fileobj=file, mode="rb") as content:
            most = max(_LARGE, _RATIO * os.fstat(file.fileno()).st_size)
            size = 0
            while part := content.read(_AT_ONCE):
                size += plain.write(part)
                if size > most:
                    raise ExportError(
                        f"{path} unpacks to more than {most >> 20} MiB, which no trace does. Is it "
                        "one? gunzip it, and give the file."
                    )
    except (EOFError, igzip.BadGzipFile, zlib.error) as error:
        why = "it is cut short" if isinstance(error, EOFError) else f"{error}"
        raise ExportError(
            f"{path} is damaged as a gzip file: {why}. Copy it again; what gunzip can unpack of "
            "it, `ikp convert --salvage` may save."
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: str | PathLike[str], error: OSError) -> ExportError:
    """Return the error for a file that the system can't read."""
    return ExportError(f"{path} can't be read: {error.strerror or error}.")
