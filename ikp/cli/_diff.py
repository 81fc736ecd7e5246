"""``ikp diff``: prints the differences of durations between two traces, or two sets of traces."""

from __future__ import annotations

from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ikp.cli._options import format_option
from ikp.cli._reading import next_command, read_trace
from ikp.cli._trace_file import TRACE
from ikp.errors import ExportError
from ikp.terminal import show

if TYPE_CHECKING:
    from ikp.analysis.diff.difference import Diff
    from ikp.trace import Trace

OVER: Final = 3
UNKNOWN: Final = 4
_TRACES: Final = (".pftrace", ".perfetto-trace", ".pftrace.gz")


@click.command("diff", short_help="What moved between two traces, and how surely.")
@click.argument("before", type=TRACE)
@click.argument("after", type=TRACE)
@click.option("--old", metavar="GLOB", multiple=True, help="Only launches labelled so, in BEFORE.")
@click.option("--new", metavar="GLOB", multiple=True, help="Only launches labelled so, in AFTER.")
@click.option(
    "--fail-over",
    metavar="LIMIT",
    multiple=True,
    help="Exit with 3 if it is surely passed: 'dot.p50=+3%', 'duration=+1%'.",
)
@click.option(
    "--unit",
    type=click.Choice(["ns", "cycles"]),
    default="ns",
    show_default=True,
    help="cycles don't change with the clock's rate.",
)
@format_option("table", "json")
def command(
    before: Path,
    after: Path,
    old: tuple[str, ...],
    new: tuple[str, ...],
    fail_over: tuple[str, ...],
    unit: str,
    output: str,
) -> None:
    """Print the changes from BEFORE to AFTER: of each kernel, and of its warps' time by range.

    Each is a trace file, or a set of runs: a folder of .pftrace files, or a pattern in quotes,
    'old-*.pftrace'. Launches of one label are compared; how much they vary says how far a
    difference can be trusted, so record 20 or so, best of both kernels alternately: in one file,
    which is given twice, with --old and --new.

    \b
    Exit codes:
      0  no limit is passed, or none was given
      1  an error; 2 wrong usage
      3  a limit of --fail-over is surely passed
      4  none is surely passed, and one can't be decided
    """  # noqa: D301 - click's mark for lines to leave as they are
    from ikp.analysis.diff.compare import diff

    sides = _side(before, old), _side(after, new)
    found = diff(*sides, unit=unit, fail_over=fail_over)
    _print(found, output)
    next_command("ikp", "view", _files(after)[0], why="the timeline, in your browser")
    if code := _exit_code(found):
        raise click.exceptions.Exit(code)


def _side(path: Path, labels: tuple[str, ...]) -> list[Trace]:
    from ikp.edit import select

    traces = [read_trace(file) for file in _files(path)]
    return [select(trace, launch=labels) for trace in traces] if labels else traces


def _files(path: Path) -> list[Path]:
    """Return the trace files of an argument: a file, those in a folder, or those of a pattern."""
    if path.is_dir():
        found = sorted(each for each in path.iterdir() if each.name.endswith(_TRACES))
        if not found:
            raise ExportError(f"{path} is a folder without a .pftrace file.")
        return found
    if path.exists():
        return [path]
    matching = [Path(name) for name in sorted(glob(str(path)))]  # noqa: PTH207 - with a folder
    return matching or [path]


def _print(found: Diff, output: str) -> None:
    if output == "json":
        click.echo(found.to_json())
        return
    show(found)


def _exit_code(found: Diff) -> int:
    verdicts = {limit.verdict for limit in found.limits}
    return OVER if "over" in verdicts else UNKNOWN if "unknown" in verdicts else 0
