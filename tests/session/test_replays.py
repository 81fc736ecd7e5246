"""Replays of a CUDA graph: the node that moves their records to a log, run lane by lane."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from ikp.core import abi
from ikp.core.abi import ClockKind, OverflowMode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.segment import Segment
from ikp.driver import replay_code
from ikp.driver.replay_code import (
    CHUNK_HEADER_BYTES,
    CONTROL,
    CONTROL_BYTES,
    LOG_HEADER_BYTES,
)
from ikp.driver.replay_kernel import warps
from ikp.session import copies
from ikp.session.copies import Replayed
from ikp.session.replays import CapturedGraph
from tests import segments as model
from tests.core.decoding.checks import assert_same
from tests.core.decoding.test_dense import densely
from tests.machines import ptx_warp
from tests.machines.ptx_machine import Machine
from tests.others import SEVENTH, chosen_blocks
from tests.session.test_readback import on_device, outcome

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.any_pins

LOG, CONTROL_AT, FIRST, APART = 1 << 33, 1 << 34, 1 << 35, 1 << 24
ROOM = 1 << 20


@dataclass
class Device:
    """A GPU's memory with a graph's segments, and the node at the graph's end."""

    sources: Sequence[SegmentSource]
    room: int = ROOM
    most: int = 100
    machine: Machine = field(default_factory=Machine)

    def __post_init__(self) -> None:
        memory = self.machine.memory
        self.log = memory.map(LOG, LOG_HEADER_BYTES + self.room)
        self.control = memory.map(CONTROL_AT, CONTROL_BYTES + 8 * len(self.sources))
        self.data = [
            memory.map(FIRST + APART * i, each.nbytes) for i, each in enumerate(self.sources)
        ]
        at = [FIRST + APART * i for i in range(len(self.sources))]
        self.control[CONTROL_BYTES:] = np.array(at, "<u8").view(np.uint8)
        self.set("graph", 1)
        self.switch(on=True)
        self.segments = [on_device(each) for each in self.sources]

    def set(self, name: str, value: int, width: int = 4) -> None:
        data = np.frombuffer(value.to_bytes(width, "little"), np.uint8)
        self.control[CONTROL[name] : CONTROL[name] + width] = data

    def switch(self, *, on: bool) -> None:
        self.set("log", LOG * on, 8)
        self.set("room", self.room, 8)
        self.set("replays", 0)
        self.set("most", self.most)

    def replay(self, sources: Sequence[SegmentSource | None], wide: int = 2, seed: int = 0) -> None:
        """Let the kernels record what the sources hold, and the last node run."""
        for data, source in zip(self.data, sources, strict=True):
            if source is not None:
                data[:] = source.data
        grid = (wide, len(self.sources), 1)
        ptx_warp.launch(self.machine, replay_code.code(), [CONTROL_AT], grid, seed)

    @property
    def replays(self) -> int:
        return int(self.control[CONTROL["replays"] :][:4].view("<u4")[0])

    def kept(self) -> tuple[list[tuple[Segment, Replayed]], int]:
        used = min(int(self.log[:8].view("<u8")[0]), self.room)
        buffers = [SimpleNamespace(segment=each) for each in self.segments]
        graph = CapturedGraph(1, None, cast("list[Any]", buffers), None)
        found = copies._parts(self.log[LOG_HEADER_BYTES:][:used])
        full = used == self.room
        return copies._complete(graph, found, min(self.replays, self.most), full=full)


def settled(source: SegmentSource, launch: model.Launch) -> SegmentSource:
    return replace(source, clock=launch.clock, overflow=launch.overflow)


