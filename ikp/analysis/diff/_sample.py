"""Launches of one kernel on one side of a comparison, with their figures; and notes on both sides.

Notes say which times are unknown, and which clocks, grids and versions differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.diff._interval import mean_of
from ikp.analysis.evidence import collect_warnings, plural
from ikp.core.code_facts import FACTS
from ikp.core.host_clock import BOOT
from ikp.core.host_trace import MONOTONIC
from ikp.core.run_figures import ADDRESSES, FAR, PARAMETERS, TIMED, TRIED

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
    figures: dict[Key, Floats]  # a row for each of ``FIGURES_OF``, a column for each launch
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
        return [key for key in self.figures if key.kind in KINDS]

    @property
    def runs(self) -> int:
        """How many traces the launches are from."""
        return len({*self.run.tolist()})

    def get(self, key: Key, figure: str) -> Floats:
        """Return a figure of each launch; 0 or NaN where a launch lacks it."""
        row = FIGURES_OF[key.kind].get(figure)
        if row is not None and key in self.figures:
            values: Floats = self.figures[key][row]
            return values
        return np.full(len(self), 0.0 if figure in SUMS else np.nan)

    def rows(self, key: Key) -> Floats:
        """Return all figures of a key; 0 or NaN where the launches lack it."""
        found = self.figures.get(key)
        return missing(key.kind, len(self)) if found is None else found

    @cached_property
    def ghz(self) -> float | None:
        """The mean rate of the clock, where all count SM cycles."""
        if self.values["clock.kind"] - {"cycles"}:
            return None
        return mean_of([1 / each for each in map(attrgetter("clock.ns_per_tick"), self.launches)])

    @cached_property
    def values(self) -> dict[str, set[Any]]:
        """All values of some fields of the launches, by field."""
        kinds = dict(zip(map(_PLAIN, self.launches), self.launches, strict=True))
        columns = zip(*map(attrgetter(*_FIELDS), kinds.values()), strict=True)
        return {name: {*column} for name, column in zip(_FIELDS, columns, strict=True)}

    def take(self, rows: NDArray[np.intp]) -> Sample:
        """Return some of the launches, in the given order."""
        return replace(
            self,
            launches=tuple(self.launches[i] for i in rows),
            run=self.run[rows],
            start_ns=self.start_ns[rows],
            figures={key: values[:, rows] for key, values in self.figures.items()},
        )


KINDS: Final = ("range", "instant")
FIGURES_OF: Final[dict[str, dict[str, int]]] = {
    kind: {name: row for row, name in enumerate(names)}
    for kind, names in (
        ("range", FIGURES),
        ("instant", ("count",)),
        ("none", ("self",)),
        ("kernel", ("recorded", "duration", "residence")),
    )
}
"""The figures of each kind of key, and the row of each among them."""


def missing(kind: str, launches: int) -> Floats:
    """Return the figures of launches that lack a key: 0, or NaN."""
    lacking = [0.0 if name in SUMS else np.nan for name in FIGURES_OF[kind]]
    return np.repeat(np.array(lacking)[:, None], launches, axis=1)


def by_step(sample: Sample) -> Sample:
    """Return a sample with the k-th launches of all ranks taken as one launch: their mean.

    Ranks run side by side, and wait for each other: their launches are no independent samples.
    """
    if len(sample.values["rank"]) < 2:
        return sample
    of_rank: dict[int | None, list[int]] = {}
    for number, one in enumerate(sample.launches):
        of_rank.setdefault(one.rank, []).append(number)
    steps = min(map(len, of_rank.values()))
    table = np.array([rows[:steps] for rows in of_rank.values()], np.intp)
    return replace(
        sample.take(table[0]),
        start_ns=sample.start_ns[table].min(axis=0),
        figures={key: values[:, table].mean(axis=1) for key, values in sample.figures.items()},
    )


def joined(parts: Sequence[Sample]) -> Sample:
    """Return the launches of several traces as one sample, those of each in order of time."""
    parts = [_in_order(part) for part in parts]
    if len(parts) == 1:
        return parts[0]
    keys = dict.fromkeys(chain.from_iterable(part.figures for part in parts))
    return replace(
        parts[0],
        launches=tuple(chain.from_iterable(part.launches for part in parts)),
        run=np.concatenate([part.run for part in parts]),
        start_ns=np.concatenate([part.start_ns for part in parts]),
        figures={key: np.hstack([part.rows(key) for part in parts]) for key in keys},
        tick=max(part.tick for part in parts),
    )


def _in_order(sample: Sample) -> Sample:
    """Return the launches in order of time."""
    if bool((sample.start_ns[1:] >= sample.start_ns[:-1]).all()):
        return sample
    return sample.take(np.argsort(sample.start_ns, kind="stable"))


_RATE: Final = 0.005
"""A clock that ran faster by more than this part is noted."""
_NOT_COMPARED: Final = (
    "command",
    "recorded",
    "host",
    BOOT,
    MONOTONIC,
    "copied_out_s",
    "decoded_s",
    "launches_waited_s",
    "abi",
    "ranks",
)
"""Provenance that differs between any two runs, or says nothing of the kernel."""
_FIGURES: Final = ("machine code of ", FACTS, PARAMETERS, FAR, ADDRESSES, TIMED, TRIED)
"""How provenance begins that holds figures of a kernel or a launch, not of its recording."""
_CHOICES: Final = ("select(launch=", "rename_launches")
"""Edits that choose what is compared."""
_LONGEST: Final = 80


def unknown_times(before: Sample, after: Sample) -> tuple[str, str]:
    """Return why all times are unknown, and why those of regions are; empty where none is."""
    sides = (("before", before), ("after", after))
    whole = ""
    for side, sample in sides:
        if "host" in sample.values["clock.kind"]:
            whole = f"{side}: the times are the host's, and say nothing of a GPU"
    for side, sample in sides:
        if dropped := sum(map(attrgetter("dropped"), sample.launches)):
            return whole, f"{side}: {dropped:,} records were dropped"
        if unfinished := sum(map(attrgetter("unfinished"), sample.launches)):
            return (
                whole,
                f"{side}: {plural(unfinished, 'warp')} never finished, and may lack records",
            )
    return whole, ""


def notes_of_kernel(before: Sample, after: Sample) -> tuple[str, ...]:
    """Return what differs between the launches of two sides, beside their times."""
    return tuple(_of_kernel(before, after))


_OF_LAUNCHES: Final = {
    "the device": "device",
    "the language": "backend",
    "the clock": "clock.name",
    "the mode": "mode",
}
_FIELDS: Final = (*_OF_LAUNCHES.values(), "clock.kind", "rank")
_PLAIN: Final = attrgetter("device", "backend", "clock.kind", "clock.bits", "mode", "rank")
"""What decides on all of ``_FIELDS``, without the clock's name, which is made at each look."""


