"""Waits joined with what they wait for: warps at a barrier, ranges of other warps; the critical
path over them.

``Meetings``: the n-th time that each warp of a group waits in a region, for one payload if it has
any, is the n-th meeting. The region is a barrier among these warps if they leave it together, as
the last of them arrives; else they wait for other warps, and there are no meetings. Where the range
itself is too short to hold the wait, a warp has left when its next range begins: a compiler may put
the barrier behind the range.

``Connection``: a wait and the range that it waits for, by arrows in the trace, else by equal
payloads: an iteration, a stage, a tile. Of the regions that other warps of the block record, the
one is taken whose ranges start last before the waits end. The verdict lists these pairs, as
``connected``.

``critical_path`` is that of the block that ended last: back from its end, over waits to other
warps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.analysis._self_time import owned
from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.prepared import Bools, Ints, Prepared, once
from ikp.analysis.explain.verdict import Step
from ikp.analysis.explain.warp_groups import Moments
from ikp.core.args import arrows
from ikp.core.sorting import order_by

Rows = NDArray[np.intp]

_TOGETHER: Final = 0.3
"""Share of the waits' time in which warps may wait for something else than the last of them."""


_SMALL: Final = 1 << 12
"""Ranges up to which regions are looked at together: of thousands of names each has few."""
_EMPTY: Final = 0.1
"""Share of the time between the first and the last arrival: a range that is shorter holds no wait.
"""


@dataclass(frozen=True, slots=True)
class Meetings:
    """The meetings of one region: rows of ranges, meeting by meeting."""

    rows: Rows
    number: Ints  # of the meeting that each row is of
    count: Ints  # warps of each meeting
    last: Ints  # when the last warp of each came
    last_row: Rows  # its range
    mean: NDArray[np.float64]  # when they came on average


@once
def meetings(launch: Prepared, region: int) -> Meetings | None:
    """Return a region's meetings; None where it is no barrier among the warps that record it."""
    if launch.counts[region] > _SMALL:
        return _meetings(launch, [region]).get(region)
    return _of_small_regions(launch, launch.known[region].activity).get(region)


@once
def _of_small_regions(launch: Prepared, activity: Activity) -> dict[int, Meetings]:
    """Return the meetings of all regions of an activity that have few ranges: one sort for all."""
    regions = launch.regions([activity])
    return _meetings(launch, regions[launch.counts[regions] <= _SMALL].tolist())


def _meetings(launch: Prepared, regions: list[int]) -> dict[int, Meetings]:
    """Return the meetings of the regions that are barriers."""
    rows = np.concatenate([launch.of_region([one]) for one in regions])
    rows = rows[order_by(launch.region[rows], launch.slot[rows], launch.opens[rows])]
    region, slot = launch.region[rows], launch.slot[rows]
    first = _begins(region, slot)
    turn = np.arange(len(rows)) - np.repeat(first, np.diff(first, append=len(rows)))
    who = launch.block_of[slot] * len(launch.groups) + launch.groups.of_warp[slot]
    what = _numbers(launch, rows)
    order = order_by(region, who, what, turn, launch.opens[rows])
    rows, region = rows[order], region[order]
    starts = _begins(region, who[order], what[order], turn[order])
    count = np.diff(starts, append=len(rows))
    opens = launch.opens[rows]
    apart = opens[starts + count - 1] > opens[starts]  # where all come at once, none waits
    low = _begins(region[starts])
    high = np.append(low[1:], len(starts))
    found = {}
    for a, b in zip(low.tolist(), high.tolist(), strict=True):
        if apart[a:b].any():
            begin = int(starts[a])
            mine = slice(begin, int(starts[b]) if b < len(starts) else len(rows))
            made = _of_one(launch, rows[mine], opens[mine], starts[a:b] - begin, count[a:b])
            if made is not None:
                found[int(region[begin])] = made
    return found


def _begins(*columns: NDArray[np.integer[Any]]) -> Rows:
    """Return the rows that differ from the one before in any of some columns, and the first."""
    new = np.ones(len(columns[0]), np.bool_)
    new[1:] = False
    for one in columns:
        new[1:] |= one[1:] != one[:-1]
    return np.flatnonzero(new)