def made(
    counts: Sequence[int],
    room: int = 9,
    clock: ClockKind = ClockKind.CYCLES,
    overflow: OverflowMode = OverflowMode.STOP,
    together: int = 0,
    grid_id: int = 77,
) -> SegmentSource:
    """Return what a launch records whose warps make so many records."""
    warps = {
        (block, 0): model.Warp([model.Record(10 * i, 10 * i + 5) for i in range(count)])
        for block, count in enumerate(counts)
    }
    launch = model.Launch(warps, (len(counts), 1, 1), (32, 1, 1), clock, overflow, grid_id)
    segment = model.Segment(model.nbytes(launch.slots, room, record_bytes=launch.record_bytes))
    segment.run(launch)
    source = densely(segment, launch, room, together) if together else segment.source()
    return settled(source, launch)


LAYOUTS: list[dict[str, Any]] = [
    {},
    {"overflow": OverflowMode.WRAP, "room": 8},
    {"overflow": OverflowMode.STREAM, "room": 8},
    {"clock": ClockKind.CYCLES64},
    {"together": 1},
    {"together": 4},
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_replay_is_kept_as_it_was(layout: dict[str, Any]) -> None:
    few = [1, 2, 0, 1] * 36  # beyond what a warp takes at a time
    first = [made([3, 0, 9, 12] * 9, **layout), made(few, **layout)]
    second = [made([5, 9, 1, 0] * 9, **layout), made(few[::-1], **layout)]
    device = Device(first)
    for seed, each in enumerate((first, second)):
        device.replay(each, seed=seed)
        for data, source in zip(device.data, first, strict=True):
            left = outcome(replace(source, data=data))
            assert not len(left.slots), "a warp that doesn't run in the next replay would seem to"
    launches, whole = device.kept()
    assert whole == 2 and [segment for segment, _ in launches] == 2 * device.segments
    for (segment, replayed), source in zip(launches, [*first, *second], strict=True):
        segment.number = 7  # of the captured launch, which no replay is
        named = replace(source, replay=replayed.where)
        assert_same(outcome(named), outcome(replayed.source(segment)))
    assert [
        outcome(replayed.source(segment)).launches[0].replay for segment, replayed in launches
    ] == [f"CUDA graph 1, replay {replay}, node {node}" for replay in (0, 1) for node in (0, 1)]


def test_no_warp_reads_what_the_last_one_resets() -> None:
    device = Device([made([2])], most=100)
    for seed in range(24):
        device.replay([made([2])], seed=seed)
    assert device.replays == 24
    assert [each.where for _, each in device.kept()[0]] == [
        f"CUDA graph 1, replay {number}, node 0" for number in range(24)
    ]


def test_headers_of_warps_without_a_slot_are_kept() -> None:
    work = [model.Record(10 * i, 10 * i + 5) for i in range(9)]
    warps = {(b, w): model.Warp(work[: b + w]) for b in range(9) for w in range(2)}
    launch = model.Launch(warps, (9, 1, 1), (64, 1, 1))
    source = settled(chosen_blocks(launch, SEVENTH, 9, model.Device()), launch)
    device = Device([source])
    device.replay([source])
    ((segment, replayed),), whole = device.kept()
    assert whole == 1
    named = replace(source, replay=replayed.where)
    assert_same(outcome(named), outcome(replayed.source(segment)))


def test_of_a_launch_whose_slots_are_too_small_the_header_is_kept() -> None:
    source = made([3, 4])
    source = replace(source, data=source.data.copy())
    head = source.data[: abi.LAUNCH_HEADER_BYTES].view(abi.LAUNCH_HEADER)
    head["slot_bytes"] = abi.SLOT_HEADER_BYTES
    device = Device([source])
    device.replay([source])
    used = int(device.log[:8].view("<u8")[0])
    assert used == CHUNK_HEADER_BYTES + abi.LAUNCH_HEADER_BYTES


@pytest.mark.parametrize(
    ("slots", "expected"),
    [([528] * 50, 5), ([528] * 2, 5), ([0] * 50, 5), ([16384] * 40, 25), ([1] * 2000, 1), ([7], 1)],
)
def test_a_node_has_as_many_warps_as_its_segments_need(slots: list[int], expected: int) -> None:
    assert warps(slots) == expected


def test_nothing_is_moved_while_no_log_is_set() -> None:
    source = made([3, 4])
    device = Device([source])
    device.switch(on=False)
    device.replay([source])
    assert not device.log.any() and device.replays == 0
    device.switch(on=True)
    device.replay([source])
    assert device.kept()[1] == 1


def test_replays_beyond_the_bound_are_counted() -> None:
    source = made([3, 4])
    device = Device([source], most=2)
    for _ in range(5):
        device.replay([source])
    assert device.replays == 5 and device.kept()[1] == 2


def test_a_replay_for_which_there_is_no_room_is_left_out_whole() -> None:
    source = made([3] * 70)
    device = Device([source], room=21_000)
    for _ in range(4):
        device.replay([source])
    launches, whole = device.kept()
    assert device.replays == 4 and whole == len(launches) == 2
    for segment, replayed in launches:
        named = replace(source, replay=replayed.where)
        assert_same(outcome(named), outcome(replayed.source(segment)))


@pytest.mark.parametrize("room", [900, 940, 1378, 1430, 1900])
def test_no_replay_lacks_a_node_for_want_of_room(room: int) -> None:
    both = [made([3, 4]), made([5, 6])]
    device = Device(both, room=room)
    for seed in range(3):
        device.replay(both, wide=1, seed=seed)
    launches, whole = device.kept()
    assert [segment for segment, _ in launches] == whole * device.segments
    assert whole == room // 928, "bytes of a replay"


def test_a_node_that_did_not_run_is_in_no_replay() -> None:
    both = [made([3, 4]), made([5, 6])]
    device = Device(both)
    device.replay(both)
    device.replay([both[0], None])
    assert [segment for segment, _ in device.kept()[0]] == [*device.segments, device.segments[0]]


def test_a_graph_is_switched_off_and_still_says_how_many_replays_there_were() -> None:
    control = torch.zeros(CONTROL_BYTES, dtype=torch.uint8)
    graph = CapturedGraph(1, torch.device("cpu"), [], control)
    log = cast("Any", SimpleNamespace(address=LOG, room=ROOM))
    graph.keep(log, 7)
    words = control.numpy().view("<u4")
    assert words[: CONTROL["counted"] // 4].tolist() == [0, LOG >> 32, ROOM, 0, 0, 7]
    words[CONTROL["replays"] // 4] = 5
    graph.keep(None)
    assert words[:2].tolist() == [0, 0] and graph.replays() == 5 and graph.log is None
    graph.keep(log, 7)
    assert graph.replays() == 0


@pytest.mark.compiled
@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100"])
def test_chips_have_its_instructions(arch: str, tmp_path: Path) -> None:
    from tests.backends.sass import assemble

    assert assemble(replay_code.code(), tmp_path, arch)


def test_another_process_finds_the_same_in_a_copy_of_a_log() -> None:
    """Its segments have no memory there, only sizes."""
    sources = [made([3, 0, 9, 12] * 9), made([1, 2, 3, 4])]
    device = Device(sources, most=2)
    for seed in range(3):
        device.replay(sources, seed=seed)
    used = int(device.log[:8].view("<u8")[0])
    graph = copies.CopiedGraph(1, device.segments, device.replays, {"a": "b"})
    data = device.log[LOG_HEADER_BYTES:][:used]
    copy = copies.LogCopy(data, [graph], 2, Counter(), full=False)
    there = pickle.loads(pickle.dumps(copy.bare()))  # noqa: S301 - our own
    (bare,) = there.graphs
    assert [each.nbytes for each in bare.segments] == [each.nbytes for each in device.segments]
    here, kept = copy.kept(), there.kept()
    assert len(kept.launches) == 4 and kept.lost == here.lost and len(kept.lost) == 1
    assert kept.figures == here.figures and kept.made == here.made
    for (one, first), (other, second) in zip(here.launches, kept.launches, strict=True):
        assert_same(outcome(first.source(one)), outcome(second.source(other)))
