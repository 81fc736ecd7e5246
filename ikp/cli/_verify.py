"""``ikp verify``: verifies a trace's patched kernels against the plain ones, from their cubins."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from ikp.cli._reading import read_trace
from ikp.terminal import printable


@click.command("verify", short_help="Whether patched kernels are the plain ones and their records.")
@click.argument("trace", metavar="TRACE", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json is a list: kernel, path, state, faults and why.",
)
def command(trace: Path, output: str) -> None:
    """Verify each patched kernel that TRACE was recorded with. No GPU is needed.

    The patched and the plain cubin lie in Triton's cache, where both were kept. A kernel is
    verified where each of its instructions is in the patched code, leads as before, and finds its
    registers as before, and where each inserted store is to ikp's own buffer.

    The exit code is 1 if a kernel failed, or could not be verified.
    """
    from ikp.inspection.verified import verified

    found = verified(read_trace(trace))
    if output == "json":
        rows = [
            {
                "kernel": each.label,
                "path": each.path,
                "state": each.state,
                "faults": list(each.faults),
                "why": each.why,
            }
            for each in found
        ]
        click.echo(json.dumps(rows, indent=2))
    else:
        for each in found:
            reasons = "; ".join(each.faults) or each.why
            click.echo(printable(f"{each.label}: {each.state}{f': {reasons}' if reasons else ''}"))
    if any(each.state != "verified" for each in found):
        sys.exit(1)
