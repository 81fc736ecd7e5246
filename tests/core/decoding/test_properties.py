"""Random kernels on random devices: what is decoded is what happened."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ikp.core import abi
from ikp.core.abi import ClockKind, OverflowMode
from ikp.core.decoding import _batch, _records
from ikp.core.decoding.decode import decode
from tests.core.decoding.checks import assert_holds, assert_same
from tests.segments import Device, Launch, Number, Record, Segment, Sm, Warp, nbytes

# So far apart in time, ticks cost float64 no nanosecond, and 32 bits come round often.
GAPS = st.one_of(st.integers(0, 50), st.integers(0, 5_000), st.integers(0, 2**31 - 10**6))
PAYLOADS: st.SearchStrategy[Number | None] = st.one_of(
    st.none(),
    st.integers(0, 2**32 - 1).map(np.uint32),
    st.integers(-(2**31), 2**31 - 1).map(np.int32),
    st.floats(width=32).map(np.float32),
)
REGIONS = st.one_of(st.integers(0, 5), st.integers(0, abi.REGION_MASK))


@dataclass(frozen=True)
class Node:
    """A range or instant in a kernel: waits ``before``, then holds its children, then ``after``."""

    before: int
    after: int
    region: int
    payload: Number | None
    children: Sequence[Node] | None  # None: an instant

    def records(self, now: int, out: list[Record]) -> int:
        """Append this node's records as they end; return the time after it."""
        start = now = now + self.before
        if self.children is None:
            out.append(Record(start, None, self.region, self.payload))
            return now
        for child in self.children:
            now = child.records(now, out)
        now += self.after
        if now - start < 2**31 - 1:  # longer than a turn of the clock: no decoder can know
            out.append(Record(start, now, self.region, self.payload))
        return now


INSTANTS = st.builds(Node, GAPS, st.just(0), REGIONS, PAYLOADS, st.none())
TREES = st.recursive(
    INSTANTS,
    lambda nodes: st.builds(Node, GAPS, GAPS, REGIONS, PAYLOADS, st.lists(nodes, max_size=4)),
    max_leaves=8,
)


@st.composite
def works(draw: st.DrawFn, sms: int, finishes: st.SearchStrategy[bool]) -> Warp:
    now = init = draw(st.integers(0, 10**6))
    records: list[Record] = []
    for node in draw(st.lists(TREES, max_size=5)):
        now = node.records(now, records)
    # The clock comes round unseen between the last end of a dropped range and the next record.
    ends = [init, *(record.last for record in records)]
    if any(later - earlier >= 2**31 - 1 for earlier, later in pairwise(ends)):
        records = []
    last = max([init, *(record.last for record in records)])
    finish = last + draw(st.integers(0, 10**6)) if draw(finishes) else None
    return Warp(records, init, finish, draw(st.integers(0, sms - 1)), draw(st.integers(0, 3)))


SM = st.builds(Sm, origin=st.integers(0, 2**55))


@st.composite
def launches(draw: st.DrawFn, clocks: st.SearchStrategy[ClockKind]) -> tuple[Device, Launch, int]:
    grid = draw(st.tuples(*[st.integers(1, 3)] * 3))
    block = draw(st.sampled_from([(32, 1, 1), (33, 1, 1), (1, 1, 1), (4, 4, 4), (128, 1, 1)]))
    shape = Launch({}, grid, block)
    slots = [(b, w) for b in range(math.prod(grid)) for w in range(shape.warps_per_block)]
    ran = draw(st.lists(st.sampled_from(slots), unique=True, max_size=6))
    sms = draw(st.lists(SM, min_size=1, max_size=3))
    finishes = draw(st.sampled_from([st.just(True), st.just(False), st.booleans()]))
    launch = Launch(
        {at: draw(works(len(sms), finishes)) for at in ran},
        grid,
        block,
        draw(clocks),
        draw(st.sampled_from(OverflowMode)),
        draw(st.integers(0, 2**32 - 1)),
    )
    return Device(dict(enumerate(sms))), launch, draw(st.integers(2, 20))


CLOCKS = st.sampled_from([ClockKind.CYCLES, ClockKind.GLOBALTIMER])


