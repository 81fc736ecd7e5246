"""The trace that ``layout-1.bin`` and ``layout-2/rich.bin`` hold, as earlier writers wrote it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from ikp.core.abi import PayloadType
from ikp.core.args import arg_column
from ikp.core.trace import Trace
from tests.exporters.perfetto.examples import launch, warps

LAYOUT_1 = Path(__file__).with_name("layout-1.bin")
LAYOUT_2 = Path(__file__).with_name("layout-2")
"""A folder of files."""


def older_trace() -> Trace:
    """Return two launches with nested and overlapping ranges, payloads, arrows and roles."""
    trace = warps(
        [[(1, 3), (0, 9), 10], [(2, 6), (4, 8)], [(20, 25)], []],
        blocks=[(0, 0, 12), (0, 0, 9), (1, 15, 30), (1, 16, 31)],
        names=["load", "dot"],
        notes=("told",),
    )
    count = len(trace.events)
    types = np.array([PayloadType.U32, PayloadType.F32, 0, 0, PayloadType.I32, 0], np.uint8)
    return replace(
        trace,
        launches=(trace.launches[0], launch("norm", warps_per_block=1, attempted=3, kept=1)),
        slots=replace(
            trace.slots,
            launch=np.array([0, 0, 1, 1], np.int32),
            role=np.array([0, 1, 0, 0], np.int32),
            attempted=np.array([3, 2, 3, 0]),
        ),
        events=replace(trace.events, payload_type=types, payload=types.astype(np.uint32) * 7),
        roles=("", "producer"),
        args={
            "flow_out": arg_column("flow_out", [1, None, None, None, None, None], count),
            "flow_in": arg_column("flow_in", [None, None, None, 1, None, None], count),
            "note": arg_column("note", ["a", None, "b", None, "a", None], count),
        },
    )
