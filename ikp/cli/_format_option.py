"""``format_option``: the option ``--format`` of commands that print for people and for programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., object])


def format_option(*forms: str, text: str | None = None) -> Callable[[_Command], _Command]:
    """Return the decorator that adds ``--format`` to a command, as its argument ``output``.

    Args:
        forms: what can be asked for; the first one is what a command prints without the option.
        text: help on the option.
    """
    return click.option(
        "--format",
        "output",
        type=click.Choice(forms),
        default=forms[0],
        show_default=True,
        help=text,
    )
