"""The ``ikp`` command group and its help; each subcommand is imported when it is used."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import IO, Any

import click

from ikp.errors import IkpError, IkpWarning
from ikp.version import __version__

COMMANDS = (
    *("demo", "run", "stats", "explain", "diff", "report", "view", "join", "inspect", "convert"),
    *("merge", "attach", "doctor", "verify", "calibrate", "plugins", "schema", "mcp", "skill"),
)
"""In the order of a first visit. ``ikp.cli._<name>`` holds a click command called ``command``."""
_READING = ("stats", "explain", "diff", "report", "view", "join", "convert", "merge")
"""Commands that only read traces: they may set OpenBLAS's threads, which a program would notice."""

_HELP = """Shows what happens inside a GPU kernel: when each warp did what, and for how long.

ikp records the kernels of a program that you run, in any language, unedited; or ranges that you put
into kernels of Triton, Gluon and CuTe DSL. What warps recorded becomes a Perfetto trace, tables and
a verdict.

\b
What to do first:
  ikp doctor                     what is installed, and is there a GPU
  ikp demo                       profile a small kernel; works without a GPU
  ikp demo --recorded            a library's kernel as an H100 ran it; needs no torch
  ikp demo --program             write attention.py, to try ikp run on
  ikp run your_script.py         profile the kernels of a program, unedited
  ikp stats ikp-demo.pftrace     how long each range took
  ikp explain x.pftrace          what takes the kernel's time, and what a change could win
  ikp diff before after          what moved between two traces, or sets of them
  ikp report ikp-demo.pftrace    pictures and tables of all of it, as one page
  ikp view ikp-demo.pftrace      the timeline, in your browser
  ikp join x.pftrace host.json   the same beside torch.profiler's: calls, kernels, warps
  ikp merge a b all.pftrace      the traces of several processes in one
  ikp convert --help             other formats: Chrome JSON, Hatchet, CSV, Parquet
  ikp skill                      how a coding agent uses ikp; ikp mcp serves it tools
  ikp COMMAND --help             more about one command
"""


_TRACES = "A trace may also be packed, x.pftrace.gz, or come from standard input, as -."
"""The last line of the help of each command that reads one."""


def _reads_trace(command: click.Command) -> bool:
    from ikp.cli._trace_file import TraceFile

    return any(isinstance(each.type, TraceFile) for each in command.params)


class _Failure(click.ClickException):
    """An :class:`~ikp.errors.IkpError` on its way to stderr: one message, exit code 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message."""
        click.echo(f"ikp: error: {self.format_message()}", file=file, err=file is None)


class _LazyGroup(click.Group):
    """A group that imports a subcommand when it is named, and prints ikp's errors as messages."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the subcommands' names."""
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        """Import the subcommand's module and return its command."""
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in _READING and "numpy" not in sys.modules:
            # They need no linear algebra. OpenBLAS starts a thread for each core, which spins.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        command: click.Command = import_module(f"ikp.cli._{cmd_name}").command
        if command.epilog is None and _reads_trace(command):
            command.epilog = _TRACES
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand; of a name that is none, say which it may be meant for."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            ctx.fail(f"No such command {name!r}. {_meant(name)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; IKP_TRACEBACK=1 lets its errors through with their traceback."""
        try:
            with _warnings_as_lines():
                return super().invoke(ctx)
        except (IkpError, MemoryError) as error:
            if os.environ.get("IKP_TRACEBACK") == "1":
                raise
            raise _Failure(_said(error)) from error


def _said(error: Exception) -> str:
    if isinstance(error, IkpError):
        return str(error)
    what = f": {error}" if str(error) else ""
    return f"there is not enough memory{what}. Give smaller files, or use a machine with more."


def _meant(name: str) -> str:
    """Return what a command that is none may be meant for: a command, or a file to run or read."""
    from difflib import get_close_matches

    if name.endswith((".pftrace", ".pftrace.gz")):
        return f"For a trace: ikp stats {name}, or ikp explain {name}"
    if name.endswith(".py"):
        return f"For a program: ikp run {name}"
    near = get_close_matches(name.lower(), COMMANDS, n=2)
    return f"Did you mean {' or '.join(near)}?" if near else "ikp --help lists all."


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Print ikp's own warnings as lines, without the source line that Python prints."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, IkpWarning):
            click.echo(f"ikp: warning: {message}", err=True)
        else:
            usual(message, category, *place, **more)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = usual


@click.group(cls=_LazyGroup, help=_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", message="ikp %(version)s")
def cli() -> None:
    """Hold the subcommands; ``_HELP`` is the text for users."""


def main() -> None:
    """Run the command line and exit: 0 if all went well, 1 on an error, 2 on wrong usage."""
    try:
        try:
            cli(prog_name="ikp")
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or os.environ.get("IKP_TRACEBACK") == "1":
            raise  # of a file: a mistake of ikp's
        _lose_output()
        click.echo(f"ikp: error: the output can't be written: {error.strerror}.", err=True)
        sys.exit(1)


def _lose_output() -> None:
    """Redirect stdout to /dev/null: Python flushes it at exit, and would fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


if __name__ == "__main__":
    main()
