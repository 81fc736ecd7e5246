"""The option ``--window``: a window of time such as ``10us:250us``, parsed to nanoseconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ikp.analysis.written_time import WrittenTime, written_time

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
