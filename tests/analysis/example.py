"""Hand-made traces for the tests of analysis and command line."""

from __future__ import annotations

from typing import Any

import numpy as np

from ikp.core.abi import Kind, PayloadType
from ikp.core.trace import ClockFit, Events, Launch, Region, Slots, make_columns
from ikp.trace import Trace

START = 1_700_000_000_000_000_000
"""Start of every hand-made trace: a plausible Unix time, beyond what a float64 can hold."""

Event = tuple[int, int, int, int]
"""slot, region, start, end; an instant where the last two are equal."""


def launch(label: str = "gemm", **changes: Any) -> Launch:
    """Return a launch of 2 x 2 x 1 blocks of one warp."""
    values: dict[str, Any] = {
        "label": label,
        "grid": (2, 2, 1),
        "block": (32, 1, 1),
        "warps_per_block": 1,
        "device": "NVIDIA H200",
        "backend": "triton",
        "clock": ClockFit("cycles", 0.5, "fitted", 8, 12.0, 30.0),
        "capacity": 16,
    }
    return Launch(**{**values, **changes})


def trace(
    events: list[Event],
    *,
    launches: tuple[Launch, ...] | None = None,
    slots: list[tuple[int, int]] | None = None,
    regions: tuple[str, ...] = ("load", "dot", "tile done"),
    payload: dict[int, float] | None = None,
    residence: int = 1000,
) -> Trace:
    """Build a trace. ``slots`` holds (launch, block) pairs; each resides ``residence`` ns."""
    slots = slots or [(0, block) for block in range(4)]
    columns = np.array(events, np.int64).reshape(-1, 4)
    kept = np.bincount(columns[:, 0], minlength=len(slots))
    launches = launches or (launch(attempted=len(events), kept=len(events)),)
    return Trace(
        launches=launches,
        regions=tuple(Region(i, name) for i, name in enumerate(regions)),
        slots=_slots(slots, kept, residence),
        events=_events(columns, payload or {}),
    )


def _slots(pairs: list[tuple[int, int]], kept: Any, residence: int) -> Slots:
    count = len(pairs)
    return make_columns(
        Slots,
        launch=[of_launch for of_launch, _ in pairs],
        block=[block for _, block in pairs],
        warp=np.zeros(count),
        sm=np.arange(count),
        role=np.zeros(count),
        start_ns=np.full(count, START),
        end_ns=np.full(count, START + residence),
        attempted=kept,
        kept=kept,
        finished=np.ones(count),
    )


def _events(columns: Any, payload: dict[int, float]) -> Events:
    bits = np.zeros(len(columns), np.uint32)
    types = np.zeros(len(columns), np.uint8)
    for index, value in payload.items():
        bits[index] = np.float32(value).view(np.uint32)
        types[index] = PayloadType.F32
    start, end = columns[:, 2], columns[:, 3]
    return make_columns(
        Events,
        slot=columns[:, 0],
        region=columns[:, 1],
        kind=np.where(start == end, Kind.INSTANT, Kind.RANGE),
        start_ns=START + start,
        end_ns=START + end,
        ticks=2 * (end - start),
        payload_type=types,
        payload=bits,
    )