def _rates(before: float | None, after: float | None) -> Iterator[str]:
    """Yield a line on the clock's rates where these differ."""
    if before and after and abs(after / before - 1) > _RATE:
        yield (
            f"the clock ran at {before:.2f} and {after:.2f} GHz "
            f"({100 * (after / before - 1):+.1f} %): cycles leave that out."
        )


def _of_kernel(before: Sample, after: Sample) -> Iterator[str]:
    if before.shape != after.shape:
        yield f"the grid differs: {_shape(before)} and {_shape(after)}."
    recorded = [100 * mean_of(each.get(KERNEL, "recorded")) for each in (before, after)]
    one, other = (f"{share:.3g} %" for share in recorded)
    if one != other:
        yield (
            f"ranges are of {one} and {other} of the warps: counts are of these, "
            "times of one of them."
        )
    yield from _rates(before.ghz, after.ghz)
    for what, field in _OF_LAUNCHES.items():
        one_side, other_side = before.values[field], after.values[field]
        if one_side != other_side:
            yield f"{what} differs: {_listed(one_side)} and {_listed(other_side)}."
    if _ranks(before) != _ranks(after):
        yield f"the number of ranks differs: {_ranks(before)} and {_ranks(after)}."
    if "totals" in before.values["mode"] | after.values["mode"]:
        yield "totals: a region's time holds that of the regions inside it."


def _shape(sample: Sample) -> str:
    grid, warps = sample.shape
    return f"{'x'.join(map(str, grid))} blocks of {plural(warps, 'warp')}"


def _ranks(sample: Sample) -> int:
    return len(sample.values["rank"])


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
            if said and name not in _NOT_COMPARED and not name.startswith(_FIGURES):
                found.setdefault(name, set()).add(said)
    return found


def _unchosen(edits: str) -> str:
    return "; ".join(one for one in edits.split("; ") if not one.startswith(_CHOICES))


def _short(values: set[Any]) -> str:
    text = _listed(values)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
