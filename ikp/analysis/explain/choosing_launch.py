"""The launch of a verdict: by number, or of median duration, of a label named or longest in all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.explain.warp_regions import at_once
from ikp.core.abi import Kind
from ikp.core.warps import launch_bounds
from ikp.errors import UsageError
from ikp.patterns import Names, choose

if TYPE_CHECKING:
    from ikp.core.trace import Trace

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The chosen launch, the durations of its label's launches, and the time of other labels."""

    index: int
    durations: tuple[int, ...]  # of the label's launches that recorded warps
    others: tuple[tuple[str, float], ...]  # other labels, and the time of all their launches


def choose_launch(trace: Trace, launch: Names | int | None = None) -> Chosen | None:
    """Return the launch that a verdict is about; None where no warp recorded a timeline.

    Raises:
        UsageError: ``launch`` names none.
    """
    took = _durations(trace)
    timeline = np.array([one.mode == "timeline" for one in trace.launches], bool)
    warps = np.bincount(trace.slots.launch, minlength=len(trace.launches))
    there = np.flatnonzero((warps > 0) & timeline)
    if isinstance(launch, int):
        if not 0 <= launch < len(trace.launches):
            raise UsageError(
                f"launch {launch}: the trace has {len(trace.launches)}, numbered from 0."
            )
        there = there[there == launch]
    elif launch is not None:
        labels = list(dict.fromkeys(one.label for one in trace.launches))
        wanted = dict(zip(labels, choose(labels, launch, "launch"), strict=True))
        there = np.array([i for i in there.tolist() if wanted[trace.launches[i].label]], np.intp)
    if not len(there):
        return None
    whole: dict[str, float] = {}
    for i in np.flatnonzero(took >= 0).tolist():
        label = trace.launches[i].label
        whole[label] = whole.get(label, 0.0) + float(took[i])
    label = max(
        {trace.launches[i].label for i in there.tolist()}, key=lambda one: (whole[one], one)
    )
    of_label = [i for i in there.tolist() if trace.launches[i].label == label]
    order = sorted(of_label, key=lambda i: (int(took[i]), i))
    ranges = _counts(trace)
    recorded = [i for i in order if ranges[i]] or order
    others = sorted(((n, t) for n, t in whole.items() if n != label), key=lambda one: -one[1])
    durations = tuple(int(took[i]) for i in order)
    return Chosen(recorded[(len(recorded) - 1) // 2], durations, tuple(others))


def _counts(trace: Trace) -> Ints:
    """Return how many ranges each launch has."""
    events, by_slot = trace.events, np.zeros(len(trace.slots), np.int64)
    for rows in at_once(len(events)):
        slot = events.slot[rows][events.kind[rows] == Kind.RANGE]
        np.add.at(by_slot, slot, 1)
    found = np.zeros(len(trace.launches), np.int64)
    np.add.at(found, trace.slots.launch, by_slot)
    return found


def _durations(trace: Trace) -> Ints:
    """Return how long each launch took; -1 where none of its warps is known."""
    first, last = launch_bounds(trace)
    return np.where(last >= first, last - first, -1)
