"""Checks of target paths, atomic writing (a file appears whole or not at all); Triton's cache."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from functools import cache
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Final

from ikp.errors import ExportError

_AnyPath = str | PathLike[str]

DRAFT: Final = ".ikp-draft"
"""The suffix of drafts' names. A draft is locked while its writer lives."""
_ABANDONED_S: Final = 86_400.0
"""Seconds without a write after which another host's draft has no writer any more."""


def triton_cache() -> Path:
    """Return the folder of Triton's compile cache, whether it exists or not."""
    home = os.environ.get("TRITON_HOME") or Path.home()
    return Path(os.environ.get("TRITON_CACHE_DIR") or Path(home) / ".triton" / "cache")


def put(path: Path, data: bytes) -> None:
    """Write a file in one step, into a folder that is made if needed: other processes may read it.

    Raises:
        OSError: it can't be written; then no draft is left.
    """
    import tempfile

    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(draft).replace(path)
    except OSError:
        Path(draft).unlink(missing_ok=True)
        raise


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


def shown(path: _AnyPath) -> str:
    r"""Return a path as Unicode, for names and messages: bytes that are none become ``\\xff``."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


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
    """Return the mode of the file at a path; None if there is none."""
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
    """Make a temporary file in the target's folder: some folders refuse only then.

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


@contextlib.contextmanager
def replacing(path: _AnyPath, *, force: bool) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the place of ``path`` when the block ends well.

    If the block raises, ``path`` is as it was. After a crash or a power cut it is as it was, or the
    new file. Without ``force``, of several processes that write to one path, one succeeds.

    Raises:
        ExportError: ``path`` exists and ``force`` is false, or it can't be written.
    """
    target = checked_target(path, force)
    try:
        _sweep(target.parent)
        # Beside the target: a rename is atomic only within one file system.
        draft, file = _open_draft(target.parent)
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                _place(draft, target, force)
        finally:
            draft.unlink(missing_ok=True)
        _sync_folder(target.parent)
    except FileExistsError as error:
        raise ExportError(
            f"{target} appeared while it was being written, and was left as it is: name another "
            "file, or pass force=True (on the command line: --force)."
        ) from error
    except OSError as error:
        raise ExportError(
            f"{target} can't be written: {error.strerror or error}. "
            "Choose another path, or make room and check the folder's permissions."
        ) from error


def _open_draft(folder: Path) -> tuple[Path, BinaryIO]:
    """Return a new file, locked, so that other processes see that its writer lives."""
    while True:
        draft = folder / f"{draft_prefix()}{os.urandom(8).hex()}{DRAFT}"
        file = draft.open("xb")
        with contextlib.suppress(OSError):  # not every file system has locks: then none is swept
            fcntl.flock(file, fcntl.LOCK_EX)
        if draft.exists():  # else it was swept before it was locked
            return draft, file
        file.close()


@cache
def boot() -> str:
    """Return the name of this boot of this host, which no other has: 12 hexadecimal digits.

    Containers of one host have one, and one clock.
    """
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        text = os.uname().nodename
    return hashlib.sha256(text.strip().encode()).hexdigest()[:12]


def draft_prefix() -> str:
    """Return the prefix of drafts' names of this boot of this host.

    Many file systems have locks that another host does not see.
    """
    return f".{boot()}-"


def may_be_swept(draft: Path) -> bool:
    """Return whether a draft without a lock has no writer: of another host, after a day.

    Raises:
        OSError: it has gone.
    """
    here = draft.name.startswith(draft_prefix())
    return here or time.time() - draft.stat().st_mtime > _ABANDONED_S


def _sweep(folder: Path) -> None:
    """Remove the drafts of writers that were killed."""
    for draft in folder.glob(f".*{DRAFT}"):
        with contextlib.suppress(OSError):
            if not may_be_swept(draft):
                continue
            handle = os.open(draft, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                draft.unlink()
            finally:
                os.close(handle)


def _place(draft: Path, target: Path, force: bool) -> None:
    """Rename a finished draft, in one step; without force, that fails if the target exists."""
    if force:
        draft.replace(target)
        return
    try:
        target.hardlink_to(draft)
    except FileExistsError:
        raise
    except OSError:  # no hard links: reserve the name, then replace it
        target.open("xb").close()
        draft.replace(target)


def _sync_folder(folder: Path) -> None:
    """Sync a folder, so that the new name outlasts a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # not every file system can
            os.fsync(handle)
    finally:
        os.close(handle)
