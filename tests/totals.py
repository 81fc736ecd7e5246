"""The device of ``tests.segments`` with its warps summing up, and the truth about it."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ikp.core import abi
from ikp.core.abi import Kind, Option, PayloadType, SlotState
from ikp.core.decoding.decode import decode
from ikp.core.regions import region_id
from ikp.core.trace import of_class
from ikp.trace import Trace
from tests.segments import LAUNCH, Device, Launch, Record, Segment, Truth, Warp, nbytes

Totals = dict[tuple[Kind, int], tuple[int, int]]
"""How many and how many ticks, by kind and region id."""


class SummingSegment(Segment):
    """A segment to which ``finish`` writes one record per region, and nothing else does."""

    def run(self, launch: Launch) -> Truth:
        truth = super().run(launch)
        self.poke(LAUNCH["options"], Option.TOTALS)
        return truth

    def _run_warp(self, launch: Launch, work: Warp, at: int, capacity: int) -> None:
        super()._run_warp(
            launch, Warp((), work.init, work.finish, work.sm, work.role), at, capacity
        )
        if work.finish is None:
            return
        found = totals_of(self.device, work)
        for index, ((kind, region), (count, ticks)) in enumerate(sorted(found.items())):
            if index < capacity:
                tag = abi.tag(abi.TOTALS[kind], PayloadType.NONE, region)
                place = at + abi.SLOT_HEADER_BYTES + index * abi.RECORD_BYTES
                struct.pack_into("<IQI", self.data, place, tag, ticks, count)
        self._write_state(at, launch, work, SlotState.FINISHED, len(found))


def totals_of(device: Device, work: Warp) -> Totals:
    """Return what a warp has summed up when it finishes."""
    counts: Counter[tuple[Kind, int]] = Counter()
    ticks: Counter[tuple[Kind, int]] = Counter()
    for record in work.records:
        kind, _, region = record.tag
        counts[kind, region] += 1
        start, end = (device.ticks(work.sm, ns) for ns in (record.start, record.last))
        ticks[kind, region] += (end - start) % (1 << 32) if kind is Kind.RANGE else 0
    return {key: (count, ticks[key]) for key, count in counts.items()}


def recorded(
    warps: Mapping[tuple[int, int], Warp],
    names: Mapping[int, str] | None = None,
    *,
    room: int = 16,
    timeline: bool = False,
    label: str = "gemm",
    **launch: Any,
) -> Trace:
    """Return what warps recorded, as totals or as a timeline."""
    blocks, per_block = (1 + max(place[i] for place in warps) for i in (0, 1))
    made = Launch(warps, grid=(blocks, 1, 1), block=(32 * per_block, 1, 1), **launch)
    segment = (Segment if timeline else SummingSegment)(nbytes(made.slots, room))
    segment.run(made)
    return of_class(Trace, decode([segment.source(label)], names))


NAMES = {region_id(name): name for name in ("load", "dot", "tile")}
LOAD, DOT, TILE = NAMES


def gemm(steps: int = 64, *, timeline: bool = False) -> Trace:
    """Return what two blocks of two warps recorded, at 2 GHz and in 100 us each.

    Each step loads for 300 ns and multiplies for 900; three instants say ``tile``.
    """
    records = []
    for step in range(steps):
        start = 1000 + 1250 * step
        records += [Record(start, start + 300, LOAD), Record(start + 300, start + 1200, DOT)]
    records += [Record(99_000 + i, None, TILE) for i in range(3)]
    warps = {
        (block, warp): Warp(records, finish=100_000, sm=block)
        for block in range(2)
        for warp in range(2)
    }
    return recorded(warps, NAMES, room=2 * steps + 3, timeline=timeline)
