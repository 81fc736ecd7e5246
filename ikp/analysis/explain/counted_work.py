"""``CountedWork``: the instructions that a launch issued, by range and unit, and what they need.

Each range's instruction mix, which the machine code says, times how often it was recorded. What is
executed under a condition counts half. What loops execute whose trips no record counts is not in
the sums: ``uncounted`` has one iteration of each such loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, wraps
from math import prod
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.explain.peaks import CYCLES, ISSUE, Peak, peak_of
from ikp.analysis.explain.prepared import Prepared, once
from ikp.analysis.explain.verdict import Finding
from ikp.core.code_facts import AccessFacts, RangeFacts
from ikp.core.excess_facts import ExtraWork
from ikp.core.sorting import sum_by

LANES: Final = 32
"""Lanes of a warp."""
_MAYBE: Final = 0.5
"""How often an instruction is taken to be executed that a condition guards."""
GUESS: Final = 8.0
"""Trips of a loop whose trips are not known, where instructions are compared with each other."""
SECTOR: Final = 32
"""Bytes of a sector, in which L1, L2 and memory move data."""
READS_BACK: Final = "s"
"""The letter of loads of what the same block has stored."""
_ROW: Final = 128
"""Bytes that L1 and shared memory give in a cycle."""
_SECTORS: Final = 4
"""Sectors in such a row."""
_NOMINAL: Final = 1.7
"""Cycles in a nanosecond, where the clock does not count cycles."""


@dataclass(frozen=True)
class RangeWork:
    """A range's work in the whole launch: how often it was executed, and its code's facts."""

    name: str
    executions: float  # by a warp
    facts: RangeFacts

    @cached_property
    def issued(self) -> dict[str, float]:
        """Instructions by unit, of all warps."""
        return {unit: self.executions * count for unit, count in self.once.items()}

    @property
    def once(self) -> dict[str, float]:
        """Instructions by unit, of one execution by a warp."""
        return {unit: once + _MAYBE * maybe for unit, (once, maybe, _) in self.facts.mix.items()}

    @property
    def uncounted(self) -> dict[str, float]:
        """Instructions by unit in loops whose trips are not known: of one iteration each."""
        return {unit: looped for unit, (_, _, looped) in self.facts.mix.items() if looped}

    def accesses(self) -> Iterator[tuple[AccessFacts, float]]:
        """Yield accesses and how many requests of warps they made."""
        for one in self.facts.accesses:
            yield one, one.count * self.executions


Access: TypeAlias = tuple[RangeWork, AccessFacts, float]
"""An access: its range, its code's facts, and how many requests of warps it made."""


@dataclass(frozen=True)
class CountedWork:
    """The work of a launch, and the cycles that its units need for it."""

    ranges: tuple[RangeWork, ...]
    peak: Peak
    cycles_per_ns: float
    kernel: str = ""  # the range of all code that is in no other
    blocks: int = 0

    @cached_property
    def issued(self) -> dict[str, float]:
        """Instructions of all ranges, by unit."""
        return _summed(one.issued for one in self.ranges)

    @property
    def total(self) -> float:
        """All instructions."""
        return sum(self.issued.values())

    @cached_property
    def uncounted(self) -> dict[str, float]:
        """Instructions in loops whose trips are not known, by unit."""
        return _summed(one.uncounted for one in self.ranges)

    def ns(self, cycles: float) -> float:
        """Return how long all SMs together need for so many cycles of one SM."""
        return cycles / (self.peak.sms * self.cycles_per_ns)

    def cycles(self, unit: str) -> float:
        """Return the cycles of an SM that the instructions of a unit need."""
        return self.issued.get(unit, 0.0) * (
            self.peak.fp64 if unit == "fp64" else CYCLES.get(unit, ISSUE)
        )

    @property
    def sums(self) -> float:
        """How many sums of products all warps executed."""
        return sum(one.facts.sums * one.executions for one in self.ranges)

    def accesses(self, *units: str) -> list[Access]:
        """Return the accesses of units that begin with one of some words; without words, all."""
        return [
            (one, access, requests)
            for one in self.ranges
            for access, requests in one.accesses()
            if not units or access.unit.startswith(units)
        ]

    def global_accesses(self) -> list[Access]:
        """Return all accesses to global memory."""
        return [each for each in self.accesses() if ".global." in each[1].unit]


def requests_of(accesses: Iterable[Access]) -> float:
    """Return how many requests of warps some accesses made together."""
    return sum(requests for _, _, requests in accesses)


def count_of(some: Iterable[tuple[RangeWork, ExtraWork]]) -> float:
    """Return how many instructions of extra work all warps executed."""
    return sum(one.executions * each.count for one, each in some)


