"""Findings on waits for messages of another launch or rank, by the place that sends them late.

``late-message``: a wait began before the message was sent. ``late-launch``: before its sender was
launched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from ikp.analysis.arrivals import Messages, bound_ns, shown_name
from ikp.analysis.explain.prepared import Ints, Prepared
from ikp.analysis.explain.region_times import share_of_blocks
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number, Where

_PLACES: Final = 3


def late_messages(launch: Prepared) -> Iterator[Finding]:
    """Yield findings on waits that began before what they wait for was sent, or launched.

    Where one warp of a block waits, the others wait for it: a block's time counts, not a warp's.
    """
    got = launch.messages
    if got is None or not len(got.late):
        return
    bounds = {
        each: bound_ns(launch.trace, got.launches[each], launch.launch)
        for each in set(got.sender.tolist())
    }
    unsure = np.array([bounds[each] or 0.0 for each in got.sender.tolist()])
    late = np.where(got.late > unsure, got.late, 0)
    unlaunched = np.where(got.unlaunched > unsure, np.minimum(got.unlaunched, late), 0)
    sender = got.sender[:, None]
    places = np.stack([got.sender, got.sm], axis=1)
    for time, of, say in (
        (late - unlaunched, places, _late_message),
        (unlaunched, sender, _late_launch),
    ):
        share = share_of_blocks(launch, got.slot, time)
        if enough(launch, share * launch.duration):
            yield say(_Late.of(launch, got, time, share, bounds, of))


@dataclass(frozen=True)
class _Late:
    """Messages that were waited for too early, and the place with most of that time."""

    launch: Prepared
    got: Messages
    late_ns: Ints  # of each message
    share: float  # of the blocks' time
    bound_ns: float | None  # how far the two clocks agree; None where they are not aligned
    worst: Ints  # the place's messages, the latest first

    @classmethod
    def of(
        cls,
        launch: Prepared,
        got: Messages,
        late_ns: Ints,
        share: float,
        bounds: dict[int, float | None],
        places: Ints,
    ) -> _Late:
        """Return what is late at the place with most of the time, its sender first in each row."""
        distinct, which = np.unique(places, axis=0, return_inverse=True)
        which = which.reshape(-1)
        latest = int(np.argmax(np.bincount(which, late_ns)))
        there = np.flatnonzero(which == latest)
        worst = there[np.argsort(-late_ns[there], kind="stable")]
        return cls(launch, got, late_ns, share, bounds[int(distinct[latest][0])], worst)

    @property
    def top(self) -> int:
        """The latest message."""
        return int(self.worst[0])

    @property
    def sender(self) -> str:
        """The name of the sender's launch."""
        return shown_name(self.got.launches[int(self.got.sender[self.top])])

    @property
    def waits(self) -> str:
        """Who waits, how long, and in which range."""
        name = self.launch.names[int(self.got.region[self.top])]
        late_us = self.late_ns[self.top] / 1e3
        return f"{shown_name(self.launch.launch)} waits up to {late_us:.1f} us in {name}"

    @property
    def source(self) -> str:
        """The range of the sender that sends."""
        return self.launch.names[int(self.got.source_region[self.top])]

    def finding(self, name: str, sent: str, title: str, suggestion: str) -> Finding:
        """Return the finding of a name; ``sent`` says what came too late."""
        late, got, top = self.late_ns, self.got, self.top
        count = int(np.count_nonzero(late > 0))
        return finding(
            self.launch,
            name,
            title=title,
            number=Number(f"waits before {sent}, of the blocks' time", self.share, "share"),
            at_stake=self.share * self.launch.duration,
            without="with all messages sent before they are waited for",
            confidence="possible" if self.bound_ns is None else "measured",
            rationale=f"{count:,} of {len(late):,} messages were waited for before {sent}"
            + (
                "; the clocks of the two are not aligned."
                if self.bound_ns is None
                else f", by clocks that agree within {self.bound_ns / 1e3:.2f} us."
            )
            + " Refuted if the sender's work before it can't be done earlier, or elsewhere.",
            where=Where(
                regions=(self.launch.names[int(got.region[top])], self.source),
                warps=tuple(
                    self.launch.warp(int(got.slot[row])) for row in self.worst[:_PLACES].tolist()
                ),
                window_ns=(int(got.opened[top]), int(got.closed[top])),
                count=count,
            ),
            suggestion=suggestion,
        )


def _late_message(late: _Late) -> Finding:
    """Return the finding on messages that one SM of a sender sends late."""
    sm, block = int(late.got.sm[late.top]), int(late.got.block[late.top])
    return late.finding(
        "late-message",
        "the message was sent",
        title=f"{late.waits} for {late.sender}'s SM {sm}, whose block {block} comes to "
        f"{late.source} that late",
        suggestion=f"look at what {late.sender} does before {late.source} on SM {sm}; send in "
        "smaller parts and sooner, or do work that needs no message before the wait",
    )


def _late_launch(late: _Late) -> Finding:
    """Return the finding on messages whose sender was launched late."""
    return late.finding(
        "late-launch",
        "their sender was launched",
        title=f"{late.waits} for {late.sender}, whose kernel begins that late",
        suggestion=f"look at what the host of {late.sender} does before this launch; let it launch "
        "sooner",
    )
