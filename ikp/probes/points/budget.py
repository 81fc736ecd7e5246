"""Selection of probe regions within an overhead budget, by an estimate of what records cost.

The estimate is made before the launch: cycles that a record takes, as measured, over the cycles
that an iteration of its loop takes, as its code says (``loop_pace``). The loop in which records
cost most decides; there, the regions that say least are left out first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ikp.probes.points import naming
from ikp.probes.points.loop_pace import Pace
from ikp.probes.points.probe_points import ProbeRegion, ProbeRegions

RECORD_CYCLES = 24
"""Cycles that a record adds to an iteration: 7 to 45 on an H200 (docs/benchmarks.md)."""


@dataclass
class Budget:
    """Chooses the probe regions that an overhead budget allows.

    Args:
        places: the kernel's probe regions.
        pace: its estimated times.
        most: the ratio to the plain kernel that is allowed, 1.05.
    """

    places: ProbeRegions
    pace: Pace
    most: float
    _turns: dict[int | None, float] = field(default_factory=dict)

    def keep(self, wanted: Sequence[ProbeRegion]) -> tuple[list[ProbeRegion], str]:
        """Return the regions that are within the budget, and a message on the expected cost."""
        kept, dropped = list(wanted), list[ProbeRegion]()
        before = self.expected(kept)
        while (now := self.expected(kept)) > self.most:
            loop = max(self._loops(kept), key=lambda each: self._share(kept, each))
            least = max(self._in(kept, loop), key=self._worth)
            kept.remove(least)
            dropped.append(least)
        expected = f"a block with records is expected to take {now:.3f} times as long"
        message = f"{expected}, entry and exit aside"
        if dropped:
            message += (
                f" ({before:.3f} with all marks). Left out to stay within {self.most:g}: "
                f"{naming.some(place.name for place in dropped)}"
            )
        return kept, message

    def expected(self, kept: Sequence[ProbeRegion]) -> float:
        """Return the time with these regions recorded, as expected, over the plain kernel's."""
        return 1 + max((self._share(kept, loop) for loop in self._loops(kept)), default=0)

    def _loops(self, kept: Sequence[ProbeRegion]) -> list[int | None]:
        """Return the loops that hold records; the code outside only if there are no loops."""
        found = {self._loop(place) for place in kept if place.ends}
        return [loop for loop in found if loop is not None or not self.places.flow.bodies]

    def _in(self, kept: Sequence[ProbeRegion], loop: int | None) -> list[ProbeRegion]:
        return [place for place in kept if place.ends and self._loop(place) == loop]

    def _share(self, kept: Sequence[ProbeRegion], loop: int | None) -> float:
        if loop not in self._turns:
            self._turns[loop] = self.pace.turn(loop)
        return len(self._in(kept, loop)) * RECORD_CYCLES / self._turns[loop]

    def _loop(self, place: ProbeRegion) -> int | None:
        block = self.places.regions.block(place.start)
        return None if block is None else self.places.regions.loop(block)

    def _worth(self, place: ProbeRegion) -> tuple[int, int, int]:
        """Return a key that is greatest for the finest level, then for the fewest instructions."""
        inside = self.places.regions.inside(place.start, place.ends, place.within)
        return place.level, -len(inside), place.start.index
