"""Hand-made launches for the tests of verdicts: blocks on SMs, warps with ranges one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ikp.core.abi import Kind, PayloadType
from ikp.core.trace import ClockFit, Events, Launch, Region, Slots, make_columns
from ikp.trace import Trace

START = 1_700_000_000_000_000_000

Range = tuple[str, int, int] | tuple[str, int, int, int]
"""Region, start, end, and a payload, if it has one."""


@dataclass
class Warp:
    """A warp of a block: its life, and what it recorded."""

    block: int
    warp: int
    sm: int
    start: int
    end: int
    ranges: Sequence[Range] = ()
    role: str = ""
    launch: int = 0


@dataclass
class Scene:
    """Warps, from which a trace is made."""

    warps: list[Warp] = field(default_factory=list)
    label: str = "kernel"

    def add(self, *warps: Warp) -> Scene:
        self.warps += warps
        return self

    def trace(self, **changes: Any) -> Trace:
        blocks = max((one.block for one in self.warps), default=0) + 1
        per_block = max((one.warp for one in self.warps), default=0) + 1
        count = max((one.launch for one in self.warps), default=0) + 1
        values: dict[str, Any] = {
            "label": self.label,
            "grid": (blocks, 1, 1),
            "block": (32 * per_block, 1, 1),
            "warps_per_block": per_block,
            "device": "a GPU",
            "backend": "triton",
            "clock": ClockFit("cycles", 0.5, "fitted", 8, 1.0, 2.0),
            "capacity": 1 << 20,
        }
        launches = tuple(Launch(**{**values, **changes}) for _ in range(count))
        return _made(self.warps, launches)


def _made(warps: Iterable[Warp], launches: tuple[Launch, ...]) -> Trace:
    warps = sorted(warps, key=lambda one: one.launch)
    names = list(dict.fromkeys(r[0] for one in warps for r in one.ranges)) or ["none"]
    roles = ["", *dict.fromkeys(one.role for one in warps if one.role)]
    rows = [
        (slot, names.index(r[0]), r[1], r[2], r[3] if len(r) > 3 else None)
        for slot, one in enumerate(warps)
        for r in sorted(one.ranges, key=lambda r: (r[2], -r[1]))
    ]
    kept = [len(one.ranges) for one in warps]
    slots = make_columns(
        Slots,
        launch=[one.launch for one in warps],
        block=[one.block for one in warps],
        warp=[one.warp for one in warps],
        sm=[one.sm for one in warps],
        role=[roles.index(one.role) for one in warps],
        start_ns=[START + one.start for one in warps],
        end_ns=[START + one.end for one in warps],
        attempted=kept,
        kept=kept,
        finished=np.ones(len(warps)),
    )
    events = make_columns(
        Events,
        slot=[row[0] for row in rows],
        region=[row[1] for row in rows],
        kind=np.full(len(rows), int(Kind.RANGE)),
        start_ns=[START + row[2] for row in rows],
        end_ns=[START + row[3] for row in rows],
        ticks=[2 * (row[3] - row[2]) for row in rows],
        payload_type=[int(PayloadType.NONE if r[4] is None else PayloadType.U32) for r in rows],
        payload=[r[4] or 0 for r in rows],
    )
    regions = tuple(Region(i, name) for i, name in enumerate(names))
    return Trace(launches, regions, slots, events, {}, tuple(roles))
