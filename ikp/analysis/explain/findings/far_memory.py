"""Finding ``far-memory``: accesses to memory of the host or of another GPU, by way of a bus.

The driver says whose memory a parameter points to. Where no pointer is known, waits for loads of
many times DRAM's latency, while no unit of the device is busy, are the mark of such memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import numpy as np

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.counted_work import (
    Access,
    CountedWork,
    counted_work,
    is_atomic,
    moved_bytes,
)
from ikp.analysis.explain.places import where_of_accesses
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import nearest
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number, Where
from ikp.core.code_facts import FAR

_FAR: Final = "h"
"""The letter of accesses to memory that is not the device's."""
_BUS: Final = 55.0
"""Bytes in a nanosecond over PCI Express 5.0 with 16 lanes, as copies reach it."""
_LATENCY: Final = 5_000
"""Nanoseconds of a median wait for a load that DRAM's queues don't reach: they take up to two."""
_IDLE: Final = 0.4
_LONG: Final = 0.15
"""Share of the warps' time in such waits from which on they are a finding."""


def far_memory(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on accesses that go over a bus, or that take as long as if they did."""
    work = counted_work(launch)
    if work is None:
        return
    some = [
        each for each in work.accesses() if _FAR in each[1].depends and each[2] and not each[1].use
    ]
    found = list(_known(launch, some)) if some else list(_by_latency(launch, work))
    yield from found


def _known(launch: Prepared, some: list[Access]) -> Iterator[Finding]:
    size = moved_bytes(some)
    whose = _whose(launch)
    over_bus = size / _BUS / launch.duration
    if whose == "managed" and nearest(launch) >= _IDLE:
        return  # its pages are on the device
    saved = 1 - nearest(launch)
    if over_bus < _LONG or not enough(launch, saved * launch.duration):
        return
    some.sort(key=lambda each: -each[2])
    owner = {"host": "the host's", "managed": "managed"}.get(whose, f"{whose}'s")
    yield finding(
        launch,
        "far-memory",
        title=f"{some[0][0].name} accesses {owner} memory: {size / 1e6:,.1f} MB pass a bus, "
        f"{size / launch.duration:,.0f} GB/s",
        number=Number("their time at the rate of a bus, of the launch", over_bus, "share"),
        at_stake=saved * launch.duration,
        without="with these bytes in the device's memory",
        confidence="likely",
        rationale="the driver says whose memory the parameters point to; counted: the bytes, which "
        f"a bus of {_BUS:.0f} GB/s takes {100 * min(over_bus, 9.99):.0f} % of the launch for. "
        "Refuted if a cache serves them.",
        where=where_of_accesses(launch, some),
        suggestion="keep what the kernel reads and writes in the device's memory; copy it there "
        "ahead (cudaMemcpyAsync, cudaMemPrefetchAsync), beside other work",
    )


def _whose(launch: Prepared) -> str:
    """Return whose memory a launch's parameters point to, beside the device's."""
    try:
        said = json.loads(launch.trace.provenance.get(f"{FAR}{launch.launch.label}", "{}"))
        kinds = [str(kind) for kind, _, _ in said.values()]
    except (ValueError, TypeError, AttributeError):
        kinds = []
    return next((each for each in kinds if each != "managed"), "managed" if kinds else "host")


def _by_latency(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    if nearest(launch) >= _IDLE or any(is_atomic(each[1]) for each in work.accesses()):
        return
    if any(one.facts.polls for one in work.ranges):
        return
    waits = launch.regions([Activity.WAIT_MEMORY]).tolist()
    long = [region for region in waits if _median(launch, region) >= _LATENCY]
    share = launch.share_in(long)
    saved = 1 - nearest(launch)
    if not long or share < _LONG or not enough(launch, saved * launch.duration):
        return
    region = max(long, key=lambda one: int(launch.own_by_region[one]))
    took, rows, name = _median(launch, region), launch.of_region([region]), launch.names[region]
    yield finding(
        launch,
        "far-memory",
        title=f"{name} takes {took / 1000:,.1f} us (median), many times the latency of the "
        "device's memory: the loads may be from memory of the host or another GPU",
        number=Number(f"median of {name}", took, "ns"),
        at_stake=saved * launch.duration,
        without="with these bytes in the device's memory",
        confidence="likely",
        rationale="measured: the wait for a load; memory of the device answers within two "
        f"microseconds, though many wait, and no unit is above {100 * nearest(launch):.0f} % of "
        "its rate. Refuted if all pointers are of the device's memory, and "
        "its pages are on the device.",
        where=Where(
            regions=(name,),
            warps=launch.warps(rows),
            window_ns=launch.window(rows),
            count=len(rows),
        ),
        suggestion="keep what the kernel reads and writes in the device's memory; copy or prefetch "
        "it there ahead",
    )


def _median(launch: Prepared, region: int) -> float:
    rows = launch.of_region([region])
    return float(np.median(launch.own[rows])) if len(rows) else 0.0