def _summed(mixes: Iterable[dict[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for mix in mixes:
        for unit, count in mix.items():
            found[unit] = found.get(unit, 0.0) + count
    return found


def is_atomic(access: AccessFacts) -> bool:
    """Whether an access is an atomic operation."""
    return access.unit.startswith("atomic")


def lane_bytes(unit: str) -> int:
    """Return the bytes of a lane in an access, by its unit."""
    return int(unit.rsplit(".", 1)[1])


def sectors(access: AccessFacts) -> float:
    """Return the sectors that a request brings; as if lanes were adjacent, where they are unknown.

    Those that the requests of one line share, they bring once: they follow each other. Requests
    that no thread takes part in bring nothing.
    """
    if is_masked_off(access):
        return 0.0
    if access.cost is not None:
        return access.cost if access.together is None else min(access.cost, access.together)
    return max(lane_bytes(access.unit) * LANES / SECTOR, 1.0)


def is_masked_off(access: AccessFacts) -> bool:
    """Whether an access's addresses are known, and no thread of some blocks takes part in it.

    Where most threads of whole blocks have an element in its line, other blocks do.
    """
    known = access.together is not None and not {*access.depends} & _UNSURE
    return known and access.cost is None and (access.own or 0.0) < _MOST


_MOST: Final = 0.5
_UNSURE: Final = frozenset("dp")
"""Letters of addresses by loaded data, and by parameters whose values are assumed."""


def request_cycles(access: AccessFacts, *, least: bool = False) -> float:
    """Return the cycles of L1 and shared memory that a request takes, at least one.

    Args:
        access: the access.
        least: with its lanes adjacent, and in banks of their own.
    """
    cost = access.least if least and access.least is not None else access.cost
    if cost is None:
        return max(lane_bytes(access.unit) * LANES / _ROW, 1.0)
    return max(cost if ".shared." in access.unit else cost / _SECTORS, 1.0)


def moved_bytes(accesses: Iterable[Access]) -> float:
    """Return the bytes of the sectors that some accesses' requests bring."""
    return sum(requests * sectors(access) * SECTOR for _, access, requests in accesses)


def l1_cycles(accesses: Iterable[Access], *, least: bool = False) -> float:
    """Return the cycles of L1 and shared memory that some accesses take, as ``request_cycles``."""
    return sum(request_cycles(access, least=least) * n for _, access, n in accesses)


def is_fixed(access: AccessFacts) -> bool:
    """Whether an access in a loop has the same known address in each iteration."""
    known = access.cost is not None and "d" not in access.depends
    return access.in_loop and known and "i" not in access.depends


@once
def counted_work(launch: Prepared) -> CountedWork | None:
    """Return the work of a launch; None where its code's mix, or its device, is not known."""
    facts, peak = launch.facts, peak_of(launch.launch.device)
    if facts is None or peak is None or not any(one.mix for one in facts.ranges.values()):
        return None
    executed = dict(zip(launch.names, _executed(launch).tolist(), strict=True))
    found = []
    for name, one in facts.ranges.items():
        executions = executed.get(name, 0.0)
        if name == facts.kernel and not executions:
            executions = float(launch.grid_warps)
        if one.mix and executions:
            found.append(RangeWork(name, executions, one))
    rate, blocks = _cycles_per_ns(launch), prod(launch.launch.grid)
    return CountedWork(tuple(found), peak, rate, facts.kernel, blocks) if found else None


def _cycles_per_ns(launch: Prepared) -> float:
    """Return the rate of the SMs' clock: a nominal one where records don't count cycles."""
    clock = launch.launch.clock
    counts = clock.kind == "cycles" and clock.ns_per_tick
    return 1 / clock.ns_per_tick if counts else _NOMINAL


def _executed(launch: Prepared) -> NDArray[np.float64]:
    """Return how many ranges of each region all blocks made, at least.

    A block that did far more than others counts for itself, and not for those without records:
    how many there are like it, a sample does not say, and a roof is a lower bound.
    """
    factor, each = _all_of_recorded(launch), launch.by_warp
    regions, blocks = len(launch.names), len(launch.block_ids)
    if factor <= 1 or blocks < _SEVERAL:
        return np.multiply(launch.counts, factor, dtype=np.float64)
    key = launch.block_of[each.slot] * regions + each.region
    counts = sum_by(key, each.count, regions * blocks).reshape(blocks, regions)
    some = np.count_nonzero(counts, axis=0)  # blocks that have the region: the last rows, in order
    middle = np.sort(counts, axis=0)[
        np.minimum(blocks - (some + 1) // 2, blocks - 1), np.arange(regions)
    ]
    usual = np.minimum(counts, np.where(some < _RARE * blocks, 0, _FAR * middle))
    found: NDArray[np.float64] = usual.sum(axis=0) * factor + (counts - usual).sum(axis=0)
    return found


_SEVERAL: Final = 32
"""Blocks with records from which on their median says what is usual."""
_FAR: Final = 8.0
"""Times the median from which on a block is none of the usual ones."""
_RARE: Final = 1 / 32
"""Part of the blocks below which those that record a region are none of the usual ones."""


def _all_of_recorded(launch: Prepared) -> float:
    """Return how many ranges all blocks made for each that was kept, as far as blocks are alike."""
    it = launch.launch
    blocks = prod(it.grid) / max(len(launch.block_ids), 1)
    return blocks * it.attempted / max(it.attempted - it.dropped, 1) if it.attempted else blocks


def if_counted(
    findings: Callable[[Prepared, CountedWork], Iterator[Finding]],
) -> Callable[[Prepared], Iterator[Finding]]:
    """Return a function of a launch alone, which finds nothing where its work is not counted."""

    @wraps(findings)
    def found(launch: Prepared) -> Iterator[Finding]:
        work = counted_work(launch)
        if work is not None:
            yield from findings(launch, work)

    return found