def _numbers(launch: Prepared, rows: Rows) -> Ints:
    """Return numbers of payloads, in their order; one of those that are none."""
    if not launch.has_payloads:
        return np.zeros(len(rows), np.int64)
    payload = np.nan_to_num(launch.payload(rows), nan=-1.0)
    return np.unique(payload, return_inverse=True)[1].astype(np.int64)


def _of_one(
    launch: Prepared, rows: Rows, opens: Ints, starts: Rows, count: Ints
) -> Meetings | None:
    """Return meetings of one region, whose rows begin at ``starts``; None if it is no barrier."""
    closes = launch.closes[rows]
    last = np.maximum.reduceat(opens, starts)
    if np.median(closes - opens) < _EMPTY * np.median(last - np.minimum.reduceat(opens, starts)):
        closes = np.maximum(launch.next_opens[rows], closes)
    mean = np.add.reduceat(opens, starts) / count
    left = np.maximum.reduceat(closes, starts)
    apart = float((left - np.minimum.reduceat(closes, starts)).sum())
    for_each_other, for_others = float((last - mean).sum()), float((left - last).sum())
    if for_each_other <= 0 or max(for_others, apart) > _TOGETHER * (for_each_other + for_others):
        return None
    number = np.repeat(np.arange(len(starts)), count)
    return Meetings(rows, number, count, last, rows[starts + count - 1], mean)


_MOST: Final = 1 << 16
"""Waits of one region that are joined by payloads; of more, those of some blocks."""
_ENOUGH: Final = 0.5
"""Share of a region's waits, and of their partners' payloads, that must be joined. Of fewer,
payloads mean different things on the two sides (a tile here, a step there)."""


