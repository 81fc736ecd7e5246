"""How much of a device a launch used: warps that SMs held, FLOPs and products of tensor cores,
bytes.

Occupancy (``Room``): how many warps an SM held, how many it has room for, and what limits them.

FLOPs and bytes are from the machine code, over the launch's time. A region's operations are those
of one record, times its records. They are those of the launch only if all warps recorded, nothing
was dropped, and each product of the kernel is in a range that says its operations: then they are
exact.

A product (MMA) is under way (``Products``) from its range's start to the end of the warp's next
range that waits for products. Without such a wait, its own range is taken to hold it. ``Coverage``
is the union of intervals on each SM.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.counted_work import LANES, counted_work
from ikp.analysis.explain.peaks import MOST_BLOCKS, most_blocks, peak_of
from ikp.analysis.explain.prepared import Bools, Prepared, once
from ikp.analysis.explain.roofs import roofs
from ikp.analysis.explain.verdict import Hardware, RegionUse
from ikp.analysis.explain.warp_groups import at_once

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Coverage:
    """The moments of each SM that any of some intervals covers.

    SMs lie one behind the other on one axis, ``span`` apart, so that one search serves all.
    """

    span: int
    opens: Ints  # of the pieces of the union, ascending, apart from each other
    closes: Ints  # of nothing, then of each piece
    shift: Ints  # from a moment in it to how much is covered before that moment

    @classmethod
    def of(
        cls, launch: Prepared, sm: Ints, ranges: NDArray[np.intp], until: Ints | None = None
    ) -> Coverage:
        """Return the union of ranges' times.

        Args:
            launch: the launch.
            sm: of each warp, small numbers.
            ranges: which.
            until: when each ends, if not where its range does.
        """
        step = _step(launch)
        low, high = np.empty(len(ranges), np.int64), np.empty(len(ranges), np.int64)
        for some in at_once(len(ranges)):
            rows = ranges[some]
            base = sm[launch.slot[rows]] * step
            closes = launch.closes[rows] if until is None else until[some]
            low[some] = base + np.clip(launch.opens[rows], 0, step - 1)
            high[some] = base + np.clip(closes, 0, step - 1)
        return cls.of_intervals(low, high, step)

    @classmethod
    def of_intervals(cls, low: Ints, high: Ints, step: int) -> Coverage:
        """Return the union of intervals on one axis, ``step`` for each SM; both are overwritten."""
        np.maximum(low, high, out=high)
        low.sort(kind="stable")  # each warp's intervals ascend: such runs are merged, not sorted
        high.sort(kind="stable")
        # What is over before a moment has begun before it: as many as have begun are over.
        new = np.ones(len(low) + 1, bool)  # whether a piece begins, or all before it are over
        np.greater(low[1:], high[:-1], out=new[1:-1])
        opens, closes, shift = low[new[:-1]], *np.zeros((2, np.count_nonzero(new)), np.int64)
        if len(low):
            closes[1:] = high[new[1:]]
            np.subtract(closes[1:], opens, out=shift[1:])
            np.cumsum(shift, out=shift)
            shift -= closes
        return cls(step, opens, closes, shift)

    def total(self) -> int:
        """Return how much is covered, over all SMs."""
        return int(self.closes[-1] + self.shift[-1])

    def inside(self, sm: Ints, opens: Ints, closes: Ints) -> Ints:
        """Return how much of each of some intervals is covered."""
        top = self.span - 1
        low = np.clip(opens, 0, top) + sm * self.span
        high = np.clip(np.maximum(closes, opens), 0, top) + sm * self.span
        return self._until(high) - self._until(low)

    def _until(self, time: Ints) -> Ints:
        """Return how much is covered before each moment."""
        piece = np.searchsorted(self.opens, time, "right")
        found = np.minimum(time, self.closes[piece])
        found += self.shift[piece]
        return found


def _step(launch: Prepared) -> int:
    """Return how far the SMs are apart on the axis."""
    return max(launch.duration, 1) + 1


@dataclass(frozen=True, slots=True)
class Products:
    """The moments with a product under way, by SM, and which warps make any."""

    covered: Coverage
    sm: Ints  # of each warp, as small numbers
    multiplies: Bools  # of each warp
    count: int  # ranges that issue products

    def busy_share(self, launch: Prepared) -> float:
        """Return the share of the time that SMs held a block, in which one was under way."""
        step = _step(launch)
        base = self.sm * step
        held = Coverage.of_intervals(
            base + np.clip(launch.start, 0, step - 1), base + np.clip(launch.end, 0, step - 1), step
        )
        return self.covered.total() / max(held.total(), 1)


@once
def products(launch: Prepared) -> Products | None:
    """Return the times with a product under way; None where no range is known to make any.

    None also where an SM held blocks that left no records beside those that recorded.
    """
    if not launch.sees_neighbours:
        return None
    multiply, wait = launch.regions([Activity.MMA]), launch.regions([Activity.WAIT_MMA])
    issues, waits = launch.of_region(multiply), launch.of_region(wait)
    if not len(issues) and not len(waits):
        return None
    sm = np.unique(launch.sm, return_inverse=True)[1].astype(np.int64)
    did, multiplies = launch.by_warp, np.zeros(len(launch.start), bool)
    multiplies[did.slot[np.isin(did.region, [*multiply, *wait])]] = True
    ranges, until = issues, None
    if len(waits):
        until, others = _waited(launch, issues, waits)
        ranges = np.concatenate([issues, others])
        until = np.concatenate([until, launch.closes[others]])
    covered = Coverage.of(launch, sm, ranges, until)
    return Products(covered, sm, multiplies, len(issues) or len(waits))


def _waited(
    launch: Prepared, issues: NDArray[np.intp], waits: NDArray[np.intp]
) -> tuple[Ints, NDArray[np.intp]]:
    """Return when each product is over, and the waits that are no product's.

    It is over with the first wait of its warp that begins after it, or else with its own range.
    """
    waits = launch.in_order(waits)
    key = launch.on_one_axis(launch.slot[waits], launch.opens[waits])
    result, alone = np.empty(len(issues), np.int64), np.ones(len(waits), bool)
    for some in at_once(len(issues)):
        rows = issues[some]
        slot, closes = launch.slot[rows], launch.closes[rows]
        at = np.searchsorted(key, launch.on_one_axis(slot, launch.opens[rows]))
        found = waits[np.minimum(at, len(waits) - 1)]
        hit = (at < len(waits)) & (launch.slot[found] == slot)
        result[some] = np.where(hit, np.maximum(launch.closes[found], closes), closes)
        alone[at[hit]] = False
    return result, waits[alone]


_PARTS: Final = 4
_IN_A_PART: Final = 16384
"""Registers of each part of an SM: a warp's are all in one (all chips since sm_70)."""
_PORTION: Final = 8
_SHARED: Final = 228 << 10
"""Bytes of an SM (sm_90, sm_100): other chips have less."""
_RESERVED: Final = 1 << 10
"""Bytes of each block that the system takes."""


