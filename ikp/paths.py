"""Paths: at which files are to be written, refused where that can't work; and Triton's cache."""

from __future__ import annotations

import os
import stat
from os import PathLike
from pathlib import Path

from ikp.errors import ExportError

_AnyPath = str | PathLike[str]


def triton_cache() -> Path:
    """Return the folder in which Triton keeps what it compiles, there or not."""
    home = os.environ.get("TRITON_HOME") or Path.home()
    return Path(os.environ.get("TRITON_CACHE_DIR") or Path(home) / ".triton" / "cache")


def path_text(path: _AnyPath) -> str:
    """Return a path as text, if it can be one.

    Raises:
        ExportError: no file can have that name.
    """
    try:
        text = os.fsdecode(path)
        os.fsencode(text)
    except (TypeError, UnicodeError) as error:
        raise ExportError(
            f"{path!r} can't be a path: {error}. Give the name of a file as text."
        ) from error
    if "\0" in text:
        raise ExportError(f"{text!r} can't be a path: no name of a file has a NUL in it.")
    return text


def checked_target(path: _AnyPath, force: bool) -> Path:
    """Return the file that writing to ``path`` makes, or replaces: links are followed.

    Raises:
        ExportError: it exists and ``force`` is false, is no regular file, or there is no folder
            for it in which one may write.
    """
    text = path_text(path)
    target = Path(os.path.realpath(text))  # write through a link, not over it
    linked = os.path.islink(text)  # noqa: PTH114 - Path.is_symlink fails on names too long
    shown = target if linked else Path(text)
    _check_present(shown, _mode(target, shown), force)
    if not target.parent.is_dir():
        hint = " Python takes ~ as it is: os.path.expanduser(path)." if text[0] == "~" else ""
        raise ExportError(f"{shown} can't be written: there is no folder {shown.parent}.{hint}")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise ExportError(
            f"{shown} can't be written: you may not write in {shown.parent}. Choose another path."
        )
    return target


def _mode(target: Path, shown: Path) -> int | None:
    """Return what stands at a path; None if nothing does."""
    try:
        return target.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:  # too long, a circle of links, a folder that may not be entered
        raise ExportError(
            f"{shown} can't be written: {error.strerror}. Choose another path."
        ) from error


def _check_present(shown: Path, mode: int | None, force: bool) -> None:
    if mode is None:
        return
    if stat.S_ISDIR(mode):
        raise ExportError(f"{shown} is a folder: give the name of a file in it.")
    if not stat.S_ISREG(mode):
        raise ExportError(
            f"{shown} is a device, a pipe or a socket: a trace is put in place as a whole, which "
            "only a file can be. Write to a file, and copy that."
        )
    if not force:
        raise ExportError(
            f"{shown} exists: pass force=True to overwrite it (on the command line: --force), or "
            "name another file."
        )


def probe(target: Path) -> None:
    """Make a file in the target's folder and let it vanish: some folders refuse only then.

    Raises:
        ExportError: no file can be made there.
    """
    import tempfile

    try:
        tempfile.TemporaryFile(dir=target.parent).close()
    except OSError as error:
        raise ExportError(
            f"{target} can't be written: no file can be made in {target.parent} "
            f"({error.strerror}). Choose another path."
        ) from error
