"""Pairing for a comparison: kernels by name and grid, their launches in order or in groups."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.diff._interval import BETWEEN_RUNS, Allowance, Design, Rows, blocks
from ikp.analysis.diff._sample import KERNEL, Floats, Ints, Sample

ALTERNATING: Final = Allowance(0.0005, 0.0005)
"""How much alternating kernels differ by their order: the second finds the clocks of the first."""
FEWEST_TO_FENCE: Final = 8
"""Of fewer launches, none is taken for an outlier."""
_FENCE: Final = 3.0
"""Quartile ranges outside the quartiles: Tukey's outer fence. Of normal noise, 2 in a million
pass it."""
_NEVER_OUT: Final = 0.01
"""A launch that is off by less than this part of the duration is no outlier, however alike the
others are."""


@dataclass(frozen=True, slots=True)
class Matches:
    """The kernels that are on both sides, those on one side, and notes on the pairing."""

    pairs: list[tuple[Sample, Sample]]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    notes: tuple[str, ...]


def match(before: Sequence[Sample], after: Sequence[Sample]) -> Matches:
    """Pair kernels by full name and label, else by one of both, else by the name without arguments.

    A name with several grids is paired by the grid as well. Where each side has one kernel, these
    two are compared under any names.
    """
    partner = _partners(before, after)
    pairs = [(one, partner[id(one)]) for one in before if id(one) in partner]
    if not pairs and len(before) == len(after) == 1:
        note = "the two kernels have different names: they are compared as each side has only one."
        return Matches([(before[0], after[0])], (), (), (note,))
    notes = [
        f"{one.label} is compared with {other.label}: the same name with other arguments."
        for one, other in pairs
        if one.label != other.label and one.kernel != other.kernel
    ]
    if not pairs and before and after:
        notes.append(
            "can't tell: no kernel is on both sides. Name one of each, or rename launches with "
            "ikp.edit.rename_launches."
        )
    only_before = _called(before, {*partner})
    only_after = _called(after, {id(other) for other in partner.values()})
    return Matches(pairs, only_before, only_after, tuple(notes))


def _partners(before: Sequence[Sample], after: Sequence[Sample]) -> dict[int, Sample]:
    """Return the kernel after that each one before is paired with, by the id of the latter."""
    partner: dict[int, Sample] = {}
    found: set[int] = set()
    for named in _NAMES:
        left = [one for one in before if id(one) not in partner]
        for one, other in _alike(left, [one for one in after if id(one) not in found], named):
            partner[id(one)] = other
            found.add(id(other))
    return partner


def _bare(one: Sample) -> str:
    """Return the name without namespaces, arguments, hash and number."""
    return re.split(r"[<#]", one.label)[0].rpartition("::")[2]


_NAMES: Final[tuple[Callable[[Sample], object], ...]] = (
    lambda one: (one.kernel, one.label),
    lambda one: one.kernel or None,
    lambda one: one.label,
    lambda one: _bare(one) or None,
)
"""By what kernels are paired, the best first; None pairs nothing."""


def _alike(
    before: Sequence[Sample], after: Sequence[Sample], named: Callable[[Sample], object]
) -> Iterator[tuple[Sample, Sample]]:
    """Yield kernels of one name, or of one name and shape, of which each side has only one."""
    sides = [[(named(one), one) for one in side] for side in (before, after)]
    single = _single(*sides)
    keys = [
        [((name,) if name in single else (name, one.shape), one) for name, one in side if name]
        for side in sides
    ]
    second, alone = dict(keys[1]), _single(*keys)
    yield from ((one, second[key]) for key, one in keys[0] if key in alone)


def _single(*sides: Sequence[tuple[Any, Sample]]) -> set[Any]:
    """Return the keys that one kernel of each side has, and no other."""
    before, after = (Counter(key for key, _ in side) for side in sides)
    return {key for key in before if before[key] == after[key] == 1}


def _called(side: Sequence[Sample], found: set[int]) -> tuple[str, ...]:
    """Return the names of a side's kernels but for those found: with grids, where these differ."""
    labels = Counter(one.label for one in side)
    return tuple(
        one.label
        if labels[one.label] == 1
        else f"{one.label} (grid {'x'.join(map(str, one.shape[0]))})"
        for one in side
        if id(one) not in found
    )


