"""Messages: arrows from one launch to another, with how long each took and was waited for.

``ikp.edit.connect(trace, "put", "wait", within="trace")`` draws such arrows by equal payloads,
also from rank to rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ikp.core.args import arrows
from ikp.core.host_clock import of_several_hosts
from ikp.core.warps import launch_bounds

if TYPE_CHECKING:
    from ikp.core.trace import Launch, Trace

Ints = NDArray[np.int64]
Rows = NDArray[np.intp]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Messages, one row each: rows of the events, and the launches that they are of."""

    source: Rows
    target: Rows
    sender: Ints
    receiver: Ints

    def __len__(self) -> int:
        return len(self.source)

    @classmethod
    def of(cls, trace: Trace) -> Arrivals:
        """Return the arrows of a trace that lead from one launch to another."""
        source, target = arrows(trace.args)
        sender, receiver = (
            trace.slots.launch[trace.events.slot[rows]].astype(np.int64)
            for rows in (source, target)
        )
        return cls(source, target, sender, receiver).take(sender != receiver)

    def take(self, rows: Bools) -> Arrivals:
        """Return some of them."""
        columns = (self.source, self.target, self.sender, self.receiver)
        return Arrivals(*(each[rows] for each in columns))

    def delay_ns(self, trace: Trace) -> Ints:
        """Return by message the time from the end of the source to the end of the target."""
        ends = trace.events.end_ns
        delay: Ints = ends[self.target] - ends[self.source]
        return delay

    def late_ns(self, trace: Trace) -> Ints:
        """Return by message how long its target had lasted when its source began."""
        events = trace.events
        sent = np.minimum(events.start_ns[self.source], events.end_ns[self.target])
        late: Ints = np.maximum(sent - events.start_ns[self.target], 0)
        return late


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages from other launches, a row each: how they were waited for, and who sent them.

    Times are nanoseconds from the receiver's first start.
    """

    slot: Ints
    region: Ints
    opened: Ints
    closed: Ints
    late: Ints  # how long it had been waited for when it began to be sent
    unlaunched: Ints  # how much of that was before the sender's launch began
    launches: tuple[Launch, ...]  # of the whole trace
    sender: Ints  # launch
    sm: Ints
    block: Ints
    source_region: Ints


def messages_to(trace: Trace, index: int, begin: int) -> Messages | None:
    """Return what reaches a launch from others; None where nothing does.

    Args:
        trace: with all launches.
        index: the number of the launch.
        begin: Unix time of its first start, in nanoseconds.
    """
    found = Arrivals.of(trace)
    found = found.take(found.receiver == index)
    if not len(found):
        return None
    number = np.cumsum(trace.slots.launch == index) - 1
    events, slots = trace.events, trace.slots
    source = events.slot[found.source]
    opened, late = events.start_ns[found.target], found.late_ns(trace)
    launched, _ = launch_bounds(trace)
    return Messages(
        slot=number[events.slot[found.target]],
        region=events.region[found.target].astype(np.int64),
        opened=opened - begin,
        closed=events.end_ns[found.target] - begin,
        late=late,
        unlaunched=np.clip(launched[found.sender] - opened, 0, late),
        launches=trace.launches,
        sender=found.sender,
        sm=slots.sm[source].astype(np.int64),
        block=slots.block[source],
        source_region=events.region[found.source].astype(np.int64),
    )


def shown_name(launch: Launch) -> str:
    """Return what a launch is called among those that exchange messages: by its rank, if any."""
    return launch.label if launch.rank is None else f"rank {launch.rank}"


def bound_ns(trace: Trace, one: Launch, other: Launch) -> float | None:
    """Return by how much the times of two launches may disagree; None where that is not known.

    Args:
        trace: both are of it; where its times are of several hosts, none of them is compared.
        one: a launch.
        other: another one.
    """
    if (one.device, one.rank) == (other.device, other.rank):
        return 0.0
    if of_several_hosts(trace.provenance):
        return None
    bounds = one.clock.unix_bound_ns, other.clock.unix_bound_ns
    if one.clock.kind == other.clock.kind == "host":
        return 0.0
    return None if bounds[0] is None or bounds[1] is None else bounds[0] + bounds[1]


def by_ranks(trace: Trace, found: Arrivals) -> list[str]:
    """Return a line for each two ranks, or labels, that exchange messages: how long they took."""
    delay = found.delay_ns(trace)
    pairs: dict[tuple[str, str], list[int]] = {}
    for row, (sender, receiver) in enumerate(
        zip(found.sender.tolist(), found.receiver.tolist(), strict=True)
    ):
        names = shown_name(trace.launches[sender]), shown_name(trace.launches[receiver])
        pairs.setdefault(names, []).append(row)
    lines = []
    for (sender, receiver), rows in sorted(pairs.items()):
        one, other = (trace.launches[each[rows[0]]] for each in (found.sender, found.receiver))
        bound = bound_ns(trace, one, other)
        exactly = "clocks not aligned" if bound is None else f"clocks within {bound / 1e3:.2f} us"
        took = delay[rows]
        lines.append(
            f"{sender} to {receiver}: {len(rows):,} messages, {np.median(took) / 1e3:.2f} us each "
            f"(median; {took.min() / 1e3:.2f} to {took.max() / 1e3:.2f}), {exactly}"
        )
    return lines
