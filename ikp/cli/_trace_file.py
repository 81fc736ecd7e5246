"""``TRACE``: the type of a command's arguments that name a trace file; ``-`` is standard input."""

from __future__ import annotations

import shutil
import sys
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import click

from ikp.errors import ExportError, UsageError

_STDIN: Final = "-"
_KEY: Final = "ikp.cli.stdin"
NAME: Final = "stdin.pftrace"
"""The name that a trace from standard input has in a temporary folder."""


class TraceFile(click.Path):
    """A path; of ``-``, that of a file with what came from standard input, while a command runs."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, allow_dash=True)

    def convert(
        self,
        value: str | PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """Return the path.

        Raises:
            UsageError: standard input is named twice, or is a terminal.
            ExportError: what comes from it can't be kept.
        """
        if value != _STDIN or ctx is None:
            return super().convert(value, param, ctx)
        root = ctx.find_root()
        if root.meta.get(_KEY):
            raise UsageError("- is standard input, which can be read once: name files beside it.")
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError(
                "- is standard input, and nothing is piped into it: `cat x.pftrace | ikp stats -`, "
                "or name the file."
            )
        root.meta[_KEY] = True
        folder = TemporaryDirectory(prefix="ikp-")
        root.call_on_close(folder.cleanup)
        return _kept(Path(folder.name) / NAME)


def _kept(path: Path) -> Path:
    try:
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
    except OSError as error:
        raise ExportError(f"standard input can't be kept in {path}: {error.strerror}.") from error
    return path


TRACE: Final = TraceFile()


def from_stdin(path: object) -> bool:
    """Return whether a path is one of standard input, which is gone when the command ends."""
    return isinstance(path, Path) and path.name == NAME and path.parent.name.startswith("ikp-")