def fits(launch: Launch, capacity: int) -> bool:
    """Return whether each ring shows all that is kept in it, and when that was made.

    A full ring that a warp writes on shows when records were made only once the warp has finished.
    One that the host reads meanwhile is read from its warp's start on: of a warp that has not
    finished, its oldest record may be half overwritten, and the clock may have come round between
    the start and the oldest record of one that has.
    """
    if launch.overflow is OverflowMode.STOP:
        return True
    stream = launch.overflow is OverflowMode.STREAM
    for warp in launch.warps.values():
        kept = warp.records[-capacity:] if capacity else []
        if warp.finish is None and len(warp.records) > capacity - stream:
            return False
        if stream and kept and kept[0].last - warp.init >= 2**31 - 1:
            return False
    return True


@given(launches(CLOCKS))
def test_what_ran_comes_back(made: tuple[Device, Launch, int]) -> None:
    device, launch, records = made
    segment = Segment(nbytes(launch.slots, records), device)
    truth = segment.run(launch)
    trace = decode([segment.source()])
    if fits(launch, truth.capacity):
        assert_holds(trace, truth, within_ns=2)
    (found,) = trace.launches
    assert found.unfinished == sum(warp.finish is None for warp in launch.warps.values())
    absent = launch.slots - len(launch.warps)
    assert any("never reached init" in note for note in found.notes) == (absent > 0)


@given(launches(CLOCKS))
def test_the_proposed_size_holds_everything(made: tuple[Device, Launch, int]) -> None:
    device, launch, records = made
    sizes = [nbytes(launch.slots, records)]
    most = capacity = 0
    while sizes[-1]:
        segment = Segment(sizes[-1], device)
        truth = segment.run(launch)
        most, capacity = truth.most, truth.capacity
        sizes.append(decode([segment.source()]).launches[0].needed_bytes)
    assert most <= capacity
    assert sizes[:-1] == sorted(set(sizes[:-1])), "a proposal must be larger than what did not do"
    unfinished = any(warp.finish is None for warp in launch.warps.values())
    assert len(sizes) <= (8 if unfinished else 3)


@given(st.lists(launches(CLOCKS), max_size=4))
def test_launches_of_one_session_do_not_touch_each_other(
    made: list[tuple[Device, Launch, int]],
) -> None:
    sources, alone = [], []
    for device, launch, records in made:
        segment = Segment(nbytes(launch.slots, records), device)
        segment.run(launch)
        sources.append(segment.source())
        alone.append(decode([sources[-1]]))
    together = decode(sources)
    assert together.launches == tuple(trace.launches[0] for trace in alone)
    for table in ("slots", "events"):
        for column in getattr(together, table).__dataclass_fields__:
            if column in ("launch", "slot", "region", "role"):
                continue
            parts = [getattr(getattr(trace, table), column) for trace in alone]
            joined = getattr(getattr(together, table), column)
            assert joined.tolist() == [value for part in parts for value in part.tolist()]
    names = [[trace.regions[i] for i in trace.events.region] for trace in (together, *alone)]
    assert names[0] == [region for part in names[1:] for region in part]


@given(st.lists(launches(CLOCKS), max_size=3), st.integers(1, 40), st.integers(1, 8))
def test_where_chunks_and_batches_end_changes_nothing(
    made: list[tuple[Device, Launch, int]], chunk: int, batch: int
) -> None:
    sources = []
    for device, launch, records in made:
        segment = Segment(nbytes(launch.slots, records), device)
        segment.run(launch)
        sources.append(segment.source())
    whole = decode(sources)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_records, "CHUNK_RECORDS", chunk)
        patch.setattr(_batch, "_SLOTS", batch)
        assert_same(whole, decode(iter(sources)))
        patch.setattr(_batch, "_LAUNCHES", 1)
        assert_same(whole, decode(sources))


@settings(max_examples=20)
@given(launches(st.just(ClockKind.HOST)))
def test_the_interpreter_s_segments_come_back(made: tuple[Device, Launch, int]) -> None:
    _, launch, records = made
    launch = Launch(
        {(b, 0): warp for (b, w), warp in launch.warps.items() if w == 0},
        launch.grid,
        (1, 1, 1),
        ClockKind.HOST,
        launch.overflow,
        grid_id=0,
    )
    segment = Segment(nbytes(launch.slots, records), HOST)
    truth = segment.run(launch)
    trace = decode([segment.source()])
    if fits(launch, truth.capacity):
        assert_holds(trace, truth, within_ns=0)
    assert trace.launches[0].clock.kind == "host"


HOST = Device({sm: Sm(origin=987_654_321_000, hz=10**9) for sm in range(3)})
