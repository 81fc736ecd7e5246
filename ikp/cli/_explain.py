"""``ikp explain``: prints the verdict on a kernel, or its JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ikp.cli._options import format_option
from ikp.cli._reading import next_command, read_trace
from ikp.cli._trace_file import TRACE
from ikp.registry import SUFFIXES
from ikp.terminal import columns, write

if TYPE_CHECKING:
    from ikp.analysis.explain.verdict import Verdict


def _print_schema(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from ikp.cli._schema import text_of

        click.echo(text_of("explain"), nl=False)
        context.exit()


@click.command("explain", short_help="What takes a kernel's time, and what a change could win.")
@click.argument("file", metavar="FILE", type=TRACE)
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of --format json, and exit.",
)
@format_option(
    "text",
    "json",
    text="json holds all numbers, in at most 8 KB.",
)
@click.option(
    "--launch",
    metavar="NAME",
    help="A label, as a pattern, or a launch's number. Without it: the label that took longest.",
)
@click.option(
    "--unknown",
    is_flag=True,
    help="All that is not known, too: why, and what to record. json always has it.",
)
def command(file: Path, output: str, launch: str | None, unknown: bool) -> None:
    """Print the verdict on a kernel in FILE: findings, ranked by the time at stake.

    Each has its number, where to look, how sure it is, and a bound: without this cause, at most so
    much less time. It is made of one launch, of its label the one of median duration. What can't be
    said is said, with what to record. docs/reading-a-trace.md has each finding's formula, and when
    it is wrong.
    """
    from ikp.analysis.explain.explaining import explain

    which = int(launch) if launch is not None and launch.isdecimal() else launch
    verdict = explain(read_trace(file), which)
    if output == "json":
        click.echo(verdict.to_json())
    else:
        print_verdict(verdict, unknown=unknown)
    if verdict.findings and file.name.endswith(SUFFIXES["perfetto"]):
        words = ["ikp", "view", "--finding", 1, *(("--launch", launch) if launch else ())]
        next_command(*words, file, why="where the first finding is, in the timeline")
    else:
        next_command("ikp", "view", file, why="the timeline, in your browser")


def print_verdict(verdict: Verdict, *, unknown: bool = False) -> None:
    """Print a verdict in lines that fit the terminal; with ``unknown``, why facts are missing."""
    from ikp.analysis.explain.screen import as_text

    write(as_text(verdict, min(columns() or 100, 100), unknown=unknown) + "\n")
