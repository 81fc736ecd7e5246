"""Traces of launches as noisy as a GPU's, for tests of what is said to have moved.

The noise is that of benchmarks: launches scatter by 0.3 %, half of it common to all regions; clocks
wander slowly; a run's first launches are slower; now and then one is far off.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import Kind
from ikp.core.rows import make_totals
from ikp.core.trace import ClockFit, Events, Launch, Region, Slots, make_columns
from ikp.trace import Trace

START = 1_700_000_000_000_000_000
GAP = 1_000_000
REGIONS = ("load", "wait", "dot", "store", "sync")
ROLES = ("", "producer", "consumer")
BASE = (400, 2000, 9000, 1500, 300)
"""How long each takes, in ns."""
WARPS, TIMES = 4, 3


def effects(
    rng: np.random.Generator, count: int, *, scatter: float = 0.003, wander: float = 0.0015
) -> NDArray[np.float64]:
    """Return by which factor each launch of a run is slower, in order."""
    slow = np.empty(count)
    slow[0] = rng.normal(0, wander)
    for i in range(1, count):
        slow[i] = 0.8 * slow[i - 1] + rng.normal(0, 0.6 * wander)
    cold = 0.005 * rng.uniform(0.5, 1.5) * np.exp(-np.arange(count) / 4)
    far = (rng.random(count) < 0.03) * rng.exponential(0.05, count)
    return np.asarray(1 + slow + cold + far + rng.normal(0, scatter / 2**0.5, count))


def run(
    rng: np.random.Generator,
    factors: NDArray[np.float64],
    *,
    label: str = "gemm",
    planted: dict[str, float] | None = None,
    start: int = START,
    step: int = GAP,
    scatter: float = 0.003,
) -> Trace:
    """Return a trace with one launch per factor; ``planted`` regions take so many times as long."""
    count = len(factors)
    base = np.array(BASE, np.float64)
    base *= [(planted or {}).get(name, 1.0) for name in REGIONS]
    shape = (count, WARPS, TIMES, len(REGIONS))
    own = rng.normal(1, scatter / 2**0.5, (count, 1, 1, len(REGIONS)))
    single = rng.normal(1, 0.005, shape)
    took = np.rint(base * own * single * factors[:, None, None, None]).astype(np.int64)
    flat = took.reshape(count, WARPS, -1)
    begins = start + step * np.arange(count)
    ends = begins[:, None, None] + 100 + np.cumsum(flat, axis=2)
    slots = _slots(begins, ends[:, :, -1], flat.shape[2])
    return Trace(
        launches=tuple(_launch(label, flat[0].size) for _ in range(count)),
        regions=tuple(Region(i, name) for i, name in enumerate(REGIONS)),
        slots=slots,
        events=_events(ends, flat),
        roles=ROLES,
    )


def _launch(label: str, kept: int) -> Launch:
    clock = ClockFit("cycles", 0.5, "fitted", 8, 12.0, 30.0)
    facts: dict[str, Any] = {"attempted": kept, "kept": kept, "capacity": 64}
    return Launch(label, (WARPS, 1, 1), (32, 1, 1), 1, "model", "triton", clock, **facts)


def _slots(begins: NDArray[np.int64], ends: NDArray[np.int64], kept: int) -> Slots:
    count = begins.size * WARPS
    return make_columns(
        Slots,
        launch=np.repeat(np.arange(begins.size), WARPS),
        block=np.tile(np.arange(WARPS), begins.size),
        warp=np.zeros(count),
        sm=np.tile(np.arange(WARPS), begins.size),
        role=1 + np.tile(np.arange(WARPS), begins.size) % 2,
        start_ns=np.repeat(begins, WARPS),
        end_ns=ends.reshape(-1) + 200,
        attempted=np.full(count, kept),
        kept=np.full(count, kept),
        finished=np.ones(count),
    )


def _events(ends: NDArray[np.int64], took: NDArray[np.int64]) -> Events:
    per_slot = took.shape[2]
    count = took.size
    return make_columns(
        Events,
        slot=np.repeat(np.arange(count // per_slot), per_slot),
        region=np.tile(np.arange(len(REGIONS)), count // len(REGIONS)),
        kind=np.full(count, Kind.RANGE),
        start_ns=(ends - took).reshape(-1),
        end_ns=ends.reshape(-1),
        ticks=2 * took.reshape(-1),
        payload_type=np.zeros(count),
        payload=np.zeros(count),
    )


def alternating(
    rng: np.random.Generator, count: int, planted: dict[str, float] | None = None
) -> tuple[Trace, Trace]:
    """Return the launches of two kernels that ran in turn, as two traces."""
    both = effects(rng, 2 * count)
    later = START + GAP // 2
    return run(rng, both[::2]), run(rng, both[1::2], start=later, planted=planted)


def of_process(
    rng: np.random.Generator, count: int, number: int = 0, planted: dict[str, float] | None = None
) -> Trace:
    """Return the launches of one process: each has its own clocks, and places of its memory.

    As measured (decision 46): 0.3 % of the kernel, and 0.2 % that regions take from each other.
    """
    moved = rng.normal(0, 0.002) * sum(BASE) / 2
    shift = {"wait": 1 + moved / BASE[1], "dot": 1 - moved / BASE[2]}
    times = {name: shift.get(name, 1.0) * (planted or {}).get(name, 1.0) for name in REGIONS}
    factors = rng.normal(1, 0.003) * effects(rng, count)
    return run(rng, factors, start=START + 1000 * number * GAP, planted=times)


def separate(
    rng: np.random.Generator, count: int, planted: dict[str, float] | None = None
) -> tuple[Trace, Trace]:
    """Return the launches of two kernels that ran in two processes, one after the other."""
    return of_process(rng, count), of_process(rng, count, 1, planted)


def of_one_role(trace: Trace) -> Trace:
    """Return the trace with all warps in no role."""
    roles = np.zeros(len(trace.slots), np.int32)
    return replace(trace, slots=replace(trace.slots, role=roles), roles=("",))


def as_totals(trace: Trace) -> Trace:
    """Return the trace as it is recorded with ``mode="totals"``."""
    events, regions = trace.events, len(trace.regions)
    place = events.slot.astype(np.int64) * regions + events.region
    found, member = np.unique(place, return_inverse=True)
    totals = make_totals(
        slot=found // regions,
        region=found % regions,
        kind=np.full(len(found), Kind.RANGE),
        count=np.bincount(member),
        ticks=np.bincount(member, events.ticks),
        total_ns=np.bincount(member, events.end_ns - events.start_ns),
    )
    launches = tuple(replace(one, mode="totals") for one in trace.launches)
    nothing = Events(*(getattr(events, name)[:0] for name in Events.__slots__))
    return replace(trace, launches=launches, events=nothing, totals=totals)
