"""Notes of a comparison: which times are unknown, and which clocks, grids, versions differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ikp.analysis.diff._sample import KERNEL, Sample
from ikp.analysis.evidence import collect_evidence

if TYPE_CHECKING:
    from ikp.core.trace import Trace

_RATE: Final = 0.005
"""A clock that ran faster by more than this part is noted."""
_NOT_COMPARED: Final = (
    "command",
    "recorded",
    "host",
    "copied_out_s",
    "decoded_s",
    "launches_waited_s",
    "abi",
    "ranks",
)
"""Provenance that differs between any two runs, or says nothing of the kernel."""
_CODE: Final = ("machine code of ", "ranges of ")
"""How provenance begins that is about machine code: files, and long lists."""
_CHOICES: Final = ("select(launch=", "rename_launches")
"""Edits that choose what is compared."""
_LONGEST: Final = 80


def unknown(before: Sample, after: Sample) -> tuple[str, str]:
    """Return why all times are unknown, and why those of regions are; empty where none is."""
    sides = (("before", before), ("after", after))
    whole = ""
    for side, sample in sides:
        if any(one.clock.kind == "host" for one in sample.launches):
            whole = f"{side}: the times are the host's, and say nothing of a GPU"
    for side, sample in sides:
        if dropped := sum(one.dropped for one in sample.launches):
            return whole, f"{side}: {dropped:,} records were dropped"
        if unfinished := sum(one.unfinished for one in sample.launches):
            return whole, f"{side}: {unfinished:,} warps never finished, and may lack records"
    return whole, ""


def of_kernel(before: Sample, after: Sample) -> tuple[str, ...]:
    """Return what differs between the launches of two sides, beside their times."""
    return tuple(_of_kernel(before, after))


def _of_kernel(before: Sample, after: Sample) -> Iterator[str]:
    if before.shape != after.shape:
        yield f"the grid differs: {_shape(before)} and {_shape(after)}."
    recorded = [100 * np.mean(each.get(KERNEL, "recorded")) for each in (before, after)]
    one, other = (f"{share:.3g} %" for share in recorded)
    if one != other:
        yield (
            f"ranges are of {one} and {other} of the warps: counts are of these, "
            "times of one of them."
        )
    rates = before.ghz, after.ghz
    if rates[0] and rates[1] and abs(rates[1] / rates[0] - 1) > _RATE:
        yield (
            f"the clock ran at {rates[0]:.2f} and {rates[1]:.2f} GHz "
            f"({100 * (rates[1] / rates[0] - 1):+.1f} %): cycles leave that out."
        )
    for what, values in (
        ("the device", [{one.device for one in s.launches} for s in (before, after)]),
        ("the language", [{one.backend for one in s.launches} for s in (before, after)]),
        ("the clock", [{one.clock.name for one in s.launches} for s in (before, after)]),
        ("the mode", [{one.mode for one in s.launches} for s in (before, after)]),
        ("the number of ranks", [{str(_ranks(s))} for s in (before, after)]),
    ):
        if values[0] != values[1]:
            yield f"{what} differs: {_listed(values[0])} and {_listed(values[1])}."
    if any(one.mode == "totals" for s in (before, after) for one in s.launches):
        yield "totals: a region's time holds that of the regions inside it."


def _shape(sample: Sample) -> str:
    grid, warps = sample.shape
    return f"{'x'.join(map(str, grid))} blocks of {warps} warps"


def _ranks(sample: Sample) -> int:
    return len({one.rank for one in sample.launches})


def _listed(values: Iterable[str]) -> str:
    return " + ".join(sorted(values)) or "none"


def of_traces(before: Sequence[Trace], after: Sequence[Trace]) -> tuple[str, ...]:
    """Return which versions and edits differ between two sides, and what each has lost."""
    facts = [_facts(side) for side in (before, after)]
    lines = []
    for name in dict.fromkeys([*facts[0], *facts[1]]):
        one, other = (side.get(name, set()) for side in facts)
        if one != other:
            lines.append(f"{name} differs: {_short(one)} and {_short(other)}.")
    for side, traces in (("before", before), ("after", after)):
        warnings = dict.fromkeys(
            line
            for trace in traces
            for evidence in collect_evidence(trace)
            for line in evidence.warnings()
        )
        lines += [f"{side}: {line}" for line in warnings]
    return tuple(lines)


def _facts(traces: Sequence[Trace]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for trace in traces:
        for name, value in trace.provenance.items():
            said = _unchosen(value) if name == "edited" else value
            if said and name not in _NOT_COMPARED and not name.startswith(_CODE):
                found.setdefault(name, set()).add(said)
    return found


def _unchosen(edits: str) -> str:
    return "; ".join(one for one in edits.split("; ") if not one.startswith(_CHOICES))


def _short(values: set[Any]) -> str:
    text = _listed(values)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
