"""The end of a run: lines on all processes, what took the time as text that fits stderr, commands
to type next.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ikp.analysis.evidence import plural
from ikp.analysis.render import duration
from ikp.paths import put as write
from ikp.paths import shown
from ikp.printing import as_json
from ikp.running import _together as together
from ikp.running._following import parts_of
from ikp.running._following import report as follow_up
from ikp.running.answer import answer, beside, document
from ikp.running.process_parts import Part
from ikp.running.run_options import Options
from ikp.running.startup.sitecustomize import put, say
from ikp.signals import pass_on
from ikp.terminal import Column, columns, lay_out, next_line, printable, shortened, width

if TYPE_CHECKING:
    from ikp.running.answer import Answer, Kernel
    from ikp.running.startup.ikp_children import Family
    from ikp.trace import Trace


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
    """Return a name that fits beside the numbers: kernels differ at its beginning and its end."""
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


_HASTY: Final = "a signal ended the program"
_UNWANTED: Final = "--no-explain"


def finish(
    options: Options,
    path: str,
    family: Family | None,
    parts: Sequence[Part] = (),
    traces: Mapping[str, Trace] | None = None,
    *,
    hasty: bool = False,
    lines: Sequence[str] = (),
) -> None:
    """Print the end of a run, on stderr; no error in it is raised.

    Args:
        options: of the run.
        path: of the first process's trace.
        family: the processes of the run; it is over afterwards.
        parts: what the first process recorded.
        traces: those in memory, by their files.
        hasty: whether a signal ends the process: nothing is explained then.
        lines: warnings, and what went wrong: for the JSON.
    """
    try:
        _finish(options, path, family, parts, traces or {}, hasty=hasty, lines=lines)
    except Exception as error:  # noqa: BLE001 - the traces are written, and the program is over
        pass_on(error)
        say(f"what took the time is not said: {type(error).__name__}: {error}")
    finally:
        if family is not None:
            family.end()


def _finish(
    options: Options,
    path: str,
    family: Family | None,
    parts: Sequence[Part],
    traces: Mapping[str, Trace],
    *,
    hasty: bool,
    lines: Sequence[str],
) -> None:
    every = [*parts, *(() if family is None else parts_of(family))]
    wrote = [each.trace for each in every if each.trace is not None]
    if family is not None:
        follow_up(family, path, wrote)
    refused = _HASTY if hasty else "" if options.explain else _UNWANTED
    found = answer(every, traces, options.folder, refused=refused)
    if family is not None:
        found = _with_whole(found, wrote, path, traces, options, hasty=hasty)
    if options.output == "json":
        _save(beside(options.path), as_json(document(every, found, lines)))
    for line in as_lines(found) if options.explain else commands(found):
        put(line)


def _with_whole(
    found: Answer,
    wrote: Sequence[str],
    path: str,
    traces: Mapping[str, Trace],
    options: Options,
    *,
    hasty: bool,
) -> Answer:
    """Write one file of all processes; return the answer with it, or with the command for it."""
    whole = together.target(path, options)
    joined = len(wrote) > 1 and not hasty and together.join(wrote, whole, traces, options)
    if not joined and options.force and whole.exists():
        say(f"of an earlier run: {shown(whole)}.")
    if len(wrote) < 2:
        return found
    more = together.command(wrote, whole, options.folder, joined=joined)
    return replace(found, next=(*found.next, more), whole=str(whole) if joined else None)


def _save(target: Path, text: str) -> None:
    """Write the JSON of a run, which is ASCII; print where it is, or why it is not there."""
    try:
        write(target, f"{text}\n".encode())
    except OSError as error:
        say(f"{target} was not written: {error}. `ikp explain FILE --format json` has the verdict.")
    else:
        say(f"wrote {target}.")
