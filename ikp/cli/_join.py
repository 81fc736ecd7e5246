"""``ikp join``: writes a trace and torch.profiler's of the same run into one file, on one axis."""

from __future__ import annotations

from pathlib import Path

import click

from ikp.cli._reading import next_command, read_trace
from ikp.cli._trace_file import TRACE
from ikp.errors import UsageError


@click.command("join", short_help="Put torch.profiler's trace beside ikp's, on one axis.")
@click.argument("source", metavar="KERNEL.pftrace", type=TRACE)
@click.argument("hosts", metavar="HOST.json...", nargs=-1, required=True, type=click.Path())
@click.option("--out", metavar="PATH", help="Where to write. Without it: KERNEL.joined.pftrace.")
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
@click.option(
    "--by",
    "way",
    type=click.Choice(["clocks", "launches"]),
    help="Place by clocks, or by matching launches with kernel records. Without it: by clocks "
    "where both files know them.",
)
def command(
    source: Path, hosts: tuple[str, ...], out: str | None, force: bool, way: str | None
) -> None:
    """Write one file with the launches and warps of KERNEL.pftrace, and what torch.profiler saw.

    HOST.json is what torch.profiler's export_chrome_trace wrote, or its .json.gz, of the same run:
    Python functions, operators, CUDA calls, kernels and copies. It may also be viztracer's JSON,
    of Python functions alone, or Nsight Systems' report, from nsys export --type sqlite.
    Arrows go from a call to its kernel and to the launch with its warps. Calls and copies of ikp's
    own thread are left out.

    Launches lie within CUPTI's records of them. That is checked: the worst overhang is printed, and
    if more than 1 in 100 launches don't fit, nothing is written.
    """
    from ikp.exporters.perfetto import PerfettoExporter
    from ikp.host_traces import kineto, nsight
    from ikp.host_traces.placing import check_overlap, place
    from ikp.registry import check_target

    target = out or str(source.with_name(f"{source.stem}.joined.pftrace"))
    if not target.endswith(PerfettoExporter.suffixes):
        raise UsageError(f"{target}: both traces go into a .pftrace, and no other format.")
    check_target(target, force)  # before the work of reading
    trace = read_trace(source)
    traces, records = [], []
    for each in hosts:
        reader = nsight.read if nsight.is_nsight(each) else kineto.read
        placed = place(trace, reader(each), way)
        if placed.way == "launches" and len(hosts) > 1:
            raise UsageError(
                f"{each} can only be placed by launches, which moves the trace onto its axis: then "
                "no other file can be. Join one file, or record again with this version of ikp."
            )
        if not placed.record:
            check_overlap(placed.trace, placed.host)
        trace = placed.trace
        traces.append(placed.host)
        records.append(placed.record)
        click.echo(placed.report)
    PerfettoExporter().write_beside(trace, target, traces, records, force=force)
    click.echo(f"wrote {target}")
    next_command("ikp", "view", target, why="the timeline, in your browser")
