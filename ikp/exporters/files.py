"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import BinaryIO

from ikp.errors import ExportError


@contextlib.contextmanager
def replacing(path: str | PathLike[str], *, force: bool) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the place of ``path`` when the block ends well.

    If the block raises, ``path`` is as it was.

    Raises:
        ExportError: ``path`` exists and ``force`` is false, or it can't be written.
    """
    target = Path(path)
    _refuse(target, force)
    target = target.resolve()  # write through a link, not over it
    # Beside the target, because only within one file system can a file be put in place in one go.
    draft = target.with_name(f".{target.name[:64]}.{secrets.token_hex(4)}.part")
    try:
        with draft.open("xb") as file:
            yield file
        draft.replace(target)
    except OSError as error:
        raise ExportError(
            f"{target} can't be written: {error.strerror or error}. "
            "Choose another path, or make room and check the folder's permissions."
        ) from error
    finally:
        draft.unlink(missing_ok=True)


def _refuse(target: Path, force: bool) -> None:
    if target.is_dir():
        raise ExportError(f"{target} is a folder: give the name of a file in it.")
    if not target.parent.is_dir():
        raise ExportError(f"{target} can't be written: there is no folder {target.parent}.")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise ExportError(
            f"{target} can't be written: you may not write in {target.parent}. Choose another path."
        )
    if target.exists() and not force:
        raise ExportError(
            f"{target} exists. Give another path, or overwrite it with force=True (on the command "
            "line: --force)."
        )


@contextlib.contextmanager
def packed(file: BinaryIO, name: str) -> Iterator[BinaryIO]:
    """Return what to write to, so that ``file`` is compressed if ``name`` ends in ``.gz``."""
    if not name.endswith(".gz"):
        yield file
        return
    from isal import igzip

    with igzip.IGzipFile("", "wb", FAST, file, mtime=0) as out:
        yield out


FAST = 1
"""Levels above are slower, and gain little where rows are so much alike."""
