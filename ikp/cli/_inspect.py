"""``ikp inspect``: lists the machine instructions in each range of a compiled kernel."""

from __future__ import annotations

from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ikp.cli._options import format_option
from ikp.cli._reading import read_trace
from ikp.cli._trace_file import TRACE
from ikp.errors import InspectError
from ikp.paths import triton_cache
from ikp.patterns import choose
from ikp.terminal import show

if TYPE_CHECKING:
    from ikp.inspection.report import Report
    from ikp.trace import Trace


@click.command("inspect", short_help="What a kernel's ranges hold, instruction by instruction.")
@click.argument("path", type=TRACE, required=False)
@click.option("--kernel", metavar="GLOB", help="Only kernels named so: gemm, *gemm*.")
@click.option("--code", metavar="GLOB", help="List the instructions of the ranges named so.")
@format_option(
    "table",
    "json",
    text="json holds every instruction of every range.",
)
def command(path: Path | None, kernel: str | None, code: str | None, output: str) -> None:
    """Show which machine instructions lie between the clock reads of each range. No GPU is needed.

    PATH is a .cubin file with its .ptx beside it, a .ptx file, or a directory with such files, of
    which the kernels that record are shown, the latest of each name; or a trace of kernels with
    records in their machine code (--level machine), which says where that was kept. Without PATH it
    is Triton's cache, where each kernel that was compiled on this machine lies. For CuTe, set
    CUTE_DSL_KEEP=ptx,cubin and CUTE_DSL_DUMP_DIR when the kernel is compiled.

    A warning says where a range does not hold what its name or its lines promise, like a range
    around tl.load in a loop that the compiler pipelined, and where those instructions are.

    \b
    Examples:
      ikp inspect --kernel gemm                 the latest kernel with this name
      ikp inspect --kernel gemm --code load     and the instructions of its range "load"
      ikp inspect build/kernel.cubin --format json
    """  # noqa: D301 - \b is click's
    from ikp.inspection.inspector import inspect

    report = inspect(_chosen(path), name=kernel)
    if output == "json":
        click.echo(report.to_json())
        return
    show(report)
    if code is not None:
        _print_code(report, code)


def _chosen(path: Path | None) -> Path | Trace:
    """Return the argument of ``inspect``: a path of code as it is; for a trace file, the trace."""
    if path is None:
        return _cache()
    code = path.is_dir() or path.suffix in (".ptx", ".cubin") or not path.exists()
    return path if code else read_trace(path)


def _cache() -> Path:
    """Return Triton's cache."""
    path = triton_cache()
    if not path.is_dir():
        raise InspectError(
            f"Triton's cache is not there: {path}. Run the kernel once, or name a .cubin file."
        )
    return path


def _print_code(report: Report, pattern: str) -> None:
    from ikp.inspection.render import listing

    ranges = [one for kernel in report for one in kernel.ranges]
    for one in compress(ranges, choose([one.name for one in ranges], pattern, "range")):
        click.echo("\n" + listing(one))
