"""Cache files of ikp, each sealed by a hash of key and content, and trusted if no other user's.

Such files decide how machine code is changed, and compiled helpers are loaded into the process. So
each one carries a seal over its key and its content: a file that was truncated, or replaced by
another, is ignored. A seal is no secret: the file's owner is known from the system.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Final

from ikp.paths import put

_SEAL: Final = hashlib.sha256().digest_size
_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def keep(path: Path, key: bytes, content: bytes) -> None:
    """Write content to a file, with its seal behind it: a shared library may have bytes there.

    Args:
        path: the file.
        key: of the content, such as the hashed inputs.
        content: any bytes.

    Raises:
        OSError: it can't be written.
    """
    put(path, content + _seal(key, content))


def kept(path: Path, key: bytes) -> bytes | None:
    """Return the content that was kept for ``key``; None if there is none that can be trusted."""
    sealed = own(path)
    if sealed is None or sealed[-_SEAL:] != _seal(key, sealed[:-_SEAL]):
        return None
    return sealed[:-_SEAL]


def own(path: Path) -> bytes | None:
    """Return the bytes of a file that only this user or root can have written; None otherwise."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(file.fileno())
            return file.read() if stat.S_ISREG(found.st_mode) and _is_own(found) else None
    except OSError:
        return None


def own_folder(path: Path) -> bool:
    """Return whether no other user can replace a folder's files.

    A folder above it may be writable by its group, as homes in clusters are, or have the sticky
    bit.
    """
    try:
        found = path.lstat()
        above = [each.stat() for each in path.resolve().parents]
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode)
        and _is_own(found)
        and all(_is_own(each, stat.S_IWOTH) or _is_sticky(each) for each in above)
    )


def close_to_others(folder: Path) -> None:
    """Remove others' write permission from a folder of this user's.

    Raises:
        OSError: it is not there, or is another user's.
    """
    mode = folder.lstat().st_mode
    if stat.S_ISDIR(mode) and mode & _OTHERS:
        folder.chmod(stat.S_IMODE(mode) & ~_OTHERS)


def _is_own(found: os.stat_result, writers: int = _OTHERS) -> bool:
    """Return whether a file is this user's or root's, and ``writers`` may not write it."""
    return found.st_uid in (os.geteuid(), 0) and not found.st_mode & writers


def _is_sticky(found: os.stat_result) -> bool:
    return found.st_uid in (os.geteuid(), 0) and bool(found.st_mode & stat.S_ISVTX)


def _seal(key: bytes, content: bytes) -> bytes:
    return hashlib.sha256(hashlib.sha256(key).digest() + content).digest()
