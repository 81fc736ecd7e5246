"""Selection of probe regions within an overhead budget, by an estimate of what records cost.

The estimate is made before the launch. It is the cycles that a record takes, as measured, over the
cycles that an iteration of its loop takes, as its code says (``Pace``). The loop in which records
cost most decides; there, the regions that say least are left out first.

In ``Pace``, instructions issue as their stalls say. A wait ends when the awaited instructions do:
loads and copies take as long as from idle memory, products as long as tensor cores take. Other
warps, bandwidth, barriers and caches are not known, so most loops take longer. So a cost reported
as a share of this time is rather too high than too low.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ikp.probes.points import naming
from ikp.probes.points.lines_of import AboutLines
from ikp.probes.points.probe_points import ProbeRegion, ProbeRegions
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.outstanding import Issued, LoadWait
from ikp.sass.disassembly.opcodes import Landmark, landmark

_MEMORY = 500
"""About the cycles from a load's issue to its data: H100 and H200, from memory, else idle."""
_PRODUCT = re.compile(r"GMMA\.(\d+)x(\d+)x(\d+)")
_PER_CYCLE = 2048
"""Products of 16-bit numbers that an SM's tensor cores make in a cycle (sm_90: 989 TFLOPS)."""
_ITERATIONS = 4
"""How many iterations are simulated: loads issued ahead of time are then on their way."""
_ARRIVES = {Landmark.LOAD, Landmark.COPY, Landmark.TMA_LOAD}


@dataclass(frozen=True)
class Pace:
    """Estimated times of one kernel.

    Args:
        flow: the kernel.
        about: what its waits are for.
        waits: its waits for loads, by instruction.
        warps: how many an SM has room for, of all blocks: they share its tensor cores.
    """

    flow: Flow
    about: AboutLines
    waits: Mapping[int, LoadWait]
    warps: int

    @classmethod
    def of(cls, places: ProbeRegions, warps: int) -> Pace:
        """Return the times of a kernel whose probe regions are known."""
        return cls(places.flow, places.origins, {wait.at: wait for wait in places.waits}, warps)

    def iteration_cycles(self, loop: int | None) -> float:
        """Return about how many cycles an iteration of a loop takes; the kernel's code, for None.

        Inner loops count as if they had one iteration.
        """
        code = self.flow.code.instructions
        body = range(len(code)) if loop is None else self._body(loop)
        clock, begun = _Clock(), 0.0
        for iteration in range(1 if loop is None else _ITERATIONS):
            begun = clock.now
            for at in body:
                self._step(clock, at, iteration)
        return max(clock.now - begun, 1.0)

    def _body(self, loop: int) -> list[int]:
        blocks = [self.flow.graph.blocks[block] for block in self.flow.bodies[loop]]
        return sorted(at for block in blocks for at in range(block.first, block.end))

    def _step(self, clock: _Clock, at: int, iteration: int) -> None:
        instruction = self.flow.code.instructions[at]
        clock.wait((issued.at, iteration - issued.ago) for issued in self._awaited(at))
        kind = None if instruction.never_runs else landmark(instruction.opcode)
        if kind in _ARRIVES:
            clock.there[at, iteration] = clock.now + _MEMORY
        elif kind is Landmark.PRODUCT:
            clock.there[at, iteration] = clock.multiplied(self._cycles(instruction.opcode))
        clock.now += max(self._stalls[at], 1)

    def _awaited(self, at: int) -> tuple[Issued, ...]:
        if at in self.about.counted:
            return self.about.counted[at]
        found = self.waits[at].loads if at in self.waits else self.about.awaited.get(at, ())
        return tuple(Issued(each, int(each >= at)) for each in found)

    def _cycles(self, opcode: str) -> float:
        """Return how long tensor cores are busy when each warpgroup of an SM makes a product."""
        found = _PRODUCT.search(opcode)
        groups = max(self.warps / 4, 1)
        return groups * int(found[1]) * int(found[2]) * int(found[3]) / _PER_CYCLE if found else 0

    @cached_property
    def _stalls(self) -> list[int]:
        return [int(each) for each in self.flow.code.controls.stalls]


@dataclass(slots=True)
class _Clock:
    """The simulated time, when each result will be there, and when tensor cores are free."""

    there: dict[tuple[int, int], float] = field(default_factory=dict)  # by (instruction, iteration)
    now: float = 0.0
    busy: float = 0.0

    def wait(self, issued: Iterable[tuple[int, int]]) -> None:
        self.now = max([self.now, *(self.there.get(each, 0.0) for each in issued)])

    def multiplied(self, cycles: float) -> float:
        self.busy = max(self.busy, self.now) + cycles
        return self.busy


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
    _cycles: dict[int | None, float] = field(default_factory=dict)

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
        if loop not in self._cycles:
            self._cycles[loop] = self.pace.iteration_cycles(loop)
        return len(self._in(kept, loop)) * RECORD_CYCLES / self._cycles[loop]

    def _loop(self, place: ProbeRegion) -> int | None:
        block = self.places.regions.block(place.start)
        return None if block is None else self.places.regions.loop(block)

    def _worth(self, place: ProbeRegion) -> tuple[int, int, int]:
        """Return a key that is greatest for the finest level, then for the fewest instructions."""
        inside = self.places.regions.inside(place.start, place.ends, place.within)
        return place.level, -len(inside), place.start.index
