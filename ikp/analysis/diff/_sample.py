"""``Sample``: launches of one kernel on one side of a comparison, with figures of each launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ikp.core.trace import Launch

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


@dataclass(frozen=True, slots=True)
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

    @property
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

    @property
    def ghz(self) -> float | None:
        """The mean rate of the clock, where all count SM cycles."""
        if any(one.clock.kind != "cycles" for one in self.launches):
            return None
        return float(np.mean([1 / one.clock.ns_per_tick for one in self.launches]))

    def take(self, rows: NDArray[np.intp]) -> Sample:
        """Return some of the launches, in the given order."""
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
    names = dict.fromkeys(at for part in parts for at in part.figures)
    return replace(
        parts[0],
        launches=tuple(one for part in parts for one in part.launches),
        run=np.concatenate([part.run for part in parts]),
        start_ns=np.concatenate([part.start_ns for part in parts]),
        figures={at: np.concatenate([part.get(*at) for part in parts]) for at in names},
        tick=max(part.tick for part in parts),
    )
