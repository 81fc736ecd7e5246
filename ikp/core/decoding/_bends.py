"""Bends: each SM clock's deviation from a straight line, as knots fitted to its clock anchors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ikp.core.decoding._ragged import Floats, Ints, extremes, interpolate, medians

_SM_BITS = 20
_TABLE = 1 << 20
"""Most pairs of launch and SM for which a table is made."""


@dataclass(frozen=True, slots=True)
class Sms:
    """The SMs that launches ran on, one row per launch and SM, sorted."""

    launch: Ints
    sm: Ints
    launches: int

    @classmethod
    def of(cls, launch: Ints, sm: Ints, launches: int) -> tuple[Sms, Ints]:
        """Return the distinct pairs of launch and SM, and the row of each of the given pairs."""
        width = int(sm.max(initial=0)) + 1
        if launches * width <= _TABLE:  # much faster than sorting
            key = launch * width + sm if launches > 1 else sm
            there = np.zeros(launches * width, bool)
            there[key] = True
            place = np.cumsum(there) - 1
            known = np.flatnonzero(there)
            return cls(known // width, known % width, launches), place[key]
        key, row = np.unique(launch << _SM_BITS | sm, return_inverse=True)
        return cls(key >> _SM_BITS, key & ((1 << _SM_BITS) - 1), launches), row.reshape(-1)

    def __len__(self) -> int:
        return len(self.sm)


_WINDOW_NS = 20_000.0
"""Anchors of an SM closer together than this are one knot: 32 ns of 20 us is 0.16 %."""
_MAX_KNOTS = 256
"""Knots per SM at most; a longer launch has longer windows."""
_REACH = 0.4
"""The part of the stride between SMs that each has on either side, on the axis of knots: less than
half."""


@dataclass(frozen=True, slots=True)
class Bends:
    """The bend at each of some knots, between which it is interpolated.

    The SMs of a launch lie side by side on its axis of knots, a stride apart.
    """

    knot: Floats  # elapsed ticks + stride * sm, ascending within a launch
    value: Floats  # ns, by knot
    first: Ints  # by launch: where its knots begin
    past: Ints  # ... and end
    stride: Floats  # by launch
    side: Floats  # by row of the SMs: where its ticks of zero lie

    @property
    def reach(self) -> Floats:
        """By launch: how many ticks around its own zero each SM has on the axis."""
        return _REACH * self.stride

    def add(self, placed: Floats, elapsed: Floats, side: Floats, launch: Ints | None) -> None:
        """Add to ``placed`` the bend at ``elapsed`` ticks of SMs that lie at ``side``.

        ``launch`` is the launch of each SM; None where there is only one.
        """
        if not self.value.any():
            return
        if launch is None:
            reach = self.reach[0]
            at = np.clip(elapsed, -reach, reach)
            at += side
            placed += np.interp(at, self.knot, self.value)
            return
        there = (self.past > self.first)[launch]  # else all its anchors are torn
        launch = launch[there]
        wide = self.reach[launch]
        at = np.clip(elapsed[there], -wide, wide) + side[there]
        first, past = self.first[launch], self.past[launch]
        placed[there] += interpolate(at, first, past, self.knot, self.value)


@dataclass(frozen=True, slots=True)
class _Windows:
    """Knots: anchors of an SM that lie close together, averaged."""

    launch: Ints
    knot: Floats
    placed: Floats  # ns since the launch's zero, less the SM's offset
    low: Floats  # where its first anchor is
    high: Floats  # where its last is


def bend(
    sms: Sms, row: Ints, ticks: Floats, residual: Floats, rate: Floats, order: Ints
) -> tuple[Bends, Floats, Ints]:
    """Bend straight lines through anchors.

    Args:
        sms: the SMs of all launches.
        row: the SM of each anchor.
        ticks: of each anchor, since its SM's zero.
        residual: how far each lies from its line, in ns.
        rate: of each launch, in ns per tick.
        order: of the anchors, by SM and then by ticks.

    Returns:
        The bends; and of each launch, the relative spread of its rate and the number of windows.
    """
    launches = sms.launches
    least, most = extremes(sms.launch[row], ticks, launches)
    stride = 4.0 * (np.maximum(-least, most) + 1.0)
    window = np.maximum(_WINDOW_NS / rate, (most - least) / _MAX_KNOTS)
    side = stride[sms.launch] * sms.sm
    row = row[order]
    at, launch = ticks[order] + side[row], sms.launch[row]  # ascending within a launch
    group, windows = _windows(at, launch, window, sms.sm[row], launches)
    found = _knots(at, launch, group, residual[order], rate)
    gaps = np.diff(found.knot)
    within = np.diff(found.launch) == 0  # not from one SM to the next
    within &= gaps < stride[found.launch[1:]] / 2
    _keep_order(found.placed, within)
    value = found.placed - rate[found.launch] * found.knot
    spread = _spread(np.diff(found.placed), gaps, within, found.launch, rate)
    return _with_ends(found, value, gaps, within, stride, side), spread, windows


def _windows(
    at: Floats, launch: Ints, window: Floats, sm: Ints, launches: int
) -> tuple[Ints, Ints]:
    """Number ascending positions by window, and count each launch's windows.

    Clusters that a border cut are joined again. A window of few ticks may hold several SMs: each
    SM has its own offset, so the window counts for each.
    """
    width = window[launch]
    bins = np.floor(at / width)
    another = np.append([True], np.diff(launch) > 0)[: len(at)]
    new = np.append([False], bins[1:] != bins[:-1])[: len(at)] & ~another
    close = np.append([False], np.diff(at) < width[1:] / 4)[: len(at)]
    # Joining two windows in a row would chain a dense series into one: join every other border.
    border = np.cumsum(new)
    border -= border[np.flatnonzero(another)][np.cumsum(another) - 1]
    begins = another | (new & ~(close & (border % 2 == 1)))
    group = np.cumsum(begins) - 1
    apart = begins | (np.append([0], np.diff(sm))[: len(at)] > 0)
    return group, np.bincount(launch[apart], minlength=launches)


def _knots(at: Floats, launch: Ints, group: Ints, residual: Floats, rate: Floats) -> _Windows:
    count = np.bincount(group)
    first = np.cumsum(count) - count
    of = launch[first]
    knot = np.bincount(group, at) / count
    placed = rate[of] * knot + medians(group, residual, len(count))
    return _Windows(of, knot, placed, at[first], at[first + count - 1])


def _keep_order(placed: Floats, within: NDArray[np.bool_]) -> None:
    """Let no SM's time run backwards, as torn anchors would make it."""
    back = np.flatnonzero(within & (np.diff(placed) < 0))
    if not len(back):
        return
    begins = np.append([0], np.flatnonzero(~within) + 1)
    ends = np.append(begins[1:], len(placed))
    for part in np.unique(np.searchsorted(begins, back, "right") - 1).tolist():
        chosen = placed[begins[part] : ends[part]]
        np.maximum.accumulate(chosen, out=chosen)


