"""``Prepared``: one launch as columns for findings: warps, blocks, groups, ranges, self times.

Times count from the launch's first start, in nanoseconds, but for those called Unix time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from math import prod
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from ikp.analysis._self_time import self_times, whole_slots
from ikp.analysis.arrivals import Messages, messages_to
from ikp.analysis.explain.activity import Activity, Known, of_region
from ikp.analysis.explain.lane_time import Blocks, LaneTime, lane_time
from ikp.analysis.explain.peaks import most_blocks, peak_of
from ikp.analysis.explain.warp_groups import Moments, WarpGroups, WarpRegions, at_once, group_warps
from ikp.core.abi import Kind
from ikp.core.code_facts import CodeFacts, read_facts
from ikp.core.sorting import sum_by
from ikp.core.trace import payload_values
from ikp.core.warps import Seen, all_warps, first_start, launch_alone, launch_bounds, seen_warps

if TYPE_CHECKING:
    from ikp.core.trace import Launch, Trace

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
_SMALL: Final = (np.int8, np.int16)
"""What numpy sorts in linear time."""
_FEW_REGIONS: Final = 16
"""With more names, the ranges of a few are looked up in an index by region: a pass over all ranges
for each look-up would take too long."""
_More = ParamSpec("_More")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Prepared:
    """The columns of a launch.

    ``trace`` holds this launch alone, its slots renumbered; ``index`` is its number in the whole
    trace. Warp columns have a row per slot, range columns one per range (instants are left out).
    ``blocks``, ``duration`` and ``lanes`` are of all warps that ran, also of those that by choice
    left no records.
    """

    trace: Trace
    index: int
    begin_ns: int  # Unix time of the first start
    start: Ints  # of each warp
    end: Ints
    sm: Ints
    row: Ints | None  # of each range: its row in ``trace.events``; None where all are ranges
    slot: NDArray[np.integer[Any]]
    region: NDArray[np.integer[Any]]
    opens: Moments
    closes: Moments
    own: Ints  # self time
    inside: Ints  # of each warp: the time in any range
    label_starts: Ints  # Unix time of the first start of each launch of this label, in order
    label_ends: Ints
    messages: Messages | None = None  # from other launches, where arrows lead here
    kept: dict[Any, Any] = field(default_factory=dict)  # what functions of a launch returned

    @property
    def launch(self) -> Launch:
        """The launch in its trace: grid, device, clock, how it was recorded."""
        return self.trace.launches[0]

    @property
    def grid_warps(self) -> int:
        """How many warps the whole grid has, with and without records."""
        return prod(self.launch.grid) * self.launch.warps_per_block

    @property
    def on_gpu(self) -> bool:
        """Whether SMs and times are those of a GPU: an interpreter has none."""
        return self.launch.clock.kind != "host"

    @cached_property
    def duration(self) -> int:
        """From the first warp's start to the last one's end, of all that ran."""
        return int(self.blocks.end.max(initial=0))

    @cached_property
    def warp_time(self) -> int:
        """The sum over warps that recorded of how long they ran."""
        return int((self.end - self.start).sum())

    @cached_property
    def lanes(self) -> LaneTime:
        """Its time over the CTA slots of SMs."""
        ran, of = self.blocks, self.launch
        room = most_blocks(of.device, of.warps_per_block) if self.on_gpu else None
        return lane_time(ran.sm, ran.start, ran.end, self.duration, room)

    @cached_property
    def names(self) -> list[str]:
        """The names of regions."""
        return [region.name for region in self.trace.regions]

    @cached_property
    def facts(self) -> CodeFacts | None:
        """The facts of the machine code that the trace holds; None without."""
        return read_facts(self.trace.provenance, self.launch.label)

    @cached_property
    def unrecorded(self) -> list[str]:
        """The ranges in the machine code that no warp recorded here."""
        recorded = {name for name, count in zip(self.names, self.counts, strict=True) if count}
        return [name for name in self.facts.ranges if name not in recorded] if self.facts else []

    @cached_property
    def known(self) -> list[Known]:
        """The activity of each region."""
        facts = self.facts.ranges if self.facts else {}
        kernels = frozenset((self.launch.label,))
        found = [of_region(name, facts.get(name), kernels) for name in self.names]
        total, own = self.took_by_region, self.own_by_region
        for i, each in enumerate(found):
            if each.activity is Activity.UNKNOWN and 2 * own[i] < total[i]:
                found[i] = Known(Activity.AROUND, "holds others")
        return found

    def took(self, rows: NDArray[np.intp]) -> Ints:
        """Return how long some ranges took."""
        found = np.empty(len(rows), np.int64)
        for some in at_once(len(rows)):
            found[some] = self.closes[rows[some]] - self.opens[rows[some]]
        return found

    @cached_property
    def by_warp(self) -> WarpRegions:
        """What each warp did in each region."""
        times = self.opens, self.closes, self.own
        return WarpRegions.of(self.slot, self.region, *times, len(self.names))

    @cached_property
    def counts(self) -> Ints:
        """How many ranges of each region there are."""
        return self._of_regions(self.by_warp.count)

    @cached_property
    def warps_by_region(self) -> Ints:
        """How many warps recorded each region."""
        return np.bincount(self.by_warp.region, minlength=len(self.names))

    @cached_property
    def own_by_region(self) -> Ints:
        """The self time of each region."""
        return self._of_regions(self.by_warp.own)

    @cached_property
    def took_by_region(self) -> Ints:
        """The time of each region, with what is in it."""
        return self._of_regions(self.by_warp.took)

    def share_in(self, regions: NDArray[np.intp] | Sequence[int]) -> float:
        """Return the part of the warps' time that is self time of some regions."""
        return float(self.own_by_region[regions].sum()) / max(self.warp_time, 1)

    def _of_regions(self, values: Ints) -> Ints:
        return sum_by(self.by_warp.region, values, len(self.names))

    def payload(self, rows: NDArray[np.intp] | slice) -> Floats:
        """Return the payloads of some ranges; NaN where there is none."""
        events = self.trace.events
        if self.row is not None:
            rows = self.row[rows]
        return payload_values(events.payload[rows], events.payload_type[rows])

    @cached_property
    def has_payloads(self) -> bool:
        """Whether any range has a payload."""
        return any(not np.isnan(self.payload(rows)).all() for rows in at_once(len(self.slot)))

    @cached_property
    def blocks(self) -> Blocks:
        """All blocks whose times are known."""
        others = self.trace.others
        start = others.start_ns - self.begin_ns
        end = np.maximum(others.end_ns - self.begin_ns, start)
        return Blocks.of(
            np.append(self.trace.slots.block, others.block),
            np.append(self.start, start),
            np.append(self.end, end),
            np.append(self.sm, others.sm),
        )

    @cached_property
    def recorded(self) -> Blocks:
        """The blocks that recorded."""
        return Blocks.of(self.trace.slots.block, self.start, self.end, self.sm)

    @property
    def block_of(self) -> Ints:
        """The block of each warp, as its place in :attr:`block_ids`."""
        return self.recorded.of_warp

    @property
    def block_ids(self) -> Ints:
        """The linear ids of the blocks that recorded."""
        return self.recorded.ids

    @property
    def block_start(self) -> Ints:
        """When each block that recorded began."""
        return self.recorded.start

    @property
    def block_end(self) -> Ints:
        """When each block that recorded ended."""
        return self.recorded.end

    @cached_property
    def seen(self) -> Seen:
        """The number of blocks and warps whose times are known."""
        return seen_warps(self.trace.launches, all_warps(self.trace)[0])[0]

    @property
    def every_block(self) -> bool:
        """Whether the times of all blocks of the grid are known: else CTA slots seem empty."""
        return self.seen.every_block

    @cached_property
    def scale(self) -> float | None:
        """How many blocks ran for each that recorded; None where records of warps are missing.

        A warp-specialised kernel of Gluon has further warps in each block than it is launched with.
        """
        launch, recorded = self.launch, len(self.block_ids)
        launched = np.count_nonzero(self.trace.slots.warp < launch.warps_per_block)
        whole = launched >= recorded * launch.warps_per_block and self.every_block
        if not whole or launch.dropped or launch.unfinished:
            return None
        return len(self.blocks.ids) / recorded

    @cached_property
    def sees_neighbours(self) -> bool:
        """Whether blocks that were on an SM at once all recorded.

        Each block of a grid with no more blocks than SMs has an SM of its own.
        """
        if not self.every_block:
            peak = peak_of(self.launch.device)
            return peak is not None and self.seen.of_blocks <= peak.sms
        return not len(self.trace.others) or int(np.median(self.lanes.lanes)) <= 1

    @cached_property
    def groups(self) -> WarpGroups:
        """Which warps do the same."""
        return group_warps(self.trace, self.by_warp, self.block_of)

    @cached_property
    def next_opens(self) -> Ints:
        """The start of the next range of the warp after each range; the warp's end for none."""
        result = np.empty(len(self.slot), np.int64)
        for rows in whole_slots(self.slot):
            result[rows] = self.next_opens_of(rows)
        return result

    def next_opens_of(self, rows: slice | NDArray[np.intp]) -> Ints:
        """Return :attr:`next_opens` of all ranges of some warps."""
        slot, opens = self.slot[rows], self.opens[rows]
        key = self.on_one_axis(slot, opens)
        order = np.argsort(key, kind="stable")
        at = np.searchsorted(key[order], self.on_one_axis(slot, self.closes[rows]))
        found = order[np.minimum(at, len(order) - 1)]
        hit = (at < len(order)) & (slot[found] == slot)
        result: Ints = np.where(hit, opens[found], self.end[slot])
        return result

    @property
    def fits_one_axis(self) -> bool:
        """Whether the moments of all warps, or SMs, fit on one axis of 64 bits."""
        numbers = (len(self.start), len(self.blocks.ids), int(self.blocks.sm.max(initial=0)))
        rows = max(numbers) + 1
        return (self.duration + 2) * (rows + 1) < 1 << 62

    def on_one_axis(self, slot: NDArray[np.integer[Any]], time: Ints) -> Ints:
        """Return moments of warps on one axis, a warp behind the other: what one sort orders."""
        span = max(self.duration, 1) + 1
        found = slot.astype(np.int64)
        found *= span
        found += np.clip(time, 0, span - 1)
        return found

    def in_order(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return some ranges warp by warp, in the order in which they begin."""
        slot, opens = self.slot[rows], self.opens[rows]
        later = opens[1:] >= opens[:-1]
        later &= slot[1:] == slot[:-1]
        later |= slot[1:] > slot[:-1]
        return rows if later.all() else rows[np.lexsort((opens, slot))]

    def regions(self, wanted: Iterable[Activity]) -> NDArray[np.intp]:
        """Return the regions that occur and have one of some activities."""
        some = [number for each in set(wanted) for number in self._by_activity.get(each, ())]
        return np.sort(np.array(some, np.intp))

    @cached_property
    def _by_activity(self) -> dict[Activity, list[int]]:
        """The regions that occur, by activity."""
        found: dict[Activity, list[int]] = {}
        for number in np.flatnonzero(self.counts).tolist():
            found.setdefault(self.known[number].activity, []).append(number)
        return found

    def of_region(self, regions: NDArray[np.intp] | list[int]) -> NDArray[np.intp]:
        """Return the ranges of some regions."""
        if len(regions) == 1:
            return self._of_one(regions[0])
        if len(regions) < _FEW_REGIONS < len(self.names):
            none = np.zeros(0, np.intp)
            return np.sort(np.concatenate([none, *map(self._of_one, regions)]))
        wanted = np.zeros(len(self.names), bool)
        wanted[regions] = True
        return np.flatnonzero(wanted[self.region])

    def _of_one(self, region: int) -> NDArray[np.intp]:
        """Return the ranges of a region, which many findings ask for."""
        if len(self.names) > _FEW_REGIONS:
            order, ends = self._by_region
            return order[ends[region] - self.counts[region] : ends[region]]
        return _of_one(self, int(region))

    def of_slot(self, slot: int) -> NDArray[np.intp]:
        """Return the ranges of a warp."""
        bounds = np.array([slot, slot + 1], self.slot.dtype)  # of another type: numpy casts all
        return np.arange(*np.searchsorted(self.slot, bounds))

    @cached_property
    def _by_region(self) -> tuple[NDArray[np.intp], Ints]:
        """The ranges region by region, and where those of each region end."""
        small = next((each for each in _SMALL if len(self.names) <= np.iinfo(each).max), np.int64)
        order = np.argsort(self.region.astype(small), kind="stable")
        order.flags.writeable = False  # parts of it are handed out
        return order, np.cumsum(self.counts)

    def example(self, ranges: NDArray[np.intp]) -> int | None:
        """Return one of some ranges as an example: the one at the 90th percentile of duration."""
        if not len(ranges):
            return None
        took, rank = self.took(ranges), 9 * (len(ranges) - 1) // 10
        value = np.partition(took, rank)[rank]
        same = np.flatnonzero(took == value)
        return int(ranges[same[rank - np.count_nonzero(took < value)]])

    def window(self, ranges: NDArray[np.intp]) -> tuple[int, int] | None:
        """Return a window of time around the example of some ranges, three times as long."""
        one = self.example(ranges)
        if one is None:
            return None
        margin = max(int(self.closes[one] - self.opens[one]), 1)
        low = max(int(self.opens[one]) - margin, 0)
        return low, min(int(self.closes[one]) + margin, max(self.duration, low))

    def warps(self, ranges: NDArray[np.intp], most: int = 3) -> tuple[tuple[int, int], ...]:
        """Return (block, warp) of the example of some ranges, then of the longest, each once."""
        one = self.example(ranges)
        if one is None:
            return ()
        long, count = self.took(ranges), min(8 * most, len(ranges))
        longest = ranges[long >= -np.partition(-long, count - 1)[count - 1]]
        order = longest[np.argsort(-self.took(longest), kind="stable")[:count]]
        slots = dict.fromkeys([int(self.slot[one]), *self.slot[order].tolist()])
        return tuple(self.warp(slot) for slot in list(slots)[:most])

    def warp(self, slot: int) -> tuple[int, int]:
        """Return the block and the warp of a slot."""
        return int(self.trace.slots.block[slot]), int(self.trace.slots.warp[slot])


def once(
    function: Callable[Concatenate[Prepared, _More], _Result],
) -> Callable[Concatenate[Prepared, _More], _Result]:
    """Cache a function's results on its launch: findings call it with the same arguments."""

    @wraps(function)
    def kept(launch: Prepared, /, *more: _More.args, **named: _More.kwargs) -> _Result:
        key = function, *more, *named.items()
        if key not in launch.kept:
            launch.kept[key] = function(launch, *more, **named)
        found: _Result = launch.kept[key]
        return found

    return kept


@once
def _of_one(launch: Prepared, region: int) -> NDArray[np.intp]:
    found = np.flatnonzero(launch.region == region)
    found.flags.writeable = False  # handed out more than once
    return found


def prepare(trace: Trace, index: int) -> Prepared:
    """Return the columns of one launch, which has slots."""
    single = launch_alone(trace, index)
    slots, events = single.slots, single.events
    begin = first_start(single)
    own, inside = self_times(single)
    is_range = events.kind == Kind.RANGE
    rows = None if is_range.all() else np.flatnonzero(is_range)

    def of_ranges(column: NDArray[Any]) -> NDArray[Any]:
        return column if rows is None else column[rows]

    start = slots.start_ns - begin
    starts, ends = _of_label(trace, trace.launches[index].label)
    return Prepared(
        trace=single,
        index=index,
        begin_ns=begin,
        start=start,
        end=np.maximum(slots.end_ns - begin, start),
        sm=slots.sm.astype(np.int64),
        row=rows,
        slot=of_ranges(events.slot),
        region=of_ranges(events.region),
        opens=Moments(events.start_ns, rows, begin),
        closes=Moments(events.end_ns, rows, begin),
        own=of_ranges(own),
        inside=inside,
        label_starts=starts,
        label_ends=ends,
        messages=messages_to(trace, index, begin),
    )


def _of_label(trace: Trace, label: str) -> tuple[Ints, Ints]:
    """Return when the launches of a label began and ended, in the order of their starts."""
    first, last = launch_bounds(trace)
    mine = np.array([one.label == label for one in trace.launches], bool) & (last >= first)
    order = np.argsort(first[mine], kind="stable")
    return first[mine][order], last[mine][order]
