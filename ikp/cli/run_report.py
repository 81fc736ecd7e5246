"""What ``ikp run`` says at the end: what was recorded, the ten largest ranges, what was lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ikp.cli.files import next_command
from ikp.errors import IkpError

if TYPE_CHECKING:
    from ikp.auto.everything import Everything
    from ikp.core.session import profile
    from ikp.core.trace import Trace

ROWS = 10
MIB = 1 << 20
RECORD_CYCLES = {32: 53, 64: 68}
"""The most that a range took in a full H200, by the bits of its clock (docs/benchmarks.md)."""


def report(session: profile, launcher: Everything, path: Path) -> None:
    """Print everything that there is to say, on stderr: the program's stdout is its own."""
    for line in _launches(session, launcher):
        say(line)
    if not launcher.recorded:
        if not launcher.plain:
            say(
                "no Triton or Gluon kernel was launched in this process. Kernels of child "
                "processes are not seen: put `ikp run` in front of the child's own command."
            )
        return
    try:
        trace: Trace = session.trace
    except IkpError as error:
        say(str(error))
        return
    _table(trace)
    say(_recording(trace))
    if path.exists():
        say(f"wrote {path} ({path.stat().st_size / 1024:,.0f} KiB).")
        next_command("ikp", "stats", path, why="every range")
        next_command("ikp", "view", path, why="the timeline, in your browser")


def _table(trace: Trace) -> None:
    from ikp.analysis.stats import stats

    table = stats(trace)
    rows = sorted(table.rows, key=lambda row: -(row.total_ns or 0))
    shown = replace(table, rows=tuple(rows[:ROWS]), evidence=())
    click.echo("", err=True)
    click.echo(str(shown).rstrip(), err=True)
    if len(rows) > ROWS:
        click.echo(f"... and {len(rows) - ROWS} more ranges", err=True)
    click.echo("", err=True)


def _recording(trace: Trace) -> str:
    """Say what was lost, and about how much of the kernels' time recording took."""
    from ikp.analysis.evidence import plural

    attempted = sum(launch.attempted for launch in trace.launches)
    kept = sum(launch.kept for launch in trace.launches)
    text = f"{plural(attempted, 'total' if len(trace.totals) else 'record')}, "
    if kept == attempted:
        text += "none dropped"
    else:
        needed = max(launch.needed_bytes for launch in trace.launches)
        text += f"{attempted - kept:,} dropped: --buffer {-(-needed // MIB)} would hold them"
    if len(trace.totals):
        return f"{text}, of {int(trace.totals.count.sum()):,} ranges and instants."
    cycles = [launch for launch in trace.launches if launch.clock.kind == "cycles"]
    resident = float((trace.slots.end_ns - trace.slots.start_ns).sum())
    if not cycles or not resident:
        return text + "."
    each = RECORD_CYCLES[cycles[0].clock.bits]
    spent = attempted * each * cycles[0].clock.ns_per_tick
    share = min(1.0, spent / resident)
    return (
        f"{text}; writing them took at most about {100 * share:.1f} % of the warps' time "
        f"({each} cycles each)."
    )


def _launches(session: profile, launcher: Everything) -> list[str]:
    """Say which launches were recorded, and why others were not."""
    names = dict.fromkeys([*launcher.recorded, *(name for name, _ in launcher.plain)])
    lines = []
    for name in names:
        recorded = launcher.recorded[name]
        plain = {why: n for (kernel, why), n in launcher.plain.items() if kernel == name}
        if not recorded and set(plain) == {_not_named()}:
            continue
        total = recorded + sum(plain.values())
        parts = [f"{name}: {recorded} of {total} launches recorded"]
        parts += [f"{count} {why}" for why, count in plain.items()]
        used = session.facts.get(f"marks in {name}", str(launcher.plan))
        if used != str(launcher.plan):
            parts.append(f"marked at {used}: the compiler refused marks in its source")
        lines.append("; ".join(parts))
    if launcher.recorded:
        lines.append(f"marks: {launcher.plan}.")
    return lines


def _not_named() -> str:
    from ikp.auto.everything import NOT_NAMED

    return NOT_NAMED


def say(text: str) -> None:
    """Print one line of ikp's own among the program's."""
    click.echo(f"ikp: {text}", err=True)
