"""Small libraries in C: compiled when they are first needed, and kept in the user's cache."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path


class CompileError(Exception):
    """The compiler refuses; says why."""


def kept(name: str, source: bytes, make: Callable[[Path], Path]) -> Path:
    """Return the library that ``make`` makes of ``source`` in a folder that it gets, or did before.

    Raises:
        OSError: there is no place to keep it, or no compiler.
        CompileError: the compiler fails.
    """
    key = hashlib.sha256(source + os.uname().machine.encode()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ikp"
    target = folder / f"{Path(name).stem}-{key}" / name
    if not target.exists():
        with tempfile.TemporaryDirectory() as scratch:
            made = make(Path(scratch))
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(f"{name}.{os.getpid()}")
            shutil.copy(made, partial)
            partial.replace(target)
    return target


def compiler() -> str:
    """Return the command of the C compiler, as Triton finds it."""
    found = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    return found or shutil.which("clang") or (sysconfig.get_config_var("CC") or "cc")


def compile_c(*arguments: str | Path) -> None:
    """Run the C compiler.

    Raises:
        OSError: there is none.
        CompileError: it fails.
    """
    said = subprocess.run(  # noqa: S603
        [*shlex.split(compiler()), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    if said.returncode:
        raise CompileError(f"{compiler()} fails: {said.stderr.strip()[:500]}")
