"""The end of a run: lines on all processes, what took the time, and the commands to type next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ikp.paths import put as write
from ikp.printing import as_json
from ikp.running._answer_text import as_lines, commands
from ikp.running._following import parts_of
from ikp.running._following import report as follow_up
from ikp.running.answer import answer
from ikp.running.document import beside, document
from ikp.running.process_parts import Part
from ikp.running.run_options import Options
from ikp.running.startup.sitecustomize import put, say
from ikp.signals import pass_on

if TYPE_CHECKING:
    from ikp.running.startup.ikp_children import Family
    from ikp.trace import Trace

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
    merge = () if family is None else follow_up(family, path, options.folder)
    every = [*parts, *(() if family is None else parts_of(family))]
    refused = _HASTY if hasty else "" if options.explain else _UNWANTED
    found = answer(every, traces, options.folder, refused=refused)
    found = replace(found, next=(*found.next, *merge))
    if options.output == "json":
        _save(beside(options.path), as_json(document(every, found, lines)))
    for line in as_lines(found) if options.explain else commands(found):
        put(line)


def _save(target: Path, text: str) -> None:
    """Write the JSON of a run, which is ASCII; print where it is, or why it is not there."""
    try:
        write(target, f"{text}\n".encode())
    except OSError as error:
        say(f"{target} was not written: {error}. `ikp explain FILE --format json` has the verdict.")
    else:
        say(f"wrote {target}.")
