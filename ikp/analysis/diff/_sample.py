"""Launches of one kernel on one side of a comparison, with their figures; and notes on both sides.

Notes say which times are unknown, and which clocks, grids and versions differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.evidence import collect_warnings, plural

if TYPE_CHECKING:
    from ikp.core.trace import Launch, Trace


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FIGURES: Final = ("count", "total", "mean", "p50", "p95", "p99", "self")
"""Figures of a region in one launch; ``total`` and ``self`` are per warp of the kernel."""
SUMS: Final = ("count", "total", "self")
"""Figures that are 0, not missing, in a launch in which a region did not occur."""


class Key(NamedTuple):
    """What a figure is of: a region in the warps of a role, or the launch as a whole."""

    role: str
    region: str
    kind: str  # "range" | "instant" | "none" | "kernel"


KERNEL: Final = Key("", "", "kernel")
NO_RANGE: Final = Key("", "in no range", "none")


@dataclass(frozen=True)
class Sample:
    """The launches of one kernel on one side: a figure is an array with a value per launch.

    ``tick`` is how fine the clock is, in the unit of the times.
    """

    label: str
    shape: tuple[tuple[int, int, int], int]  # grid, warps per block
    launches: tuple[Launch, ...]
    run: Ints  # which trace each is of
    start_ns: Ints
    figures: dict[tuple[Key, str], Floats]
    tick: float

    def __len__(self) -> int:
        return len(self.launches)

    @property
    def kernel(self) -> str:
        """The full name; "" where the trace has none."""
        return self.launches[0].kernel

    @cached_property
    def keys(self) -> list[Key]:
        """The regions, by role."""
        return list(dict.fromkeys(key for key, _ in self.figures if key.kind in KINDS))

    @property
    def runs(self) -> int:
        """How many traces the launches are from."""
        return len(np.unique(self.run))

    def get(self, key: Key, figure: str) -> Floats:
        """Return a figure of each launch; 0 or NaN where a launch lacks it."""
        found = self.figures.get((key, figure))
        if found is not None:
            return found
        return np.full(len(self), 0.0 if figure in SUMS else np.nan)

    @cached_property
    def ghz(self) -> float | None:
        """The mean rate of the clock, where all count SM cycles."""
        if any(one.clock.kind != "cycles" for one in self.launches):
            return None
        return float(np.mean([1 / one.clock.ns_per_tick for one in self.launches]))

    def take(self, rows: NDArray[np.intp]) -> Sample:
        """Return some of the launches, in the given order."""
        if len(rows) == len(self) and bool((rows == np.arange(len(rows))).all()):
            return self
        return replace(
            self,
            launches=tuple(self.launches[i] for i in rows),
            run=self.run[rows],
            start_ns=self.start_ns[rows],
            figures={at: values[rows] for at, values in self.figures.items()},
        )


KINDS: Final = ("range", "instant")


def by_step(sample: Sample) -> Sample:
    """Return a sample with the k-th launches of all ranks taken as one launch: their mean.

    Ranks run side by side, and wait for each other: their launches are no independent samples.
    """
    of_rank: dict[int | None, list[int]] = {}
    for number, one in enumerate(sample.launches):
        of_rank.setdefault(one.rank, []).append(number)
    each = [np.array(rows, np.intp) for rows in of_rank.values()]
    if len(each) < 2:
        return sample
    steps = min(map(len, each))
    table = np.stack([rows[:steps] for rows in each])
    return replace(
        sample.take(table[0]),
        start_ns=sample.start_ns[table].min(axis=0),
        figures={at: values[table].mean(axis=0) for at, values in sample.figures.items()},
    )


def joined(parts: Sequence[Sample]) -> Sample:
    """Return the launches of several traces as one sample, those of each in order of time."""
    parts = [part.take(np.argsort(part.start_ns, kind="stable")) for part in parts]
    if len(parts) == 1:
        return parts[0]
    names = dict.fromkeys(at for part in parts for at in part.figures)
    return replace(
        parts[0],
        launches=tuple(one for part in parts for one in part.launches),
        run=np.concatenate([part.run for part in parts]),
        start_ns=np.concatenate([part.start_ns for part in parts]),
        figures={at: np.concatenate([part.get(*at) for part in parts]) for at in names},
        tick=max(part.tick for part in parts),
    )


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


def unknown_times(before: Sample, after: Sample) -> tuple[str, str]:
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
            return (
                whole,
                f"{side}: {plural(unfinished, 'warp')} never finished, and may lack records",
            )
    return whole, ""


def notes_of_kernel(before: Sample, after: Sample) -> tuple[str, ...]:
    """Return what differs between the launches of two sides, beside their times."""
    return tuple(_of_kernel(before, after))


_OF_LAUNCHES: Final[dict[str, Callable[[Launch], str]]] = {
    "the device": lambda one: one.device,
    "the language": lambda one: one.backend,
    "the clock": lambda one: one.clock.name,
    "the mode": lambda one: one.mode,
}


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
    for what, of in _OF_LAUNCHES.items():
        one_side, other_side = ({of(one) for one in s.launches} for s in (before, after))
        if one_side != other_side:
            yield f"{what} differs: {_listed(one_side)} and {_listed(other_side)}."
    if _ranks(before) != _ranks(after):
        yield f"the number of ranks differs: {_ranks(before)} and {_ranks(after)}."
    if any(one.mode == "totals" for s in (before, after) for one in s.launches):
        yield "totals: a region's time holds that of the regions inside it."


def _shape(sample: Sample) -> str:
    grid, warps = sample.shape
    return f"{'x'.join(map(str, grid))} blocks of {plural(warps, 'warp')}"


def _ranks(sample: Sample) -> int:
    return len({one.rank for one in sample.launches})


def _listed(values: Iterable[str]) -> str:
    return " + ".join(sorted(values)) or "none"


def notes_of_traces(before: Sequence[Trace], after: Sequence[Trace]) -> tuple[str, ...]:
    """Return which versions and edits differ between two sides, and what each has lost."""
    facts = [_facts(side) for side in (before, after)]
    lines = []
    for name in dict.fromkeys([*facts[0], *facts[1]]):
        one, other = (side.get(name, set()) for side in facts)
        if one != other:
            lines.append(f"{name} differs: {_short(one)} and {_short(other)}.")
    for side, traces in (("before", before), ("after", after)):
        warnings = dict.fromkeys(line for trace in traces for line in collect_warnings(trace))
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
