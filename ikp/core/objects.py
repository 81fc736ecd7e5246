"""Events as Python objects, ``Range`` and ``Instant``, for loops over single events.

Columns are faster by far: use objects only where you want a loop in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from ikp.core.abi import Kind, PayloadType
from ikp.core.args import Scalar, take_args
from ikp.core.trace import Events, payload_values

if TYPE_CHECKING:
    from ikp.core.trace import Trace

AT_ONCE = 1 << 14
"""Events converted to Python numbers together."""


@dataclass(frozen=True, slots=True)
class Instant:
    """An instant: a point in time that one warp recorded."""

    launch: int  # index into Trace.launches
    label: str  # of the launch
    rank: int | None  # of the process that launched it
    region: str
    block: int  # linear: x + grid_x * (y + grid_y * z)
    warp: int  # in its block
    sm: int
    role: str  # of the warp, "" where it has none
    start_ns: int  # Unix time
    payload: int | float | None
    args: dict[str, Scalar]


@dataclass(frozen=True, slots=True)
class Range(Instant):
    """A range: the time of one warp from ``start_ns`` to ``end_ns``."""

    end_ns: int
    ticks: int  # of the launch's clock
    cycles: int | None  # the ticks, where the launch's clock counts SM cycles

    @property
    def duration_ns(self) -> int:
        """How long it took, in nanoseconds."""
        return self.end_ns - self.start_ns


_Common = tuple[
    int, str, int | None, str, int, int, int, str, int, int | float | None, dict[str, Scalar]
]
"""The fields of an :class:`Instant`, in order."""


def ranges(trace: Trace) -> Iterator[Range]:
    """Yield each range of the trace, in the trace's order."""
    cycles = [launch.clock.kind == "cycles" for launch in trace.launches]
    for common, end, ticks in _items(trace, Kind.RANGE):
        counted = ticks if cycles[common[0]] else None
        yield Range(*common, end, ticks, counted)


def instants(trace: Trace) -> Iterator[Instant]:
    """Yield each instant of the trace, in the trace's order."""
    for common, _, _ in _items(trace, Kind.INSTANT):
        yield Instant(*common)


def items(trace: Trace) -> Iterator[Range | Instant]:
    """Yield each event of the trace, in the trace's order."""
    found = {Kind.RANGE: ranges(trace), Kind.INSTANT: instants(trace)}
    for kind in trace.events.kind.tolist():
        yield next(found[Kind(kind)])


def _items(trace: Trace, kind: Kind) -> Iterator[tuple[_Common, int, int]]:
    """Yield, of each event of one kind, the fields of an instant, its end and its ticks."""
    chosen = np.flatnonzero(trace.events.kind == int(kind))
    labels = [launch.label for launch in trace.launches]
    ranks = [launch.rank for launch in trace.launches]
    regions = [region.name for region in trace.regions]
    slots = trace.slots
    for low in range(0, len(chosen), AT_ONCE):
        rows = chosen[low : low + AT_ONCE]
        events = Events(*(getattr(trace.events, one.name)[rows] for one in fields(Events)))
        for launch, region, block, warp, sm, role, start, payload, args, end, ticks in zip(
            slots.launch[events.slot].tolist(),
            events.region.tolist(),
            slots.block[events.slot].tolist(),
            slots.warp[events.slot].tolist(),
            slots.sm[events.slot].tolist(),
            slots.role[events.slot].tolist(),
            events.start_ns.tolist(),
            _payloads(events),
            _args(trace, rows),
            events.end_ns.tolist(),
            events.ticks.tolist(),
            strict=True,
        ):
            names = (launch, labels[launch], ranks[launch], regions[region])
            yield (*names, block, warp, sm, trace.roles[role], start, payload, args), end, ticks


def _payloads(events: Events) -> list[int | float | None]:
    numbers = payload_values(events.payload, events.payload_type).tolist()
    return [
        None if kind == PayloadType.NONE else number if kind == PayloadType.F32 else int(number)
        for kind, number in zip(events.payload_type.tolist(), numbers, strict=True)
    ]


def _args(trace: Trace, rows: Any) -> list[dict[str, Scalar]]:
    if not trace.args:
        return [{} for _ in rows]
    columns = {name: column.tolist() for name, column in take_args(trace.args, rows).items()}
    return [
        {name: value for name, value in zip(columns, values, strict=True) if value is not None}
        for values in zip(*columns.values(), strict=True)
    ]
