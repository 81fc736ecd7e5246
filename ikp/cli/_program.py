"""``ikp demo --program``: writes an ordinary Triton program, to be run under ``ikp run``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from ikp.cli._reading import next_command
from ikp.paths import replacing
from ikp.terminal import printable

PROGRAM: Final = Path(__file__).parent / "programs" / "attention.py"
"""Causal attention, whose blocks take unevenly long. Nothing of ikp is in it."""


def write_program(path: Path, *, force: bool) -> None:
    """Write the program and print the command to type next; an equal file is left as it is.

    Raises:
        ExportError: another file has that name and ``force`` is false, or it can't be written.
    """
    content = PROGRAM.read_bytes()
    if not (path.is_file() and path.read_bytes() == content):
        with replacing(path, force=force) as file:
            file.write(content)
    click.echo(f"wrote {printable(str(path))}: causal attention in Triton.", err=True)
    next_command("ikp", "run", "--detail", "ops", path, why="what takes its time, and why")
