"""An ``Answer`` of ``ikp run`` as text that fits stderr: kernels by time, the verdict, and commands
to type next.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ikp.analysis.evidence import plural
from ikp.analysis.render import duration
from ikp.terminal import Column, columns, lay_out, next_line, printable, shortened, width

if TYPE_CHECKING:
    from ikp.running.answer import Answer, Kernel

_ROWS: Final = 5
_WIDE: Final = 80
_WIDEST: Final = 100
_NUMBERS: Final = 42
"""Cells that the table's numbers take."""
_SHAPE: Final = (
    Column("kernel", name=True),
    *(Column(title) for title in ("launches", "mean", "total", "share")),
)


def as_lines(answer: Answer, wide: int | None = None) -> Iterator[str]:
    """Yield the lines of an answer, none wider than ``wide`` but for commands, which stay whole."""
    wide = wide or min(columns(sys.__stderr__) or _WIDE, _WIDEST)
    if answer.kernels:
        yield from _table(answer, wide)
        yield ""
        yield from _found(answer, wide)
    yield from commands(answer, wide)


def commands(answer: Answer, wide: int = _WIDE) -> Iterator[str]:
    """Yield the commands to type next."""
    for each in answer.next:
        line = next_line(*each.words, why=each.why)
        yield line if width(line) <= wide else next_line(*each.words)


def _table(answer: Answer, wide: int) -> Iterator[str]:
    shown = answer.kernels[:_ROWS]
    head, rows = lay_out(_SHAPE, [_cells(one, wide) for one in shown], wide)
    yield ""
    yield from "\n".join((head, *rows)).split("\n")
    rest = answer.kernels[_ROWS:]
    if rest:
        share = 100 * sum(one.share for one in rest)
        yield f"and {plural(len(rest), 'more kernel')}: {share:.1f} % of the time"
    notes = []
    if any(one.recorded < one.launches for one in shown):
        notes.append("total: the mean of the recorded launches, times all launches.")
    if answer.untimed:
        names = ", ".join(_short(one, wide) for one in answer.untimed[:_ROWS])
        more = ", ..." if len(answer.untimed) > _ROWS else ""
        notes.append(f"without a time, because no launch was recorded: {names}{more}.")
    for note in notes:
        yield from textwrap.wrap(note, wide, subsequent_indent="  ")


def _cells(one: Kernel, wide: int) -> tuple[str, ...]:
    of = f"{one.recorded:,} of " if one.recorded < one.launches else ""
    about = "~" if of else ""
    return (
        _short(one.label, wide),
        f"{of}{one.launches:,}",
        duration(one.mean_ns),
        about + duration(one.total_ns),
        f"{100 * one.share:.1f} %",
    )


def _short(name: str, wide: int) -> str:
    """Return a name that fits beside the numbers: its beginning and its end tell kernels apart."""
    text, room = shortened(name), max(wide - _NUMBERS, 1)
    if width(text) <= room:
        return text
    while width(text) > room - 3:
        text = text[: len(text) // 2] + text[len(text) // 2 + 1 :]
    return f"{text[: len(text) // 2]}...{text[len(text) // 2 :]}"


def _found(answer: Answer, wide: int) -> Iterator[str]:
    if answer.verdict is None:
        text = f"The first of them is not explained: {printable(answer.not_explained)}."
        yield from textwrap.wrap(text, wide, subsequent_indent="  ", break_long_words=True)
        return
    from ikp.analysis.explain.screen import short_text

    yield from short_text(answer.verdict, wide).splitlines()