def design(before: Sample, after: Sample) -> tuple[Sample, Sample, Design, tuple[int, int]]:
    """Return the launches to compare, their design, and how many are left out on each side.

    With as many launches on both sides, the k-th is compared with the k-th: what depends on a
    launch's place in its run (a cold start, another problem) cancels. Of several traces on both
    sides, the means are compared.
    """
    if min(before.runs, after.runs) > 1:
        groups = (_runs(before), _runs(after))
        paired = before.runs == after.runs and _alternate(before, after, groups)
        return before, after, Design("runs", *groups, paired, Allowance()), (0, 0)
    a, b = before.get(KERNEL, "duration"), after.get(KERNEL, "duration")
    if len(a) == len(b):
        together = _usual(b - a, a)
        kept, kept_after = _taken(before, together), _taken(after, together)
        left = len(before) - len(kept)
        sides = kept.start_ns, kept_after.start_ns
        cut = blocks(len(kept))
        same = np.array_equal(*sides)  # a trace and itself
        chosen = Design("in order", cut, cut, True, Allowance() if same else BETWEEN_RUNS)
        if not same and _in_turn(np.minimum(*sides), np.maximum(*sides)):
            chosen = Design("alternating", cut, cut, True, ALTERNATING)
        return kept, kept_after, chosen, (left, left)
    kept, kept_after = _taken(before, _usual(a, a)), _taken(after, _usual(b, b))
    first, second = blocks(len(kept)), blocks(len(kept_after))
    out = len(before) - len(kept), len(after) - len(kept_after)
    return kept, kept_after, Design("apart", first, second, False, BETWEEN_RUNS), out


def _taken(sample: Sample, chosen: NDArray[np.bool_]) -> Sample:
    return sample if bool(chosen.all()) else sample.take(np.flatnonzero(chosen))


def _runs(sample: Sample) -> tuple[Rows, ...]:
    return tuple(np.flatnonzero(sample.run == run) for run in np.unique(sample.run))


def _alternate(
    before: Sample, after: Sample, groups: tuple[tuple[Rows, ...], tuple[Rows, ...]]
) -> bool:
    """Return whether each pair of runs began before the next pair did."""
    sides = _bounds(before.start_ns, groups[0]), _bounds(after.start_ns, groups[1])
    first = np.minimum(sides[0][0], sides[1][0])
    return _in_turn(first, np.maximum(sides[0][1], sides[1][1]))


def _in_turn(first: Ints, last: Ints) -> bool:
    """Return whether each pair, whose launches begin from first to last, is before the next."""
    return bool((last[:-1] < first[1:]).all())


def _bounds(start_ns: Ints, groups: tuple[Rows, ...]) -> tuple[Ints, Ints]:
    """Return when the first and the last launch of each run began."""
    begins = np.cumsum([0, *map(len, groups[:-1])])
    ordered = start_ns[np.concatenate(groups)]
    return np.minimum.reduceat(ordered, begins), np.maximum.reduceat(ordered, begins)


def _usual(values: Floats, durations: Floats) -> NDArray[np.bool_]:
    """Return which values are no outliers; ``durations`` are the kernel's."""
    if len(values) < FEWEST_TO_FENCE:
        return np.ones(len(values), np.bool_)
    low, high = np.percentile(values, [25, 75])
    reach = max(_FENCE * (high - low), _NEVER_OUT * float(np.median(durations)))
    usual: NDArray[np.bool_] = (values >= low - reach) & (values <= high + reach)
    return usual
