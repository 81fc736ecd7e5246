"""The end of ``ikp run`` in one process: closes the session, reports launches, losses, the file."""

from __future__ import annotations

import math
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ikp.core.run_figures import replays_of
from ikp.errors import FaultError, IkpError
from ikp.running.run_options import MIB, Options, of_launch
from ikp.running.startup.sitecustomize import (
    NO_KERNEL,
    NO_KERNELS,
    put,
    say,
    say_nothing_written,
)
from ikp.signals import deferred, pass_on
from ikp.warning import diverted, joined

if TYPE_CHECKING:
    from ikp.profiling.profile import profile
    from ikp.running._watched import Counts, Watched
    from ikp.trace import Trace

_ROWS = 10
_VERDICTS = 4
_PERTURBED = 3
_NOT_KEPT = "in replays of CUDA graphs that were not kept (--replays)"
_SAMPLED = (
    "launches of more than 256 blocks have ranges of one block in a few, and when and where all "
    "others ran: --sample 1 records ranges in all."
)
_MOST_WARNINGS = 20
"""The most warnings that are printed."""


def report(
    session: profile,
    launcher: Watched,
    options: Options,
    trace: Trace | None,
    *,
    wrote: bool,
    followed: bool = False,
) -> None:
    """Print the report, on stderr: stdout is the program's."""
    path = Path(options.path)
    for line in _launches(session, launcher, options):
        say(line)
    if not launcher.recorded:
        _say_none(launcher, options, wrote=wrote, followed=followed)
        return
    if trace is None:
        return
    if not options.explain:
        _table(trace)
    for line in _about(trace, options):
        say(line)
    if wrote:
        say(f"wrote {path} ({path.stat().st_size / 1024:,.0f} KiB).")
    else:
        say_nothing_written(options.path)


def _say_none(launcher: Watched, options: Options, *, wrote: bool, followed: bool) -> None:
    """Say that no kernel was recorded, and what was written all the same."""
    if wrote:
        say(f"no kernel was recorded. Wrote {options.path}, with what the host did.")
        return
    if not (launcher.plain or followed):
        say(NO_KERNEL if options.follow == "none" else NO_KERNELS)
    say_nothing_written(options.path)


def _about(trace: Trace, options: Options) -> Iterator[str]:
    """Yield what is said of a trace behind its table."""
    yield _recording(trace)
    yield from _perturbed(trace)
    if len(trace.others):
        yield _SAMPLED
    yield from _chosen_nothing(trace, options)


def report_of_child(launcher: Counts, path: str, *, wrote: bool) -> list[str]:
    """Return the lines on a child: launches recorded, why others were not, and the file."""
    from ikp.analysis.evidence import plural

    recorded, plain = launcher.recorded.total(), launcher.plain.total()
    reasons: Counter[str] = Counter()
    for (_, why), count in launcher.plain.items():
        reasons[why] += count
    text = f"{recorded} of {recorded + plain} launches recorded, of "
    text += plural(len(+launcher.recorded), "kernel")
    lines = ["; ".join([text, *(f"{n} {why}" for why, n in reasons.most_common(_VERDICTS))])]
    if wrote:
        lines[0] += f". Wrote {path}"
    return [*lines, *aside(launcher)]


def aside(launcher: Counts) -> list[str]:
    """Return the line on libraries whose kernels run plain; none where there are none."""
    if not launcher.aside:
        return []
    libraries = ", ".join(sorted(launcher.aside))
    return [f"kernels of {libraries} run plain: choose some with --kernel."]


def _table(trace: Trace) -> None:
    from ikp.analysis.counting_regions import stats

    table = stats(trace)
    rows = sorted(table.rows, key=lambda row: -(row.total_ns or 0))
    shown = replace(table, rows=tuple(rows[:_ROWS]), evidence=())
    more = f"\n... and {len(rows) - _ROWS} more ranges" if len(rows) > _ROWS else ""
    put(f"\n{str(shown).rstrip()}{more}\n")


def _chosen_nothing(trace: Trace, options: Options) -> list[str]:
    """Return messages on launches in which ``--blocks`` or ``--warps`` chose nothing."""
    from ikp.analysis.evidence import plural

    chosen = of_launch(options.blocks, options.warps)
    lines: dict[str, None] = {}
    for each in trace.launches:
        blocks, warps = math.prod(each.grid), each.warps_per_block
        if "blocks" in chosen and chosen["blocks"].start >= blocks:
            text = f"names no block: its grid has {plural(blocks, 'block')}, counted from 0."
            lines[f"{each.label}: --blocks {options.blocks} {text}"] = None
        if "warps" in chosen and min(chosen["warps"]) >= warps:
            text = f"names no warp: its blocks have {plural(warps, 'warp')}, counted from 0."
            lines[f"{each.label}: --warps {options.warps} {text}"] = None
    return list(lines)


def _recording(trace: Trace) -> str:
    """Return the line on dropped records, and on recording's share of the kernels' time."""
    from ikp.analysis.evidence import plural
    from ikp.analysis.perturbation import RECORD_CYCLES

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
    if (share := _share(trace)) is None:
        return text + "."
    bits = next(each.clock.bits for each in trace.launches if each.clock.kind == "cycles")
    return (
        f"{text}; writing them took at most about {100 * share:.1f} % of the warps' time "
        f"({RECORD_CYCLES[bits]} cycles each)."
    )


