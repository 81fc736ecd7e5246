"""Small libraries in C: those of the wheel, or compiled at first use and cached per user.

A wheel for one platform has them in ``ikp/prebuilt``. They are loaded into the process: so a
library is taken from there or from the cache only if no other user can have written it, and its
source and options are the same; from the cache, also only if it is whole and the compiler is the
same. Without a usable cache, it is compiled for this process alone.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shlex
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ikp import caches, children

PREBUILT: Final = Path(__file__).with_name("prebuilt")
"""The libraries of a wheel for one platform; other installations have no such folder."""
_LIMIT_S: Final = 120.0
_MINE: Final = 0o700


class CompileError(Exception):
    """The compiler refuses; says why."""


@dataclass(frozen=True)
class CFile:
    """A library of one C file, for machines whose words begin with their lowest byte."""

    source: Path
    name: str
    options: tuple[str, ...] = ("-shared", "-fPIC", "-O2")

    def library(self) -> Path:
        """Return the compiled file.

        Raises:
            OSError: there is no compiler, or no folder for a file.
            CompileError: the compiler fails, or this is another kind of machine.
        """
        return kept(self.name, self.source.read_bytes(), self.make, self.options)

    def make(self, folder: Path) -> Path:
        """Compile it into a folder; raises as ``library`` does."""
        if sys.byteorder != "little":
            raise CompileError(f"{self.source.name} is for words that begin with their lowest byte")
        made = folder / self.name
        compile_c(*self.options, "-o", made, self.source)
        return made


def kept(
    name: str, source: bytes, make: Callable[[Path], Path], options: Sequence[str] = ()
) -> Path:
    """Return the library that ``make`` makes in a given folder: the wheel's, or a cached one.

    Args:
        name: of the file.
        source: of the library.
        make: compiles it.
        options: of the compiler.

    Raises:
        OSError: there is no compiler, or no folder for a file.
        CompileError: the compiler fails.
    """
    came = prebuilt(name, source, options)
    if came is not None:
        return came
    key = "\0".join([*options, *_surroundings()]).encode() + b"\0" + source
    target = _target(name, key)
    if target is not None and _is_whole(target, key):
        return target
    scratch = Path(tempfile.mkdtemp(prefix="ikp-"))
    try:
        made = make(scratch)
        stored = target is not None and _stored(made, target, key)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    if target is not None and stored:
        shutil.rmtree(scratch, ignore_errors=True)
        return target
    _remove_at_exit(scratch)
    return made


def prebuilt(name: str, source: bytes, options: Sequence[str] = ()) -> Path | None:
    """Return a library that came with the wheel; None if there is none, or it can't be trusted.

    Args:
        name: of the file.
        source: of the library.
        options: of the compiler.
    """
    path = PREBUILT / prebuilt_name(name, source, options)
    if not path.is_file() or not _glibc():  # wheels are made for glibc
        return None
    trusted = caches.own_folder(PREBUILT) and caches.own(path) is not None
    return path if trusted else None


def prebuilt_name(
    name: str, source: bytes, options: Sequence[str] = (), machine: str | None = None
) -> str:
    """Return a library's file name in a wheel: it says for which source, options and machine.

    Args:
        name: of the file.
        source: of the library.
        options: of the compiler.
        machine: as ``uname`` calls it; by default, this one.
    """
    key = hashlib.sha256("\0".join(options).encode() + b"\0" + source).hexdigest()[:32]
    return f"{key}-{machine or os.uname().machine}-{name}"


def compiler() -> str:
    """Return the command of the C compiler, as Triton finds it."""
    found = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    return found or shutil.which("clang") or (sysconfig.get_config_var("CC") or "cc")


def compiler_path() -> str | None:
    """Return the path of the C compiler's program; None where there is none."""
    try:
        return shutil.which(shlex.split(compiler())[0])
    except (ValueError, IndexError):  # CC is no command: running it raises the error
        return None


def compile_c(*arguments: str | Path) -> None:
    """Run the C compiler.

    Raises:
        OSError: there is none.
        CompileError: it fails.
    """
    try:
        words = shlex.split(compiler())
        done = children.run([*words, *arguments], _LIMIT_S)
    except ValueError as error:
        raise CompileError(f"CC={compiler()} is no command: {error}") from error
    except children.TooLongError as error:
        raise CompileError(str(error)) from error
    if done.code:
        raise CompileError(f"{compiler()} fails: {done.said.strip()[:500]}")


def _surroundings() -> list[str]:
    """Return the part of the cache key beside source and options: compiler, machine and libc."""
    found = [compiler(), os.uname().machine, _glibc()]
    with suppress(OSError):  # without a compiler, running it raises the error
        program = Path(compiler_path() or "").resolve()
        seen = program.stat()
        found += [str(program), str(seen.st_size), str(seen.st_mtime_ns)]
    return found


def _glibc() -> str:
    """Return name and version of glibc; nothing where another libc is used."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""


def cache_folder() -> Path | None:
    """Return the folder of ikp's cache, which may not be there yet; None without a home folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "")
    if not cache.is_absolute():  # XDG's rules ignore a relative path
        try:
            cache = Path.home() / ".cache"
        except RuntimeError:
            return None
    return cache / "ikp"


def _target(name: str, key: bytes) -> Path | None:
    """Return the path of a library in the cache; None without a home folder."""
    cache = cache_folder()
    if cache is None:
        return None
    return cache / f"{Path(name).stem}-{hashlib.sha256(key).hexdigest()[:32]}" / name


def _is_whole(target: Path, key: bytes) -> bool:
    folders = caches.own_folder(target.parents[1]) and caches.own_folder(target.parent)
    return folders and caches.kept(target, key) is not None


def _stored(made: Path, target: Path, key: bytes) -> bool:
    """Write a library to the cache; return whether it is there now, and may be loaded."""
    try:
        for folder in reversed(target.parents):
            folder.mkdir(_MINE, exist_ok=True)  # for any umask
        for folder in target.parents[:2]:
            caches.close_to_others(folder)
        caches.keep(target, key, made.read_bytes())
    except OSError:  # a full disk, a folder that may not be written
        return False
    return _is_whole(target, key)


def _remove_at_exit(folder: Path) -> None:
    """Remove a folder when this process ends, and not when a forked child does."""
    process = os.getpid()

    def remove() -> None:
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
