"""Which tracks a trace gets, whatever the format."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given

from ikp.core.trace import Events, Trace, make_columns, no_slots
from ikp.core.warps import all_warps
from ikp.exporters.timeline import blocks
from ikp.exporters.timeline.tracks import Layout, lay_out
from tests.exporters.perfetto.examples import warps
from tests.strategies import traces, traces_with_others


def plain(layout: Layout) -> object:
    columns = [getattr(layout.blocks, name).tolist() for name in blocks.BlockRows.__slots__]
    counters = [(one.track, *(part.tolist() for part in one.steps)) for one in layout.counters]
    others = layout.tracks, layout.launches, layout.span, layout.next_uuid
    return columns, counters, others, layout.slot_track.tolist()


@given(traces())
def test_launches_are_placed_alone_as_together(trace: Trace) -> None:
    with patch.multiple(blocks, _AT_ONCE=1, _DENSE=1 << 12):
        alone = lay_out(trace)
    with patch.multiple(blocks, _DENSE=0):
        together = lay_out(trace)
    assert plain(alone) == plain(together)


@given(traces_with_others())
def test_blocks_without_records_take_the_lanes_that_they_have_with_slots(trace: Trace) -> None:
    slots, _ = all_warps(trace)
    events = make_columns(Events, **dict.fromkeys(Events.__slots__, ()))
    some = lay_out(replace(trace, events=events))
    every = lay_out(replace(trace, events=events, slots=slots, others=no_slots()))
    for name in ("launch", "block", "sm", "lane", "start", "end", "track"):
        assert np.array_equal(getattr(some.blocks, name), getattr(every.blocks, name)), name
    assert some.span == every.span
    steps = [[one.steps for one in layout.counters] for layout in (some, every)]
    np.testing.assert_equal(*steps)
    launch_block = {*zip(trace.slots.launch.tolist(), trace.slots.block.tolist(), strict=True)}
    pairs = zip(some.blocks.launch.tolist(), some.blocks.block.tolist(), strict=True)
    assert some.blocks.recorded.tolist() == [pair in launch_block for pair in pairs]
    rows = {name for name in (one.name for one in some.tracks) if name.startswith("SM ")}
    assert rows == {one.name for one in every.tracks if one.name.startswith("SM ")}


def test_launches_of_a_device_share_its_counters() -> None:
    """So they have one scale; those that run at once are added up."""
    blocks = [(0, 0, 10), (1, 5, 15), (0, 20, 30), (1, 20, 25)]
    trace = warps([[]] * 4, blocks=blocks)
    launch = replace(trace.launches[0], grid=(1, 1, 1))
    launches = (launch, launch, launch, replace(launch, device="another"))
    slots = replace(trace.slots, launch=np.arange(4, dtype=np.int32))
    layout = lay_out(replace(trace, launches=launches, slots=slots))
    tops = {one.uuid: one.name for one in layout.tracks}
    of = {one.uuid: tops[one.parent] for one in layout.tracks if one.parent}
    begin = int(trace.slots.start_ns.min())
    found = {
        (of[one.track], one.name): [
            (int(at) - begin, int(many)) for at, many in zip(*one.steps, strict=True)
        ]
        for one in layout.counters
    }
    mine, other = dict.fromkeys(of[one.track] for one in layout.counters)
    together = [(0, 1), (5, 2), (10, 1), (15, 0), (20, 1), (30, 0)]
    names = ("resident blocks", "active warps")
    assert [found[mine, name] for name in names] == [together, together]
    assert [found[other, name] for name in names] == [[(20, 1), (25, 0)]] * 2
    assert len(found) == 4


def test_it_tells_of_each_slot_twice() -> None:
    told: list[int] = []
    trace = warps([[(1, 2)], [(11, 12)]], blocks=[(0, 0, 10), (0, 10, 20)])
    lay_out(trace, progress=told.append)
    assert sum(told) == 2 * len(trace.slots)


@pytest.mark.parametrize(
    ("roles", "name"),
    [
        ((0, 0), "warp 0"),
        ((1, 1), "warp 0 producer"),
        ((1, 2), "warp 0"),
        ((2, 1), "warp 0"),
        ((0, 1), "warp 0"),
        ((1, 0), "warp 0"),
    ],
)
def test_a_row_of_warps_has_the_role_that_they_all_have(roles: tuple[int, int], name: str) -> None:
    one_after_the_other = [(0, 0, 10), (0, 10, 20)]
    trace = warps([[(1, 2)], [(11, 12)]], blocks=one_after_the_other)
    slots = replace(trace.slots, role=np.array(roles, np.int32))
    trace = replace(trace, slots=slots, roles=("", "producer", "consumer"))
    tracks = lay_out(trace).tracks
    assert [track.name for track in tracks if track.name.startswith("warp ")] == [name]
