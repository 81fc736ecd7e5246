"""What producers and consumers of one block record, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ikp.core.abi import PayloadType
from ikp.core.args import arrows
from ikp.core.trace import Trace
from tests.exporters.perfetto.examples import START, warps

NAMES = ("issue", "wait", "mma")

Record = tuple[str, int, int | None, int | None]
"""Region, start, end (None: an instant), payload (None: none)."""


def block(*recorded: Sequence[Record], blocks: Sequence[int] | None = None) -> Trace:
    """Return what the warps of one block recorded, each in order of ends.

    ``blocks`` says of each warp which block it is of, where that is not one for all.
    """
    rows = [sorted(one, key=lambda row: row[1] if row[2] is None else row[2]) for one in recorded]
    flat = [row for one in rows for row in one]
    trace = warps(
        [[start if end is None else (start, end) for _, start, end, _ in one] for one in rows],
        names=NAMES,
    )
    given = [payload is not None for *_, payload in flat]
    events = replace(
        trace.events,
        region=np.array([NAMES.index(name) for name, *_ in flat], np.int32),
        payload=np.array([payload or 0 for *_, payload in flat], np.uint32),
        payload_type=np.where(given, int(PayloadType.U32), int(PayloadType.NONE)).astype(np.uint8),
    )
    of = np.zeros(len(recorded), np.int64) if blocks is None else np.array(blocks, np.int64)
    slots = replace(trace.slots, block=of, warp=np.arange(len(recorded), dtype=np.int32))
    slots = replace(slots, sm=np.zeros(len(recorded), np.int32))
    wide = replace(trace.launches[0], warps_per_block=len(recorded))
    return replace(trace, events=events, slots=slots, launches=(wide,))


def joined(trace: Trace) -> list[tuple[str, int, int, str, int, int]]:
    """Return region, warp and start of source and target of each arrow, in order."""
    names = [one.name for one in trace.regions]
    slot = trace.events.slot.tolist()
    warp = trace.slots.warp.tolist()
    region, start = trace.events.region.tolist(), (trace.events.start_ns - START).tolist()

    def told(row: int) -> tuple[str, int, int]:
        return names[region[row]], warp[slot[row]], start[row]

    return sorted(
        (*told(a), *told(b))
        for a, b in zip(*map(np.ndarray.tolist, arrows(trace.args)), strict=True)
    )


def ring(steps: int, stages: int, producer: Sequence[int] = (0, 2), late: int = 3) -> Trace:
    """Return a producer and two consumer warps that pass ``steps`` through ``stages``.

    Each issue lasts 2 ns of the 10 ns of its step; each wait begins ``late`` ns after it, and ends
    9 ns after it.
    """
    begin, end = producer
    issues = [("issue", 10 * k + begin, 10 * k + end, k % stages) for k in range(steps)]
    waits = [("wait", 10 * k + late, 10 * k + 9, k % stages) for k in range(steps)]
    return block(waits, issues, waits)
