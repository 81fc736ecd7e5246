"""Safe reading of files named in other files: a trace names machine code, a line table sources."""

from __future__ import annotations

import errno
import os
import stat
from os import PathLike
from pathlib import Path
from typing import Final

from ikp.errors import ExportError
from ikp.paths import path_text

_AnyPath = str | PathLike[str]

MOST_CODE: Final = 1 << 30
"""Most bytes read of a file of machine code, or of its PTX."""
MOST_SOURCE: Final = 4 << 20
"""Most bytes read of a file of source code. Parsing it takes 100 times that in memory."""


def read_named(path: _AnyPath, most: int) -> bytes:
    """Return the content of a file that another file names, such as a trace.

    The name can be any text: opening a device acts on it, a pipe may never end, and a special file
    may be longer than any memory. So the file is examined before and after it is opened.

    Args:
        path: its path.
        most: how many bytes are read at most.

    Raises:
        OSError: it is no regular file, has more bytes, or can't be read.
    """
    _check_regular(_nameable(path).stat(), path, most)
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        _check_regular(os.fstat(handle), path, most)  # another file may be there by now
        content = file.read(most + 1)
    if len(content) > most:
        raise _too_large(path, most)
    return content


def _nameable(path: _AnyPath) -> Path:
    """Return a path that a file can have.

    Raises:
        OSError: none can.
    """
    try:
        return Path(path_text(path))
    except ExportError as error:
        raise OSError(errno.EINVAL, "no file can have that name", path) from error


def _check_regular(found: os.stat_result, path: _AnyPath, most: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", path)
    if found.st_size > most:
        raise _too_large(path, most)


def _too_large(path: _AnyPath, most: int) -> OSError:
    return OSError(errno.EFBIG, f"it has more than {most:,} bytes", path)
