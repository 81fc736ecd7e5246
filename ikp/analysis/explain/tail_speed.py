"""``lost_in_tail``: how much of an SM's rate is lost where it holds fewer blocks than it could.

Blocks with fewer others beside them run faster. Where two blocks of an SM finish as much in a time
as six did, the empty CTA slots of a tail lose nothing.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ikp.analysis.explain.prepared import Floats, Ints, Prepared, once

_MANY: Final = 0.85
_FEW: Final = 0.6
"""Parts of the most blocks at once from which on, and up to which, a block counts as crowded, or as
one of few."""
_SEVERAL: Final = 8
"""Blocks of each kind from which on their medians say how they differ."""


@once
def lost_in_tail(launch: Prepared) -> float:
    """Return the part of the rate of empty CTA slots that is lost: 1 where that is not known."""
    beside = _beside(launch)
    took = (launch.blocks.end - launch.blocks.start).astype(np.float64)
    most = float(beside.max(initial=0.0))
    crowded, alone = beside >= _MANY * most, beside <= _FEW * most
    if min(int(crowded.sum()), int(alone.sum())) < _SEVERAL:
        return 1.0
    usual, fast = float(np.median(took[crowded])), float(np.median(took[alone]))
    part = float(np.median(beside[alone])) / most
    rate = part * usual / max(fast, 1.0)
    return float(np.clip((1 - rate) / max(1 - part, 1e-3), 0.0, 1.0))


def _beside(launch: Prepared) -> Floats:
    """Return how many blocks its SM held on average while each block ran, itself included."""
    ran = launch.blocks
    found = np.ones(len(ran.ids), np.float64)
    order = np.argsort(ran.sm, kind="stable")
    for mine in np.split(order, np.flatnonzero(np.diff(ran.sm[order])) + 1):
        start, end = ran.start[mine], ran.end[mine]
        until_end, until_start = (_busy(start, end, moments) for moments in (end, start))
        found[mine] = (until_end - until_start) / np.maximum(end - start, 1)
    return found


def _busy(start: Ints, end: Ints, until: Ints) -> Ints:
    """Return the time of all blocks of an SM, together, up to some moments."""
    total = np.zeros(len(until), np.int64)
    for times, sign in ((np.sort(start), 1), (np.sort(end), -1)):
        before = np.searchsorted(times, until)
        sums = np.concatenate([[0], np.cumsum(times)])
        total += sign * (before * until - sums[before])
    return total
