"""``ikp schema``: prints the JSON Schema of a command's ``--format json``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

import ikp.schemas

FOLDER: Final = Path(ikp.schemas.__path__[0])


@click.command("schema", short_help="The JSON Schema of a command's --format json.")
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """Print the JSON Schema of what a command prints with --format json.

    NAME is a command, or addresses, for `ikp stats --addresses`. Without NAME, all names are
    listed. Each document begins with its own: {"schema": "ikp/NAME", "version": N, ...}.
    """
    if name is None:
        click.echo("\n".join(names()))
        return
    if name not in names():
        raise click.BadParameter(f"{name!r}: there are {', '.join(names())}.")
    click.echo(text_of(name), nl=False)


def names() -> list[str]:
    """Return the names of all schemas."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def text_of(name: str) -> str:
    """Return a schema as JSON."""
    return (FOLDER / f"{name}.json").read_text(encoding="utf-8")
