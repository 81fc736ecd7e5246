"""The command-line options that choose a part of a trace: --region, --launch, --sm and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

_NAMES: Final = {
    "region": "Only regions named so: load*.",
    "launch": "Only launches labelled so.",
    "role": "Only warps of this role.",
}
_NUMBERS: Final = {
    "rank": "Only launches of this rank.",
    "block": "Only this block, by its linear id.",
    "warp": "Only this warp of each block.",
    "sm": "Only this SM.",
}
_KINDS: Final = ("range", "instant")


def choosing(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command; ``given`` takes their values. Each may be given several times.

    Names are patterns as the shell has them; a name that exists exactly as written goes first.
    """
    options = [
        *(_option(name, text, str, "GLOB") for name, text in _NAMES.items()),
        *(_option(name, text, int, "N") for name, text in _NUMBERS.items()),
        click.option("--kind", type=click.Choice(_KINDS), help="Only ranges, or only instants."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _option(name: str, text: str, kind: type, metavar: str) -> Callable[..., Any]:
    return click.option(f"--{name}", metavar=metavar, type=kind, multiple=True, help=text)


def given(choice: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given, as ``ikp.edit.select`` takes them."""
    return {name: value for name, value in choice.items() if value}
