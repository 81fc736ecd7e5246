"""``ikp.diff``: the comparison of two traces, or sets of traces, with verdicts and limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isnan
from typing import Any, Final

import numpy as np

from ikp.analysis.diff import _sample
from ikp.analysis.diff._interval import SMALL, Contrast, mean_of
from ikp.analysis.diff._match import design, match
from ikp.analysis.diff._measure import samples
from ikp.analysis.diff._sample import KERNEL, NO_RANGE, Floats, Key, Sample
from ikp.analysis.diff.difference import (
    EVEN,
    EVEN_OF_KERNEL,
    Change,
    Diff,
    KernelChange,
    Row,
)
from ikp.analysis.diff.limits import Compared, held, parse
from ikp.core.trace import Trace
from ikp.errors import UsageError
from ikp.uncollected import uncollected

CONFIDENCE: Final = 0.95
UNITS: Final = ("ns", "cycles")
_FEW: Final = "each side needs 2 launches or more to know how much they vary"


@uncollected()
def diff(
    before: Trace | Iterable[Trace],
    after: Trace | Iterable[Trace],
    *,
    unit: str = "ns",
    fail_over: Iterable[str] = (),
    confidence: float = CONFIDENCE,
) -> Diff:
    """Return what moved from one trace, or set of traces, to another, and how surely.

    Kernels are compared by label, regions by role and name. The variation from launch to launch
    says how far a difference can be trusted, so each side should have 20 launches or so; best
    alternate, recorded in one process. Several traces on both sides are taken as runs, and the
    variation from run to run counts. ``docs/comparing.md`` has the formulas.

    Args:
        before: a trace, or several runs of the same.
        after: a trace, or several, to compare it with.
        unit: ``"ns"``, or ``"cycles"`` for times that don't change with the clock's rate.
        fail_over: limits such as ``"dot.p50=+3%"`` or ``"duration=+1%"``; their verdicts are in
            ``Diff.limits``.
        confidence: with which all bounds, and all verdicts on limits, hold together.

    Raises:
        UsageError: a side has no trace, a limit can't be read or names a region that there is
            not, or cycles are asked for and were not counted.
    """
    if unit not in UNITS:
        raise UsageError(f"unit={unit!r} is unknown: use one of {', '.join(UNITS)}.")
    if not 0 < confidence < 1:
        raise UsageError(f"confidence={confidence!r} must lie between 0 and 1, such as 0.95.")
    limits = [parse(text) for text in fail_over]
    sides = _traces(before), _traces(after)
    found = match(*(samples(side, unit) for side in sides))
    compared, out = [], []
    for one, other in found.pairs:
        first, second, chosen, left = design(one, other)
        whole, regions = _sample.unknown_times(first, second)
        compared.append(Compared(first, second, chosen, whole, regions))
        out.append(left)
    tested = sum(1 + len(one.tested) for one in compared)
    outside = (1 - confidence) / 2 / max(1, tested)
    return Diff(
        tuple(_kernel(one, left, outside) for one, left in zip(compared, out, strict=True)),
        unit,
        confidence,
        found.only_before,
        found.only_after,
        (*found.notes, *_sample.notes_of_traces(*sides)),
        held(limits, compared, confidence),
    )


def _traces(side: Trace | Iterable[Trace]) -> Sequence[Trace]:
    given: Any = side  # a path, by mistake
    several = isinstance(given, Iterable) and not isinstance(given, str)
    found = list(given) if several else [given]
    if not found:
        raise UsageError("a side has no trace: give one, or several runs of the same.")
    for one in found:
        if not isinstance(one, Trace):
            raise UsageError(f"{one!r} is no trace: ikp.load(path) reads a file.")
    return found


def _kernel(one: Compared, left: tuple[int, int], outside: float) -> KernelChange:
    before, after = one.before, one.after
    residence = _mean(before.get(KERNEL, "residence"))
    return KernelChange(
        before=before.label,
        after=after.label,
        launches=(len(before), len(after)),
        left_out=left,
        design=one.design.name,
        duration=_change(one, KERNEL, "duration", outside),
        residence=_change(one, KERNEL, "residence", outside),
        ghz=(before.ghz, after.ghz),
        rows=tuple(_rows(one, residence, outside)),
        notes=_sample.notes_of_kernel(before, after),
        durations=(
            tuple(before.get(KERNEL, "duration").tolist()),
            tuple(after.get(KERNEL, "duration").tolist()),
        ),
    )


def _rows(one: Compared, residence: float, outside: float) -> list[Row]:
    """Return a row for each region, those that moved most first, and for the time in no range."""
    tested, rows = {*one.tested}, []
    figure = "total" if _summed(one.before) or _summed(one.after) else "self"
    mine, theirs = dict.fromkeys(one.before.keys), dict.fromkeys(one.after.keys)
    for key in dict.fromkeys([*mine, *theirs]):
        change = None
        if key in tested:
            change = _change(one, key, figure, outside, EVEN_OF_KERNEL * residence)
        rows.append(
            Row(
                *key,
                count=(_mean(one.before.get(key, "count")), _mean(one.after.get(key, "count"))),
                p50=(_median(one.before, key), _median(one.after, key)),
                time=change,
                only="" if key in mine and key in theirs else "before" if key in mine else "after",
            )
        )
    rows.sort(key=lambda row: -abs(row.time.difference) if row.time else 0)
    if figure == "self":
        free = _change(one, NO_RANGE, "self", outside, EVEN_OF_KERNEL * residence)
        rows.append(Row(*NO_RANGE, time=free))
    return rows


def _summed(sample: Sample) -> bool:
    return "totals" in sample.values["mode"]


def _mean(values: Floats) -> float:
    return mean_of(values) if len(values) else 0.0


def _median(sample: Sample, key: Key) -> float | None:
    values = sample.get(key, "p50")
    if len(values) < SMALL:
        few = sorted(each for each in values.tolist() if not isnan(each))
        return (few[(len(few) - 1) // 2] + few[len(few) // 2]) / 2 if few else None
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else None


def _change(one: Compared, key: Key, figure: str, outside: float, least: float = 0.0) -> Change:
    """Return how a figure changed; a difference of less than ``least`` counts as even."""
    why = one.why(key, figure)
    found = one.contrast(key, figure)
    if found is None or why:
        plain = _mean(one.before.get(key, figure)), _mean(one.after.get(key, figure))
        return Change(*plain, why=why or _FEW)
    reach = found.reach(outside)
    low, high = found.estimate - reach, found.estimate + reach
    return Change(found.before, found.after, low, high, _judged(found, reach, least))


def _judged(found: Contrast, reach: float, least: float) -> str:
    if abs(found.estimate) > reach:
        return "longer" if found.estimate > 0 else "shorter"
    farthest = abs(found.estimate) + reach
    return "even" if farthest <= max(EVEN * found.before, least) else "unknown"
