"""A verdict's counts: kernels by the time of their launches; a launch's instructions by unit, and
by what they serve.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ikp.analysis.explain.counted_work import counted_work
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.verdict import KernelShare, Served, Unit
from ikp.core.warps import launch_bounds

if TYPE_CHECKING:
    from ikp.core.trace import Trace

_MOST: Final = 8
_UNITS: Final = 10
_LEAST: Final = 0.005


def kernel_shares(trace: Trace) -> tuple[KernelShare, ...]:
    """Return the kernels of a trace by the time of their launches, the longest first."""
    first, last = launch_bounds(trace)
    took: dict[str, float] = {}
    count: dict[str, int] = {}
    for one, begin, end in zip(trace.launches, first.tolist(), last.tolist(), strict=True):
        took[one.label] = took.get(one.label, 0.0) + max(float(end - begin), 0.0)
        count[one.label] = count.get(one.label, 0) + 1
    whole = max(sum(took.values()), 1.0)
    order = sorted(took, key=lambda label: (-took[label], label))[:_MOST]
    return tuple(
        KernelShare(label, count[label], took[label], took[label] / whole) for label in order
    )


def mix_of(launch: Prepared) -> tuple[Unit, ...]:
    """Return the launch's instructions by unit, the most frequent first; none if not counted."""
    work = counted_work(launch)
    if work is None:
        return ()
    order = sorted(work.issued.items(), key=lambda item: -item[1])[:_UNITS]
    found = (Unit(unit, count, count / max(work.total, 1.0)) for unit, count in order)
    return tuple(one for one in found if one.share >= _LEAST)


def serves_of(launch: Prepared) -> tuple[Served, ...]:
    """Return what the launch's instructions serve, the most first; none if not counted."""
    work = counted_work(launch)
    if work is None:
        return ()
    counts: dict[str, float] = {}
    for one in work.ranges:
        for what, count in one.facts.serves.items():
            counts[what] = counts.get(what, 0.0) + count * one.executions
    whole = max(sum(counts.values()), 1.0)
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    found = (Served(what, count / whole) for what, count in order)
    return tuple(one for one in found if one.share >= _LEAST)


def uncounted_of(launch: Prepared) -> tuple[str, ...]:
    """Return the units in loops whose trips no record counts, the most instructions first."""
    work = counted_work(launch)
    if work is None:
        return ()
    return tuple(sorted(work.uncounted, key=lambda unit: -work.uncounted[unit])[:_UNITS])
