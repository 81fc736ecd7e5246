"""Probe regions of all lines and functions that a user chose; or the reason why there are none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ikp.probes.points.absent_lines import files, functions, no_code, no_function
from ikp.probes.points.chosen_lines import Chosen, Lines, Piece
from ikp.probes.points.lines_of import AboutLines
from ikp.probes.points.load_waits import LoadWait
from ikp.sass.control_flow.flow import Flow


@dataclass(frozen=True, slots=True)
class Choice:
    """One range with a message on what it holds; or none, with the reason."""

    piece: Piece | None
    message: str


def choices(
    flow: Flow,
    origins: AboutLines,
    waits: Sequence[LoadWait],
    lines: Sequence[Lines],
    names: Sequence[str],
) -> Iterator[Choice]:
    """Yield the ranges of chosen lines, then those of functions.

    Args:
        flow: the kernel.
        origins: its source lines.
        waits: its waits for loads.
        lines: the chosen lines.
        names: the names of chosen functions.
    """
    code = flow.code
    for span in lines:
        matching = [file for file in files(code) if span.within(file)]
        why = no_code(code, str(span), span.first, span.last, matching)
        yield from _of(Chosen(flow, origins, span, waits), why)
    for name in names:
        bodies = functions(code, name)
        made = [Chosen(flow, origins, body, waits, f"{name}()") for body in bodies]
        with_code = [each for each in made if each.own]
        for each in with_code:
            yield from _of(each, "")
        if not with_code:
            yield Choice(None, no_function(code, name))


def _of(chosen: Chosen, why: str) -> Iterator[Choice]:
    if not chosen.own:
        yield Choice(None, why)
    elif not chosen.pieces:
        yield Choice(None, f"{chosen.where} has no region that is entered and left at one point.")
    for piece in chosen.pieces if chosen.own else ():
        yield Choice(piece, chosen.message(piece))