_STAGES: Final = 12
"""More than this many at once are no ring, but the same payloads of an earlier tile."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Waits of one region, and the range that each was waiting for, as rows of the launch's ranges.

    ``late`` is how long each wait went on before that range was over. From then on, what the range
    started is on its way.
    """

    wait: int  # region
    source: int  # region
    waits: Rows
    sources: Rows
    late: Ints
    how: str  # "arrows" | "payloads"
    of: int  # how many waits the region has

    def line(self, launch: Prepared) -> str:
        """Return the line of the verdict that says which regions were joined, and how."""
        names = launch.names[self.wait], launch.names[self.source]
        return f"{names[0]} with {names[1]} by {self.how}: {len(self.waits)} of {self.of}"

    def in_flight(self, launch: Prepared) -> int:
        """Return the median number of sources that have begun and whose waits are not over.

        That is how many stages a ring has, where it is full while a wait is under way.
        """
        span = max(launch.duration, 1) + 1

        def block_of(rows: Rows) -> Ints:
            found: Ints = launch.block_of[launch.slot[rows]]
            return found

        def moments(rows: Rows, time: Moments) -> Ints:
            return np.sort(block_of(rows) * span + np.clip(time[rows], 0, span - 1))

        one = launch.slot[self.waits] == self._one_warp_each(launch)[block_of(self.waits)]
        waits = self.waits[one]
        begun = moments(np.unique(self.sources), launch.opens)
        over = moments(waits, launch.closes)
        first = np.searchsorted(over, np.sort(block_of(waits)) * span)
        done = np.arange(len(over)) - first
        ready = np.searchsorted(begun, over, "right")
        ready -= np.searchsorted(begun, over // span * span)
        return int(np.median(ready - done)) if len(over) else 0

    def _one_warp_each(self, launch: Prepared) -> Ints:
        """Return one of the slots that wait, for each block."""
        found = np.full(len(launch.block_ids), -1, np.int64)
        found[launch.block_of[launch.slot[self.waits]]] = launch.slot[self.waits]
        return found

    def flight(self, launch: Prepared) -> tuple[int, int]:
        """Return the median and the least time from a source's start to the end of its wait.

        The median is of the longer half of the waits: the others came when the source was done.
        """
        took = launch.closes[self.waits] - launch.opens[self.sources]
        waited = launch.took(self.waits)
        long = took[waited >= np.median(waited)]
        return (int(np.median(long)), int(took.min())) if len(took) else (0, 0)

    def late_share(self, launch: Prepared) -> float:
        """Return the share of the waits' time before what they wait for was done or on its way."""
        whole = int(launch.took(self.waits).sum())
        return float(self.late.sum()) / whole if whole else 0.0

    def on_its_way(self, launch: Prepared) -> bool:
        """Whether most of the waits' time is for what had begun before them, and soon was done."""
        took = launch.took(self.waits)
        begun = launch.opens[self.sources] <= launch.opens[self.waits]
        return self.late_share(launch) < 0.5 and 2 * int(took[begun].sum()) >= int(took.sum())


@once
def connect_wait(launch: Prepared, region: int) -> Connection | None:
    """Return the connection of a region's waits; None without arrows or payloads that match."""
    waits = launch.of_region([region])
    return _by_arrows(launch, region, waits) or _by_payloads(launch, region, waits)


def _by_arrows(launch: Prepared, region: int, waits: Rows) -> Connection | None:
    sources, targets = arrows(launch.trace.args)
    if not len(sources):
        return None
    place = np.full(len(launch.trace.events), -1)
    place[slice(None) if launch.row is None else launch.row] = np.arange(len(launch.slot))
    sources, targets = place[sources], place[targets]
    mine = (sources >= 0) & (targets >= 0) & np.isin(targets, waits)
    if not mine.any():
        return None
    common = np.bincount(launch.region[sources[mine]]).argmax()
    mine &= launch.region[np.maximum(sources, 0)] == common
    return _made(launch, region, sources[mine], targets[mine], "arrows")


def _by_payloads(launch: Prepared, region: int, waits: Rows) -> Connection | None:
    """Join waits with the ranges of another group that have their block and payload."""
    waits = waits[~np.isnan(launch.payload(waits))]
    if not len(waits):
        return None
    chosen = _some_blocks(launch, waits)
    waits = waits[chosen[launch.slot[waits]]]
    waiting = np.array([each.activity.waits for each in launch.known], bool)
    group = launch.groups.of_warp
    others = ~np.isin(group, np.unique(group[launch.slot[waits]]))
    sources = ~waiting
    sources[region] = False
    rows = np.flatnonzero((chosen & others)[launch.slot] & sources[launch.region])
    rows = rows[~np.isnan(launch.payload(rows))]
    rows = rows[np.argsort(launch.region[rows], kind="stable")]
    found: Connection | None = None
    for some in np.split(rows, np.flatnonzero(np.diff(launch.region[rows])) + 1):
        one = _matched(launch, region, waits, some) if len(some) else None
        if one is not None and (found is None or _starts(launch, one) > _starts(launch, found)):
            found = one
    return found


def _some_blocks(launch: Prepared, waits: Rows) -> Bools:
    """Return the slots of the blocks whose waits are joined by payloads.

    These are the block that ended last, and others until they have ``_MOST`` waits.
    """
    per_block = np.bincount(launch.block_of[launch.slot[waits]], minlength=len(launch.block_ids))
    order = np.argsort(launch.block_end == launch.block_end.max(), kind="stable")[::-1]
    taken = np.zeros(len(per_block), bool)
    taken[order[np.cumsum(per_block[order]) - per_block[order] < _MOST]] = True
    found: Bools = taken[launch.block_of]
    return found


def _starts(launch: Prepared, one: Connection) -> float:
    """Return how late the sources begin before the waits end: the latest is waited for."""
    return -float(np.median(launch.closes[one.waits] - launch.opens[one.sources]))


def _matched(launch: Prepared, region: int, waits: Rows, rows: Rows) -> Connection | None:
    """Give each wait the last range that began before it was over, of its block and payload."""
    both = np.concatenate([rows, waits])
    payloads, code = np.unique(launch.payload(both), return_inverse=True)
    key = launch.block_of[launch.slot[both]] * len(payloads) + code
    time = np.concatenate([launch.opens[rows], launch.closes[waits]])
    is_wait = np.arange(len(both)) >= len(rows)
    order = np.lexsort((is_wait, time, key))
    last = np.maximum.accumulate(np.where(is_wait[order], -1, np.arange(len(order))))
    at = order[np.maximum(last, 0)]
    hit = is_wait[order] & (last >= 0) & (key[at] == key[order])
    sources, targets = both[at[hit]], both[order[hit]]
    pairs = len(np.unique(key[: len(rows)]))
    if len(targets) < _ENOUGH * len(waits) or len(np.unique(key[at[hit]])) < _ENOUGH * pairs:
        return None
    made = _made(launch, region, sources, targets, "payloads")
    return made if made.in_flight(launch) <= _STAGES else None


def _made(launch: Prepared, region: int, sources: Rows, waits: Rows, how: str) -> Connection:
    late = np.clip(launch.closes[sources] - launch.opens[waits], 0, launch.took(waits))
    source = int(launch.region[sources[0]])
    return Connection(region, source, waits, sources, late, how, int(launch.counts[region]))


_STEPS: Final = 20_000
_MOST_STEPS: Final = 8

Jump = tuple[int, int]
"""The slot that the path goes on with, and when."""


@dataclass(frozen=True, slots=True)
class _Warp:
    """The pieces of one warp's time in order, each with the range that it belongs to."""

    begin: Ints
    end: Ints
    row: NDArray[np.intp]

    def before(self, time: int) -> int:
        """Return the last piece that begins before a moment; -1 for none."""
        return int(np.searchsorted(self.begin, time)) - 1


def critical_path(launch: Prepared, joined: Iterable[Connection]) -> tuple[Step, ...]:
    """Return the parts of the path, the longest first."""
    if not len(launch.region) or not len(launch.block_ids):
        return ()
    block = int(np.argmax(launch.block_end))
    slots = np.flatnonzero(launch.block_of == block)
    warps = {slot: _pieces(launch, slot) for slot in slots.tolist()}
    jumps = _jumps(launch, joined, slots)
    slot = int(slots[np.argmax(launch.end[slots])])
    spent = _walk(launch, warps, jumps, slot, int(launch.block_start[block]))
    whole = max(sum(spent.values()), 1)
    order = sorted(spent.items(), key=lambda item: (-item[1], item[0]))
    return tuple(
        Step(launch.groups.names[group], launch.names[region] if region >= 0 else "", took / whole)
        for (group, region), took in order[:_MOST_STEPS]
    )


def _walk(
    launch: Prepared, warps: dict[int, _Warp], jumps: dict[int, Jump], slot: int, begin: int
) -> dict[tuple[int, int], int]:
    """Return how long the path is in each group and region; -1 for no range."""
    spent: dict[tuple[int, int], int] = {}
    now = int(launch.end[slot])

    def add(region: int, until: int) -> None:
        key = int(launch.groups.of_warp[slot]), region
        spent[key] = spent.get(key, 0) + max(now - max(until, begin), 0)

    for _ in range(_STEPS):
        if now <= begin:
            break
        warp = warps[slot]
        at = warp.before(now)
        if at < 0 or warp.end[at] < now:  # in no range
            until = int(warp.end[at]) if at >= 0 else begin
            add(-1, until)
            now = until
            continue
        row = int(warp.row[at])
        jump = jumps.pop(row, None)  # a wait that was left once is not left again
        if jump is not None and int(warp.begin[at]) < jump[1] <= now:
            add(int(launch.region[row]), jump[1])
            slot, now = jump
            continue
        add(int(launch.region[row]), int(warp.begin[at]))
        now = int(warp.begin[at])
    return spent


def _pieces(launch: Prepared, slot: int) -> _Warp:
    rows = launch.of_slot(slot)
    rows = rows[launch.took(rows) > 0]
    if not len(rows):
        return _Warp(np.zeros(0, np.int64), np.zeros(0, np.int64), rows)
    time, owner = owned(launch.slot[rows], launch.opens[rows], launch.closes[rows])
    return _Warp(time[0], time[1], rows[owner])


def _jumps(launch: Prepared, joined: Iterable[Connection], slots: Ints) -> dict[int, Jump]:
    """Return the jump from each wait of a block's warps."""
    found: dict[int, Jump] = {}
    for region in launch.regions([Activity.WAIT_BARRIER]).tolist():
        met = meetings(launch, region)
        if met is None:
            continue
        last = met.last_row[met.number]
        here = np.isin(launch.slot[met.rows], slots) & (met.rows != last)
        for row, other in zip(met.rows[here].tolist(), last[here].tolist(), strict=True):
            found[row] = int(launch.slot[other]), int(launch.opens[other])
    for one in joined:
        here = np.isin(launch.slot[one.waits], slots)
        pairs = zip(one.waits[here].tolist(), one.sources[here].tolist(), strict=True)
        for wait, source in pairs:
            found[wait] = int(launch.slot[source]), int(launch.closes[source])
    return found
