"""A session's trace as a file: with code facts and the host's part, and with what it lost in words.

The process that recorded it writes it, or another one (``write``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ikp.core.trace import Launch, holds_nothing, of_class, row_count
from ikp.errors import ExportError, IkpError, UsageError
from ikp.trace import Trace

if TYPE_CHECKING:
    from ikp.core.host_trace import HostTrace
    from ikp.host_traces.placing import Placed
    from ikp.session.copies import Copies


def losses_of(launches: Sequence[Launch]) -> list[str]:
    """Return what launches lost, in words, by their labels."""
    said = Counter((each.label, "; ".join(each.notes)) for each in launches if each.notes)
    return [
        f"{label}{f' ({count} launches)' if count > 1 else ''}: {text}."
        for (label, text), count in said.items()
    ]


def with_code_facts(trace: Trace) -> Trace:
    """Return a GPU's trace with the code facts of its ranges."""
    if all(each.clock.kind == "host" for each in trace.launches) or not len(trace.events):
        return trace
    from ikp.inspection.facts_of_trace import facts_of_trace

    known = {**trace.provenance, **facts_of_trace(trace)}
    lost = {label: _lost_by(known, label) for label in {each.label for each in trace.launches}}
    launches = tuple(
        replace(each, notes=(*each.notes, *lost[each.label])) if lost[each.label] else each
        for each in trace.launches
    )
    return replace(trace, launches=launches, provenance=known)


def _lost_by(provenance: Mapping[str, str], label: str) -> tuple[str, ...]:
    """Return what is known that ranges of a label lost on their way to machine code, as notes."""
    from ikp.core.code_facts import FACTS, read_facts  # not for programs that launch nothing

    if f"{FACTS}{label}" not in provenance:
        return ()
    facts = read_facts(provenance, label)
    return tuple(text.removesuffix(".") for text in facts.lost) if facts else ()


def lost_ranges(trace: Trace) -> tuple[str, ...]:
    """Return the ranges that lost their operation, or part of it, each once in a process.

    One kernel may be launched under thousands of labels.
    """
    new: dict[str, str] = {}
    for label in dict.fromkeys(each.label for each in trace.launches):
        for text in _lost_by(trace.provenance, label):
            if text not in _reported:
                new.setdefault(text, f"{label}: {text}.")
    _reported.update(new)
    return tuple(new.values())


_reported: set[str] = set()


def save(
    trace: Trace, target: str, *, force: bool, failed: bool, placed: Placed[Trace] | None = None
) -> str:
    """Write a session's trace; an empty one never replaces the file of an earlier run.

    With what the host did beside it, a trace without warps is not empty.

    Returns:
        A message if nothing was recorded, which says what became of the file; else "".
    """
    nothing = holds_nothing(trace) or (failed and not row_count(trace)[0])
    nothing = nothing and (placed is None or not placed.host.slices)
    if nothing and Path(target).exists():
        when = " before the program failed" if failed else ""
        return f"nothing was recorded{when}, so {target} stays as it was: it is of an earlier run."
    _write(trace, target, force=force, placed=placed)
    if nothing and not failed:
        return f"nothing was recorded: {target} is a trace of no warp."
    return ""


def _write(trace: Trace, target: str, *, force: bool, placed: Placed[Trace] | None) -> None:
    try:
        if placed is None:
            trace.save(target, force=force)
        else:
            from ikp.exporters.perfetto import PerfettoExporter

            beside = [placed.host], [placed.record]
            PerfettoExporter().write_beside(placed.trace, target, *beside, force=force)
    except ExportError as lost:
        raise ExportError(
            f"{lost} What was recorded is still there: prof.trace.save(path) writes it elsewhere."
        ) from lost


def placed_on(trace: Trace, host: HostTrace, target: str) -> tuple[Placed[Trace] | None, str]:
    """Return a trace and the host's on one axis; where they don't fit, None and the reason."""
    from ikp.host_traces.placing import place

    try:
        return place(trace, host), ""
    except UsageError as misfit:
        return None, f"{target} lacks what torch.profiler saw of the host: {misfit}"


def write(copies: Copies, target: str, *, force: bool) -> tuple[Trace | None, list[str]]:
    """Write the trace of what a session recorded.

    Args:
        copies: what it recorded.
        target: the file.
        force: replace an existing one.

    Returns:
        The trace, None where it is lost; and lines on losses.
    """
    columns, lost = copies.decode()
    lines = losses_of(columns.launches)
    trace = with_code_facts(of_class(Trace, columns))
    lines += [*lost_ranges(trace), *lost]
    try:
        nothing = save(trace, target, force=force, failed=False)
    except IkpError as error:
        return None, [*lines, f"the trace is lost: {error}"]
    return trace, [*lines, *filter(None, [nothing])]
