"""``ikp attach``: records a program under ``ikp run --idle`` for a while, from another terminal."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import click

from ikp.errors import UsageError
from ikp.running.startup.ikp_children import Family
from ikp.running.startup.sitecustomize import FAMILY, WISH


@click.command("attach", short_help="Record a program under `ikp run --idle` for a while.")
@click.argument("pid", type=click.IntRange(1))
@click.option(
    "--for",
    "seconds",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="How long to record. Without it: until Ctrl-C.",
)
def command(pid: int, seconds: float | None) -> None:
    """Record the program of process PID, and all its children, for a while.

    PID is any process of a program that `ikp run --idle` has started. Each of its processes that
    launches kernels writes a trace of this window.
    """
    family = _family(pid)
    switch = Path(family.switch)
    try:
        switch.touch(exist_ok=False)
    except FileExistsError:
        raise UsageError(f"process {pid} is being recorded already: {switch} is there.") from None
    except OSError as error:
        raise UsageError(f"process {pid} can't be recorded: {error.strerror}.") from error
    try:
        click.echo(
            "recording" + (f" for {seconds:g} s." if seconds else ": Ctrl-C ends."), err=True
        )
        with suppress(KeyboardInterrupt):
            time.sleep(seconds or 1 << 30)
    finally:
        switch.unlink(missing_ok=True)
    click.echo("over: the program says on its stderr what it wrote.", err=True)


def _family(pid: int) -> Family:
    """Return the family of a process.

    Raises:
        UsageError: it has none, or is not idle.
    """
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes()
    except FileNotFoundError:
        raise UsageError(
            f"there is no process {pid} on this machine, or in this container: give the number of "
            "a process that `ikp run --idle` started."
        ) from None
    except OSError as error:
        raise UsageError(
            f"process {pid} can't be read: {error.strerror}. Run `ikp attach` as its user."
        ) from error
    pairs = (os.fsdecode(each).partition("=") for each in text.split(b"\0"))
    variables = {name: value for name, _, value in pairs}
    if FAMILY not in variables or '"idle": true' not in variables.get(WISH, ""):
        raise UsageError(
            f"process {pid} was not started by `ikp run --idle`, or not by Python: only such a "
            "program has the hooks in front of the driver."
        )
    return Family.parse(variables[FAMILY])
