"""Tallies made and merged: ``tally_trace`` of one trace, ``merge`` of many tallies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.counting_regions import Groups, stats
from ikp.analysis.evidence import Evidence
from ikp.analysis.perturbation import worse
from ikp.analysis.stats import RegionStats, Residence
from ikp.analysis.tally import Label, Lost, Place, RowKey, Tally, TallyRow, new_sketch, sketches
from ikp.core.abi import Kind
from ikp.core.warps import launch_bounds

if TYPE_CHECKING:
    from ddsketch import DDSketch

    from ikp.core.trace import Trace

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_NOT_ADDED: Final[dict[str, Any]] = dict.fromkeys(
    [
        *("mean_ns", "p50_ns", "p95_ns", "p99_ns", "share", "self_share"),
        *("mean_cycles", "p50_cycles", "p95_cycles"),
    ]
)
"""Figures of a row that follow from others."""
_OF_ONE_FILE: Final = "finalize:"
"""How a note begins that is of one file only, and so left out of tallies."""


def tally_trace(trace: Trace, by: str | None = None) -> Tally:
    """Return the tally of a trace; ``by`` as for ``Trace.stats``.

    Raises:
        UsageError: ``by`` is something else.
    """
    table = stats(trace, by)
    groups = Groups.of(trace, [one.launch for one in table.evidence], by)
    chosen = trace.events.kind == Kind.RANGE
    of_range = groups.of_event[chosen]
    times, cycles = (
        _by_row(sketches(of_range, values[chosen]), groups, table.evidence)
        for values in (trace.events.end_ns - trace.events.start_ns, trace.events.ticks)
    )
    rows: dict[RowKey, TallyRow] = {}
    for row in table.rows:
        key = _key(row)
        counted = row.total_cycles is not None
        figures = replace(row, **_NOT_ADDED)
        one = TallyRow(figures, times.get(key), cycles.get(key) if counted else None)
        rows[key] = _added_row(rows[key], one) if key in rows else one
    durations = _durations(trace)
    labels = {one.launch: Label(one, durations[one.launch]) for one in table.evidence}
    residence = {(one.launch, one.group): one for one in table.residence}
    about = tuple(line for line in table.about if not line.startswith(_OF_ONE_FILE))
    return Tally(1, rows, labels, residence, about)


def _key(row: RegionStats) -> RowKey:
    of_totals = row.kind == "range" and row.self_ns is None
    return row.launch, row.region, row.kind, row.group, of_totals


def _by_row(
    found: Mapping[int, DDSketch], groups: Groups, evidence: tuple[Evidence, ...]
) -> dict[RowKey, DDSketch]:
    """Return sketches by the keys of their rows."""
    rows = {}
    for group, one in found.items():
        label, unit, region, _ = groups.split(group)
        rows[evidence[label].launch, region, "range", unit, False] = one
    return rows


def _durations(trace: Trace) -> dict[str, DDSketch]:
    """Return a sketch of how long the launches of each label took, from first to last warp."""
    first, last = launch_bounds(trace)
    ran = np.flatnonzero(last >= first)
    labels = list(dict.fromkeys(one.label for one in trace.launches))
    number = {label: i for i, label in enumerate(labels)}
    group: NDArray[np.int64] = np.array([number[one.label] for one in trace.launches], np.int64)
    found = sketches(group[ran], (last - first)[ran])
    return {label: found.get(i) or new_sketch() for i, label in enumerate(labels)}


def merge(tallies: Iterable[Tally]) -> Tally:
    """Return the tally of all files of some tallies; none of those is changed.

    Tallies are taken one by one, and no more than one is held beside the result. The figures do not
    depend on the order of the tallies, nor on the steps of merging; the order of rows and notes is
    that of their first tally.
    """
    files, absent, why = 0, 0, ""
    rows: dict[RowKey, TallyRow] = {}
    labels: dict[str, Label] = {}
    residence: dict[Place, Residence] = {}
    about: dict[str, None] = {}
    lost: list[Lost] = []
    for one in tallies:
        files, absent, why = files + one.files, absent + one.without[0], why or one.without[1]
        _add(rows, one.rows, _added_row, _own_row)
        _add(labels, one.labels, _added_label, _own_label)
        _add(residence, one.residence, _added_residence, _as_it_is)
        about.update(dict.fromkeys(one.about))
        lost += one.lost
    return Tally(files, rows, labels, residence, tuple(about), tuple(lost), (absent, why))


def _add(
    whole: dict[_Key, _Value],
    part: Mapping[_Key, _Value],
    added: Callable[[_Value, _Value], _Value],
    own: Callable[[_Value], _Value],
) -> None:
    for key, value in part.items():
        whole[key] = added(whole[key], value) if key in whole else own(value)


def _as_it_is(one: Residence) -> Residence:
    return one


def _own(sketch: DDSketch | None) -> DDSketch | None:
    """Return a sketch that may be added to: a copy."""
    return None if sketch is None else _joined(new_sketch(), sketch)


def _joined(whole: DDSketch, part: DDSketch) -> DDSketch:
    whole.merge(part)
    return whole


def _own_row(row: TallyRow) -> TallyRow:
    return TallyRow(row.figures, _own(row.times), _own(row.cycles))


def _own_label(label: Label) -> Label:
    return Label(label.evidence, _joined(new_sketch(), label.durations))


def _added_row(whole: TallyRow, part: TallyRow) -> TallyRow:
    """Return two rows of one key as one. The sketches of the first are changed."""
    figures, more = whole.figures, part.figures
    sums = {
        name: _both(getattr(figures, name), getattr(more, name), int.__add__)
        for name in ("count", "total_ns", "self_ns", "total_cycles")
    }
    least = _both(figures.min_ns, more.min_ns, min)
    most = _both(figures.max_ns, more.max_ns, max)
    times, cycles = (
        _both(getattr(whole, name), getattr(part, name), _joined) for name in ("times", "cycles")
    )
    changes: dict[str, Any] = {**sums, "min_ns": least, "max_ns": most}
    return TallyRow(replace(figures, **changes), times, cycles)


def _both(one: Any, other: Any, how: Callable[[Any, Any], Any]) -> Any:
    """Return two values combined; None where either is not known."""
    return None if one is None or other is None else how(one, other)


def _added_label(whole: Label, part: Label) -> Label:
    evidence = _added_evidence(whole.evidence, part.evidence)
    return Label(evidence, _joined(whole.durations, part.durations))


_SUMS = ("launches", "warps", "residence_ns", "recordable", "attempted", "kept", "unfinished")
_UNIONS = ("devices", "backends", "blocks", "warps_per_block", "clock", "clock_rate", "notes")
_MOST = ("duration_max_ns", "needed", "needed_bytes")
_LEAST = ("duration_min_ns", "capacity")
_WORST = ("residual_sd_ns", "residual_max_ns")


def _added_evidence(one: Evidence, other: Evidence) -> Evidence:
    def pairs(names: Iterable[str]) -> dict[str, tuple[Any, Any]]:
        return {name: (getattr(one, name), getattr(other, name)) for name in names}

    sums, unions = pairs((*_SUMS, "relaunches")), pairs((*_UNIONS, "modes"))
    changes: dict[str, Any] = {name: a + b for name, (a, b) in sums.items()}
    changes |= {name: tuple(dict.fromkeys(a + b)) for name, (a, b) in unions.items()}
    changes |= {name: max(pair) for name, pair in pairs(_MOST).items()}
    changes |= {name: min(pair) for name, pair in pairs(_LEAST).items()}
    changes |= {name: _both(a, b, max) for name, (a, b) in pairs(_WORST).items()}
    changes["ghz"] = None
    if one.ghz is not None and other.ghz is not None:
        both = one.ghz * one.launches + other.ghz * other.launches
        changes["ghz"] = both / changes["launches"]
    changes["perturbation"] = _both(one.perturbation, other.perturbation, worse)
    return replace(one, **changes)


def _added_residence(one: Residence, other: Residence) -> Residence:
    free = _both(one.in_no_range_ns, other.in_no_range_ns, int.__add__)
    return replace(
        one,
        warps=one.warps + other.warps,
        residence_ns=one.residence_ns + other.residence_ns,
        in_no_range_ns=free,
    )
