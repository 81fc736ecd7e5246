"""Times of packets: how much later each is than the one in front of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(slots=True)
class Clock:
    """The file's clock: each packet says how much later it is than the one in front of it.

    ``now`` is the Unix time in ns at which the last packet was. Steps take fewer bytes than times.
    """

    now: int

    def step(self, time: int) -> int:
        """Return how much later than the last packet it is, as protobuf has it, and be there."""
        step, self.now = time - self.now, time
        return step % (1 << 64)

    def steps(self, *streams: tuple[Ints, Ints]) -> list[Ints]:
        """Return the steps of packets; of each stream come times and places, both ascending."""
        found = steps(self.now, *streams)
        lasts = [(int(places[-1]), int(times[-1])) for times, places in streams if len(times)]
        self.now = max(lasts)[1] if lasts else self.now
        return found


def steps(before: int, *streams: tuple[Ints, Ints]) -> list[Ints]:
    """Return how much later than the one in front of it each of some packets is.

    Of each stream come its packets' times, and their places among all: ``0 .. n - 1``. ``before``
    is the time of the packet in front of them.
    """
    times = np.empty(sum(len(places) for _, places in streams), np.int64)
    for stream, places in streams:
        times[places] = stream
    later = np.diff(times, prepend=before)
    return [later[places] for _, places in streams]
