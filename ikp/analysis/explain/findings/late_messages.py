"""Finding ``late-message``: waits that began before another launch, or rank, sent their message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ikp.analysis.arrivals import bound_ns, shown_name
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number, Where

_PLACES: Final = 3


def late_messages(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on waits that began before what they wait for was sent.

    Where one warp of a block waits, the others wait for it: a block's time counts, not a warp's.
    """
    got = launch.messages
    if got is None or not len(got.late):
        return
    bounds = {
        each: bound_ns(got.launches[each], launch.launch) for each in set(got.sender.tolist())
    }
    unsure = np.array([bounds[each] or 0.0 for each in got.sender.tolist()])
    late = np.where(got.late > unsure, got.late, 0)
    by_warp = np.bincount(got.slot, late, minlength=len(launch.start))
    longest = np.zeros(len(launch.block_ids))
    np.maximum.at(longest, launch.block_of, by_warp)
    life = float((launch.block_end - launch.block_start).sum())
    share = float(longest.sum()) / max(life, 1.0)
    if not enough(launch, share * launch.duration):
        return
    places = np.stack([got.sender, got.sm], axis=1)
    distinct, which = np.unique(places, axis=0, return_inverse=True)
    which = which.reshape(-1)
    sender, sm = distinct[np.argmax(np.bincount(which, late))].tolist()
    there = np.flatnonzero((got.sender == sender) & (got.sm == sm))
    worst = there[np.argsort(-late[there], kind="stable")]
    top, bound = int(worst[0]), bounds[sender]
    names = launch.names[int(got.region[top])], launch.names[int(got.source_region[top])]
    who = shown_name(got.launches[sender])
    rows = np.flatnonzero(late > 0)
    yield finding(
        launch,
        "late-message",
        title=f"{shown_name(launch.launch)} waits up to {late[top] / 1e3:.1f} us in {names[0]} for "
        f"{who}'s SM {sm}, whose block {int(got.block[top])} comes to {names[1]} that late",
        number=Number("waits before the message was sent, of the blocks' time", share, "share"),
        at_stake=share * launch.duration,
        without="with all messages sent before they are waited for",
        confidence="possible" if bound is None else "measured",
        rationale=f"{len(rows):,} of {len(late):,} messages were sent after their wait had begun"
        + (
            "; the clocks of the two are not aligned."
            if bound is None
            else f", by clocks that agree within {bound / 1e3:.2f} us."
        )
        + " Refuted if the sender's work before it can't be done earlier, or elsewhere.",
        where=Where(
            regions=names,
            warps=tuple(launch.warp(int(got.slot[row])) for row in worst[:_PLACES].tolist()),
            window_ns=(int(got.opened[top]), int(got.closed[top])),
            count=len(rows),
        ),
        suggestion=f"look at what {who} does before {names[1]} on SM {sm}; send in smaller parts "
        "and sooner, or do work that needs no message before the wait",
    )
