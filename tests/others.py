"""Launches of which some blocks record, and all other warps leave when and where they ran."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from ikp.core import abi
from ikp.core.abi import Option
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.rows import renumber_rows, take_events
from ikp.core.segment import Selection
from ikp.core.trace import AnyTrace
from ikp.core.warps import take_warps
from tests.core.decoding.test_dense import densely
from tests.segments import LAUNCH, Device, Launch, Segment, Warp, nbytes

SEVENTH = Selection(block_step=7, others=True)


def headers_alone(launch: Launch, chosen: Selection) -> Launch:
    """Return the launch as it is where warps of blocks that are not chosen make no records."""
    warps: Mapping[tuple[int, int], Warp] = {
        (block, warp): work if chosen.rank(block) is not None else replace(work, records=())
        for (block, warp), work in launch.warps.items()
    }
    return replace(launch, warps=warps)


def every_block(launch: Launch, room: int, device: Device) -> SegmentSource:
    """Return a dense segment in which every warp of a launch has a slot."""
    segment = Segment(nbytes(launch.slots, room), device)
    segment.run(launch)
    return densely(segment, launch, room, launch.warps_per_block)


def chosen_blocks(launch: Launch, chosen: Selection, room: int, device: Device) -> SegmentSource:
    """Return a segment of the same launch, of which the chosen blocks alone have slots."""
    whole = every_block(headers_alone(launch, chosen), room, device)
    assert isinstance(whole.data, np.ndarray)
    blocks, warps = launch.slots // launch.warps_per_block, launch.warps_per_block
    mine = np.array([chosen.rank(block) is not None for block in range(blocks)])
    head, rest = np.split(whole.data.copy(), [abi.LAUNCH_HEADER_BYTES])
    heads, records = np.split(rest, [launch.slots * abi.DENSE_HEADER_BYTES])
    heads, records = heads.reshape(blocks, -1), records.reshape(blocks, -1)
    behind = np.where(mine[:, None], 0, heads).astype(np.uint8)
    options = Option.DENSE | Option.SELECTED | Option.OTHERS
    for name, word in (("options", options), ("together", warps)):
        head[LAUNCH[name] :][:4] = np.frombuffer(np.uint32(word).tobytes(), np.uint8)
    head[LAUNCH["warps"] :][:16] = chosen.words().view(np.uint8)
    parts = (head, heads[mine], records[mine], behind)
    return replace(
        whole,
        data=np.concatenate([part.reshape(-1) for part in parts]),
        selected=True,
        selection=chosen,
    )


def without_records(trace: AnyTrace, blocks: Collection[tuple[int, int]]) -> AnyTrace:
    """Return a trace of which some blocks, told by launch and number, left no records."""
    slots = trace.slots
    pairs = zip(slots.launch.tolist(), slots.block.tolist(), strict=True)
    gone = np.array([pair in blocks for pair in pairs], bool)
    left = take_events(trace, np.flatnonzero(~gone[trace.events.slot]))
    left = renumber_rows(left, slot=np.cumsum(~gone) - 1)
    others = take_warps(slots, gone)
    nothing = np.zeros(len(others), np.int64)
    others = replace(others, attempted=nothing, kept=nothing, role=nothing.astype(np.int32))
    return replace(left, slots=take_warps(slots, ~gone), others=others)