@dataclass(frozen=True, slots=True)
class Room:
    """Warps on an SM at once, and their limit; None where unknown."""

    warps: float | None  # as they were, or as registers allow where not all blocks recorded
    possible: int | None  # by the device alone
    limited_by: (
        str | None
    )  # "registers" | "shared memory" | "CTA slots" | "warps" | "the grid" | "recording"
    registers: int | None  # of the kernel; of the copy with records, where its own are not known
    waves: int | None = None  # of blocks that an SM has one after another, as they were
    fewest: int | None = None  # the same, with as many at once as the device has room for
    counted: bool = False  # whether all blocks are known, so that ``warps`` and ``waves`` were seen
    plain: int | None = None  # warps that there is room for without recording, where that is more


def room_of(launch: Prepared) -> Room:
    """Return the occupancy of the median SM."""
    peak = peak_of(launch.launch.device)
    each = launch.launch.warps_per_block
    ran = launch.facts.registers if launch.facts else None
    registers = (launch.facts.plain_registers or ran) if launch.facts else None
    held = _held(launch)
    if peak is None:
        counted = None if held is None else held * each
        return Room(counted, None, None, registers, counted=held is not None)
    by_warps = peak.warps // each
    by_registers = _by_registers(ran, each) if ran else None
    by_grid = -(-int(np.prod(launch.launch.grid)) // peak.sms)
    blocks = held if held is not None else min(by_registers or by_warps, by_warps, by_grid)
    known = held is not None or by_registers is not None
    if not known:
        return Room(None, by_warps * each, None, registers)
    limit = _limit(blocks, by_warps, by_registers, by_grid)
    if limit == "shared memory" and launch.facts is not None and not shared_of_block(launch):
        limit = "the grid"  # the median SM has one block less than others
    plain = None
    if limit == "registers" and registers:
        room = min(_by_registers(registers, each), by_warps, by_grid, _by_shared(launch))
        plain = room * each if room > blocks else None
        limit = "recording" if plain else limit
    waves, fewest = (-(-by_grid // max(at_once, 1)) for at_once in (blocks, by_warps))
    return Room(
        blocks * each, by_warps * each, limit, registers, waves, fewest, held is not None, plain
    )


def room_for_blocks(launch: Prepared) -> int:
    """Return how many blocks an SM has room for, by its warps, registers and shared memory."""
    return max(min(blocks_without_shared(launch), _by_shared(launch)), 1)


def blocks_without_shared(launch: Prepared) -> int:
    """Return how many blocks an SM has room for, by its warps and registers alone."""
    facts, each = launch.facts, launch.launch.warps_per_block
    registers = (facts.plain_registers or facts.registers) if facts else None
    most = most_blocks(launch.launch.device, each) or 1
    some = [most, *([_by_registers(registers, each)] if registers else [])]
    return max(min(some), 1)


def _held(launch: Prepared) -> int | None:
    """Return how many blocks the median SM held at once; None where not all recorded."""
    if not launch.every_block:
        return None
    return int(np.median(launch.lanes.lanes))


def _by_registers(registers: int, warps: int) -> int:
    return max(warps_by_registers(registers, warps) // warps, 1)


def warps_by_registers(registers: int, warps: int) -> int:
    """Return how many warps an SM has registers for, in blocks of so many.

    Args:
        registers: of a thread.
        warps: of a block.
    """
    each = -(-registers // _PORTION) * _PORTION * LANES
    return _IN_A_PART // each * _PARTS // warps * warps


def _by_shared(launch: Prepared) -> int:
    """Return how many blocks shared memory has room for, at most."""
    shared = shared_of_block(launch)
    return _SHARED // (shared + _RESERVED) if shared else MOST_BLOCKS


def shared_of_block(launch: Prepared) -> int:
    """Return the bytes of shared memory that a block has, by its launch and by its code."""
    facts = launch.facts
    if facts is None:
        return 0
    return (facts.shared or 0) + max((facts.static_shared or 0) - _RESERVED, 0)


def _limit(blocks: int, by_warps: int, by_registers: int | None, by_grid: int) -> str | None:
    """Return what limits the number of blocks on an SM; None if unknown."""
    if blocks >= by_grid:
        return "the grid"
    if blocks >= by_warps:
        return "warps"
    if by_registers is None:
        return None
    if blocks >= by_registers:
        return "registers"
    return "CTA slots" if blocks >= MOST_BLOCKS else "shared memory"


BUSY: Final = 0.5
"""Share of memory's bandwidth from which on warps may wait for bandwidth, and not for latency."""


def use_of_hardware(launch: Prepared) -> Hardware:
    """Return the use of tensor cores and memory, and the occupancy of SMs."""
    made, room, facts = products(launch), room_of(launch), launch.facts
    flop, size = total_flop(launch), _total_bytes(launch)
    tflops = flop / launch.duration / 1e3 if flop and launch.duration else None
    peak = peak_tflops(launch)
    return Hardware(
        flop=flop,
        tflops=tflops,
        of_peak=tflops / peak if tflops is not None and peak else None,
        tensor_busy_share=made.busy_share(launch) if made else None,
        copy_overlap_share=copy_overlap(launch),
        bytes=size,
        gb_per_s=size / launch.duration if size and launch.duration else None,
        registers=room.registers,
        registers_recorded=_other_registers(launch),
        shared_bytes=launch.facts.shared if launch.facts else None,
        limited_by=room.limited_by if room.counted else None,
        warps_at_once=room.warps if room.counted else None,
        warps_possible=room.possible,
        warps_at_once_plain=room.plain,
        local_bytes=facts.local_bytes if facts else None,
        local_accesses=facts.spills if facts else None,
        static_shared_bytes=facts.static_shared if facts else None,
        register_limit=facts.register_limit if facts else None,
    )


def _other_registers(launch: Prepared) -> int | None:
    """Return the registers of the instrumented copy; None where the plain kernel has as many."""
    facts = launch.facts
    if facts is None or facts.plain_registers in (None, facts.registers):
        return None
    return facts.registers


def total_flop(launch: Prepared) -> int | None:
    """Return the operations of all products; None where some are not in the count.

    Blocks that left no records are taken to make as many as those that did.
    """
    facts = launch.facts
    if facts is None or not facts.all_products or launch.scale is None:
        return None
    if any(facts.ranges[name].flop for name in launch.unrecorded):  # by warps that did not record
        return None
    counts: list[int] = launch.counts.tolist()
    recorded = sum(
        count * (facts.ranges[name].flop or 0)
        for name, count in zip(launch.names, counts, strict=True)
        if name in facts.ranges
    )
    return round(recorded * launch.scale)


def with_rates(launch: Prepared, uses: tuple[RegionUse, ...]) -> Iterator[RegionUse]:
    """Yield uses of regions with the rate of their operations, where these are known.

    Of all SMs together, in the time that any warp of an SM was in the region.
    """
    facts, peak = launch.facts, peak_tflops(launch)
    sm, sms = np.unique(launch.sm, return_inverse=True)[1].astype(np.int64), len(launch.lanes.sms)
    known = launch.scale is not None and launch.sees_neighbours
    for use in uses:
        flop = facts.ranges[use.name].flop if facts and use.name in facts.ranges else None
        if not flop or not known:
            yield use
            continue
        rows = launch.of_region([i for i, name in enumerate(launch.names) if name == use.name])
        time = Coverage.of(launch, sm, rows).total()
        tflops = flop * len(rows) / max(time, 1) / 1e3 * sms
        yield replace(use, tflops=tflops, of_peak=tflops / peak if peak else None)


def peak_tflops(launch: Prepared) -> float | None:
    """Return what the device's tensor cores can do at the clock that the launch ran at."""
    peak, clock = peak_of(launch.launch.device), launch.launch.clock
    if peak is None or clock.kind != "cycles" or not clock.ns_per_tick:
        return None
    return peak.sms * peak.per_cycle / clock.ns_per_tick / 1e3


def asked_of_memory(launch: Prepared) -> float | None:
    """Return the bytes that ranges ask for over memory's peak in the launch; None if unknown.

    Where accesses are counted, those that no cache can serve; else caches may serve some of them.
    """
    if counted_work(launch) is not None:
        return next((one.share for one in roofs(launch) if one.name == "DRAM"), None)
    size, peak = _total_bytes(launch), peak_of(launch.launch.device)
    if not size or peak is None or not launch.duration:
        return None
    return size / launch.duration / peak.gb_per_s


def _total_bytes(launch: Prepared) -> int | None:
    """Return the bytes that ranges ask of memory; None where those of any region are unknown."""
    facts = launch.facts
    if facts is None or launch.scale is None:
        return None
    total = 0
    for name, count in zip(launch.names, launch.counts.tolist(), strict=True):
        if count and name in facts.ranges:
            size = facts.ranges[name].bytes
            if size is None:
                return None
            total += count * size
    return round(total * launch.scale) or None


def copy_overlap(launch: Prepared) -> float | None:
    """Return the share of the time of copies, and waits for them, with a product under way.

    None where products, or copies, are not known.
    """
    made = products(launch)
    if made is None:
        return None
    regions = launch.regions([Activity.COPY, Activity.WAIT_COPY])
    rows = launch.of_region(regions)
    whole = int(launch.took_by_region[regions].sum())
    if not whole:
        return None
    parts = (rows[some] for some in at_once(len(rows)))
    covered = (
        made.covered.inside(made.sm[launch.slot[one]], launch.opens[one], launch.closes[one]).sum()
        for one in parts
    )
    return sum(map(int, covered)) / whole
