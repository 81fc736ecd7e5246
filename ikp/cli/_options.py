"""Command-line options that several commands share: ``--format``, ``--window``, and those that
choose a part.

A window of time, such as ``10us:250us``, is parsed to nanoseconds. ``--region``, ``--launch``,
``--sm`` and others choose a part of a trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from ikp.analysis.written_time import WrittenTime, written_time

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


Command = TypeVar("Command", bound=Callable[..., Any])
Window = tuple[float | None, float | None]
"""Begin and end in nanoseconds, None for no bound."""


def window_option(help_text: str) -> Callable[[Command], Command]:
    """Return the option ``--window A:B``: two times with units, of which one may be left out.

    In ``10:20us`` both are microseconds.
    """
    return click.option("--window", metavar="A:B", callback=_window, help=help_text)


def _window(ctx: click.Context, param: click.Parameter, text: str | None) -> Window | None:
    """Return both times in nanoseconds."""
    if text is None:
        return None
    begin, end = _bounds(text)
    if begin is None and end is None:
        raise click.BadParameter(
            f"{text!r} is no window: give two times, such as 10us:250us.", ctx, param
        )
    if begin is not None and end is not None and begin > end:
        raise click.BadParameter(f"{text!r} ends before it begins.", ctx, param)
    return begin, end


def _bounds(text: str) -> Window:
    """Return both bounds of a window in nanoseconds; None and None where it is none."""
    ends = text.split(":")
    found = [written_time(one) for one in ends]
    if len(ends) != 2 or any(
        one.strip() and not time for one, time in zip(ends, found, strict=True)
    ):
        return None, None
    unit = found[1].unit if found[1] else None
    begin, end = (_ns(one, unit) if one else None for one in found)
    return begin, end


def _ns(time: WrittenTime, usual: str | None) -> float:
    found = time.ns(usual)
    if found is None:
        raise click.BadParameter(f"{time.text!r} has no unit: say ns, us, ms or s.")
    return found