def _spread(
    steps: Floats, gaps: Floats, within: NDArray[np.bool_], launch: Ints, rate: Floats
) -> Floats:
    """Return by how much each launch's rate differs between windows, relative to it."""
    least, most = extremes(launch[1:][within], steps[within] / gaps[within], len(rate))
    return np.asarray((most - least) / rate)


def _with_ends(
    found: _Windows,
    value: Floats,
    gaps: Floats,
    within: NDArray[np.bool_],
    stride: Floats,
    side: Floats,
) -> Bends:
    """Return the knots with those at the ends of each SM's part.

    An SM's first and last slope hold to its outermost anchors; beyond, it keeps its bend.
    """
    knot = found.knot
    last = np.flatnonzero(np.append(~within, [True])[: len(knot)])
    first = np.append([0], last[:-1] + 1)[: len(last)]
    slope = np.divide(np.diff(value), gaps, where=within, out=np.zeros(len(gaps)))
    low, high = found.low[first], found.high[last]
    low_value = value[first] - np.append(slope, 0.0)[first] * (knot[first] - low)
    high_value = value[last] + np.append([0.0], slope)[last] * (high - knot[last])
    wide = stride[found.launch[first]]
    edge = np.rint(knot[first] / wide) * wide
    reach = (_REACH + 0.05) * wide
    knots = np.concatenate([edge - reach, low, knot, high, edge + reach])
    values = np.concatenate([low_value, low_value, value, high_value, high_value])
    ends = found.launch[first]
    launch = np.concatenate([ends, ends, found.launch, ends, ends])
    sort = np.lexsort((knots, launch))
    past = np.cumsum(np.bincount(launch, minlength=len(stride)))
    begin = np.append([0], past[:-1])
    return Bends(knots[sort], values[sort], begin, past, stride, side)
