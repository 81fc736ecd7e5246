"""Helpers of the commands: reading or salvaging a trace file, and printing the next command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ikp.cli._trace_file import from_stdin
from ikp.errors import ExportError
from ikp.terminal import next_line, printable

if TYPE_CHECKING:
    from ikp.trace import Trace


def check_file(path: Path) -> None:
    """Raise ExportError unless ``path`` is a file that can be read."""
    if not os.path.exists(path):  # noqa: PTH110 - Path.exists fails on names that are too long
        raise ExportError(f"no such file: {path}. Is the path right? `ikp demo` makes a trace.")
    if not path.is_file():
        raise ExportError(f"{path} is not a file. Give the path of one trace file.")
    try:
        path.open("rb").close()
    except OSError as error:
        raise ExportError(f"can't read {path}: {error.strerror}.") from error


def read_trace(path: Path) -> Trace:
    """Return the trace in a file, through the exporter whose suffix the file has.

    Raises:
        ExportError: no such file, no exporter has its suffix, the format can't be read back, or
            the file holds something else.
    """
    from ikp.trace import load

    check_file(path)
    return load(path)


def salvage_trace(path: Path) -> Trace:
    """Return the sound part of a damaged file as one trace, and print what is lost.

    Raises:
        ExportError: there is no such file, its format can't be salvaged, or nothing is sound.
    """
    from ikp.core.trace import of_class
    from ikp.edit import concat
    from ikp.registry import exporter_for_path
    from ikp.trace import Trace

    check_file(path)
    salvage = getattr(exporter_for_path(path), "salvage", None)
    if salvage is None:
        raise ExportError(f"{path} can't be salvaged: only what ikp wrote as .pftrace can.")
    found = salvage(path)
    several = len(found) > 1
    for number, (_, lost) in enumerate(found, 1):
        of = f"trace {number} of {len(found)}: " if several else ""
        for one in lost or ["nothing"]:
            click.echo(printable(f"lost: {of}{one}"), err=True)
    traces = [of_class(Trace, one) for one, _ in found]
    return concat(traces) if several else traces[0]


def next_command(*words: object, why: str = "") -> None:
    """Print on stderr the command to type next, quoted for the shell.

    None of it is printed where it would name a file that is gone when this command ends.
    """
    if any(map(from_stdin, words)):
        return
    click.echo(next_line(*words, why=why), err=True)
