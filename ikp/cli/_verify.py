"""``ikp verify``: verifies a trace's patched kernels against the plain ones, from their cubins."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, TypedDict

import click

from ikp.cli._options import format_option
from ikp.cli._reading import read_trace
from ikp.cli._trace_file import TRACE
from ikp.json_schema import headed
from ikp.printing import as_json
from ikp.terminal import printable

VERSION: Final = 1


class KernelJson(TypedDict):
    """What came of one kernel."""

    kernel: str
    state: str
    path: str
    faults: list[str]
    why: str


class VerifyJson(TypedDict):
    """The JSON of ``ikp verify``, without the head."""

    kernels: list[KernelJson]


@click.command("verify", short_help="Whether patched kernels are the plain ones and their records.")
@click.argument("trace", metavar="TRACE", type=TRACE)
@format_option(
    "text",
    "json",
    text="json has kernel, path, state, faults and why of each.",
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
        rows: list[KernelJson] = [
            {
                "kernel": each.label,
                "state": each.state,
                "path": each.path,
                "faults": list(each.faults),
                "why": each.why,
            }
            for each in found
        ]
        click.echo(as_json(headed("verify", VERSION, {"kernels": rows})))
    else:
        for each in found:
            reasons = "; ".join(each.faults) or each.why
            click.echo(printable(f"{each.label}: {each.state}{f': {reasons}' if reasons else ''}"))
    if any(each.state != "verified" for each in found):
        sys.exit(1)
