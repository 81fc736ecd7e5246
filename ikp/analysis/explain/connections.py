"""Waits joined with the ranges that they wait for: by arrows in the trace, else by equal payloads.

A wait and the range that it waits for carry one payload: an iteration, a stage, a tile. Of the
regions that other warps of the block record, the one is taken whose ranges start last before the
waits end. The verdict lists these pairs, as ``connected``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.explain.prepared import Bools, Ints, Prepared, once
from ikp.core.args import arrows

Rows = NDArray[np.intp]

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

    def told(self, launch: Prepared) -> str:
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

        def moments(rows: Rows, time: Ints) -> Ints:
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