def _perturbed(trace: Trace) -> list[str]:
    """Return what recording did to the launches of the labels that it did most to."""
    from ikp.analysis.evidence import plural
    from ikp.analysis.perturbation import perturbations

    found = sorted(perturbations(trace).items(), key=lambda each: -each[1].ratio)
    lines = [f"{label}: {each.sentence()}." for label, each in found[:_PERTURBED]]
    if (more := len(found) - _PERTURBED) > 0:
        lines.append(f"and {plural(more, 'more kernel')}, by less: ikp stats.")
    return lines


def _share(trace: Trace) -> float | None:
    """Return recording's share of the warps' time at most; None without a clock of cycles."""
    from ikp.analysis.perturbation import recording_share

    cycles = [launch for launch in trace.launches if launch.clock.kind == "cycles"]
    attempted = sum(launch.attempted for launch in trace.launches)
    warps = trace.slots, trace.others
    resident = float(sum((table.end_ns - table.start_ns).sum() for table in warps))
    return recording_share(cycles[0], attempted, resident) if cycles else None


def _checked(verdicts: list[str]) -> list[str]:
    """Return the lines on the A/B checks of a kernel's specialisations."""
    more = len(verdicts) - _VERDICTS
    rest = [f"  check: and {more} more; the trace has them."] if more > 0 else []
    return [f"  check: {each}." for each in verdicts[:_VERDICTS]] + rest


def _of_kernel(name: str, facts: Mapping[str, str], launcher: Watched) -> list[str]:
    """Return the lines on a kernel: its launches, the A/B check, chosen ranges."""
    from ikp.unedited.plan import BEST

    recorded = launcher.recorded[name]
    plain = {why: n for (kernel, why), n in launcher.plain.items() if kernel == name}
    total = recorded + sum(plain.values())
    parts = [f"{name}: {recorded} of {total} launches recorded"]
    parts += [f"{count} {why}" for why, count in plain.items()]
    used = facts.get(f"marks in {name}", str(launcher.plan))
    if launcher.plan.level == BEST and used.startswith("level=ptx"):
        parts.append("marked in its PTX, assembled again")
    chosen = facts.get(f"chosen in {name}", "")
    return [
        "; ".join(parts),
        *_checked(facts.get(f"check of {name}", "").splitlines()),
        *(f"  {each}" for each in chosen.split("\n") if each),
    ]


def count_replays(launcher: Counts, provenance: Mapping[str, str]) -> None:
    """Count the launches of CUDA graphs' replays: a launcher has counted captured ones."""
    for label, each in replays_of(provenance).items():
        kept = each.kept or min(each.made, each.captured)  # with none in the log, the last is left
        launcher.recorded[label] += kept - each.captured
        if each.made > kept:
            launcher.plain[label, _NOT_KEPT] += each.made - kept


def _launches(session: profile, launcher: Watched, options: Options) -> list[str]:
    """Return the lines on which launches were recorded, and why others were not."""
    from ikp.unedited.plan import BEST, NOT_NAMED

    others = [name for name, why in launcher.plain if why == NOT_NAMED]
    named = [name for name, why in launcher.plain if why != NOT_NAMED]
    names = dict.fromkeys([*launcher.recorded, *named])
    if others and not names:
        seen = ", ".join(sorted(others))
        return [f"--kernel {options.kernel!r} fits none of the kernels launched: {seen}."]
    lines = []
    for name in names:
        lines += _of_kernel(name, session.facts, launcher)
    lines += aside(launcher)
    if launcher.recorded:
        ways = {session.facts.get(f"marks in {name}", ""): None for name in launcher.recorded}
        lines.append(f"marks: {'; '.join(ways) if launcher.plan.level == BEST else launcher.plan}.")
    return lines


def closed(session: profile, *, silent: bool) -> list[str]:
    """End a session, and write its trace; return what is to be said of it.

    Without ikp the process would be over: none of its handlers run here.

    Args:
        session: it is open.
        silent: hide warnings. Between windows the program's threads go on, and warnings are theirs.
    """
    failed = failure()
    lines: list[str] = []
    with ExitStack() as own:
        own.enter_context(diverted(lines.append))
        if silent:
            own.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
        try:
            with deferred(hand_over=True, sparing=(signal.SIGINT,), windows=False):
                session.__exit__(type(failed) if failed else None, failed, None)
        except FaultError as fault:  # the trace is written all the same
            lines.insert(0, str(fault))
        except Exception as lost:  # noqa: BLE001 - a broken GPU may raise any error
            pass_on(lost)
            lines.insert(0, f"the trace is lost: {str(lost) or type(lost).__name__}")
    return lines


def file_state(path: str) -> tuple[int, int] | None:
    """Return a file's inode and modification time, which differ after it was replaced."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def trace_of(session: profile) -> Trace | None:
    """Return the trace of a session that has ended; None where it is lost."""
    try:
        return session.trace
    except IkpError as error:
        say(str(error))
        return None


def failure() -> BaseException | None:
    """Return the error of which Python has printed a traceback, if the program failed."""
    found: BaseException | None = getattr(sys, "last_value", None)
    return found


def die_of_interrupt() -> None:
    """Let Python die by SIGINT, as it does after a program that Ctrl-C ended.

    It remembers whether the latest text that it ran as a program was interrupted, but ``exec`` of a
    text counts as one, and dataclasses are made by that (CPython's ``run_eval_code_obj``).
    """
    with suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")  # noqa: S102


def first_of(messages: list[str]) -> list[str]:
    """Return the first warnings of a run, and how many more there are."""
    messages = joined(messages)
    more = len(messages) - _MOST_WARNINGS
    return messages[:_MOST_WARNINGS] + ([f"and {more} more warnings."] if more > 0 else [])
