"""A trace as columns: launches, regions, slots, events and totals, as exporters and analyses read.

All tables are columns (numpy arrays of equal length). Times are nanoseconds in ``int64`` on one
axis for all launches and SMs: of Unix time, as exactly as each launch's ``ClockFit`` says. No DSL
and no file format is known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import Kind, PayloadType
from ikp.core.args import ArgColumn, is_flow

Column = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Region:
    """A name and its id in a record's tag."""

    id: int
    name: str


@dataclass(frozen=True, slots=True)
class ClockFit:
    """The fit of clock ticks to the nanosecond axis, with its residuals.

    ``residual_sd_ns`` and ``residual_max_ns`` are the anchors' distances from the fit; None where
    they can't be measured: no more anchors than unknowns, or nothing to fit. ``rate`` says where
    ``ns_per_tick`` comes from: ``"fitted"`` from anchors, ``"nominal"`` from the clock
    rate that the device advertises (too few anchors), ``"exact"`` where ticks are nanoseconds.

    Handshakes with the host make Unix times of the times of a GPU's timer. ``unix_offset_ns`` is
    what was added where the launch began, ``unix_drift_ppm`` how fast that changes (None with one
    handshake), and ``unix_bound_ns`` the greatest error within the launch. Where that is None,
    the times of a GPU are those of its timer, not aligned.
    """

    kind: str  # "cycles" | "globaltimer" | "host"
    ns_per_tick: float
    rate: str  # "fitted" | "nominal" | "exact"
    anchors: int = 0
    residual_sd_ns: float | None = None
    residual_max_ns: float | None = None
    rate_spread: float = 0.0  # how much the rate itself changed within the launch, relative
    bits: int = 32  # of the clock that each record holds
    unix_offset_ns: float | None = None
    unix_bound_ns: float | None = None
    unix_drift_ppm: float | None = None

    @property
    def name(self) -> str:
        """The clock as ``ikp.profile`` has it: ``"cycles"``, ``"globaltimer64"``, ..."""
        return self.kind + ("64" if self.bits == 64 else "")


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch: its geometry, its clock, and figures of its recording."""

    label: str
    grid: tuple[int, int, int]  # blocks: x, y, z
    block: tuple[int, int, int]  # threads: x, y, z
    warps_per_block: int
    device: str  # "NVIDIA H200", "cpu (interpreter)"
    backend: str  # "triton", ...
    clock: ClockFit
    overflow: str = "stop"  # "stop" | "wrap" | "stream"
    capacity: int = 0  # records per slot
    segment_bytes: int = 0
    attempted: int = 0  # records attempted, as far as known
    kept: int = 0
    unfinished: int = 0  # slots whose warp never reached finish: their losses are unknown
    needed_bytes: int = 0  # segment size that would have held every record, as far as known
    relaunches: int = 0  # earlier launches that wrote to the same segment and were overwritten
    notes: tuple[str, ...] = ()  # what a reader must know, in words
    rank: int | None = None  # of the process that launched it, where several work together
    mode: str = "timeline"  # "timeline": events; "totals": a total of each region of each warp
    kernel: str = ""  # its full name, where ``label`` is a short one: with all template arguments
    replay: str = ""  # "CUDA graph 1, replay 7, node 3", the last two from 0; or none
    number: int = 0  # by which torch.profiler's record of it is found; 0: not marked

    @property
    def dropped(self) -> int:
        """Records attempted but not kept."""
        return self.attempted - self.kept


def _by_size(table: Slots | Events | Totals) -> str:
    """Show a table of columns by its size: printing arrays says less, at length."""
    names = ", ".join(one.name for one in fields(table))
    return f"<{type(table).__name__}: {len(table):,} rows of {names}>"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Slots:
    """One row per warp that ran. ``start_ns`` is its ``init``, ``end_ns`` its ``finish``
    (or the end of its last record).
    """

    launch: Column  # int32, index into Trace.launches
    block: Column  # int64, linear block id: x + grid_x * (y + grid_y * z)
    warp: Column  # int32, warp in block
    sm: Column  # int32
    role: Column  # int32, index into Trace.roles
    start_ns: Column  # int64
    end_ns: Column  # int64
    attempted: Column  # int64
    kept: Column  # int64
    finished: Column  # bool

    def __repr__(self) -> str:
        return _by_size(self)

    def __len__(self) -> int:
        return len(self.launch)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Events:
    """One row per record, slot by slot, within a slot in the order of recording (by end)."""

    slot: Column  # int32, index into Trace.slots
    region: Column  # int32, index into Trace.regions
    kind: Column  # uint8, abi.Kind
    start_ns: Column  # int64
    end_ns: Column  # int64, equal to start_ns for an instant
    ticks: Column  # int64, end - start in clock ticks (cycles, or ns of a timer)
    payload_type: Column  # uint8, abi.PayloadType
    payload: Column  # uint32, raw bits

    def __repr__(self) -> str:
        return _by_size(self)

    def __len__(self) -> int:
        return len(self.slot)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Totals:
    """One row per warp and region: all its ranges, or all its instants, taken together.

    Sorted by slot, region and kind, each of which occurs once. ``total_ns`` is ``ticks`` at the
    rate that the clock had from the warp's ``init`` to its ``finish``.
    """

    slot: Column  # int32, index into Trace.slots
    region: Column  # int32, index into Trace.regions
    kind: Column  # uint8, abi.Kind: ranges or instants
    count: Column  # int64, how many
    ticks: Column  # int64, the sum of their durations in clock ticks; instants have 0
    total_ns: Column  # int64

    def __repr__(self) -> str:
        return _by_size(self)

    def __len__(self) -> int:
        return len(self.slot)


_DTYPES: dict[str, Any] = {
    "start_ns": np.int64,
    "end_ns": np.int64,
    "ticks": np.int64,
    "block": np.int64,  # a grid may have 2**32
    "attempted": np.int64,
    "kept": np.int64,
    "finished": np.bool_,
    "kind": np.uint8,
    "payload_type": np.uint8,
    "payload": np.uint32,
    "count": np.int64,
    "total_ns": np.int64,
}


AnyTrace = TypeVar("AnyTrace", bound="Trace")
"""The class of a given trace: a function that makes one trace of another keeps its class."""
_Table = TypeVar("_Table", Slots, Events, Totals)


def make_columns(table: type[_Table], **columns: Any) -> _Table:
    """Build ``table`` from array-likes, each cast to its column's dtype."""
    return table(
        **{
            f.name: np.ascontiguousarray(columns[f.name], _DTYPES.get(f.name, np.int32))
            for f in fields(table)
        }
    )


def no_totals() -> Totals:
    """Return the totals of a trace that has none."""
    return make_columns(Totals, **dict.fromkeys(Totals.__slots__, ()))


def no_slots() -> Slots:
    """Return a table of no warps."""
    return make_columns(Slots, **dict.fromkeys(Slots.__slots__, ()))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Trace:
    """The records of one session as columns; its subclass ``ikp.Trace`` has methods for users.

    ``others`` are warps that by choice made no records: when and where they ran. ``Events.slot``
    does not count them.

    Two traces are equal only if they are the same object: compare their columns.
    """

    launches: tuple[Launch, ...]
    regions: tuple[Region, ...]
    slots: Slots
    events: Events
    provenance: dict[str, str] = field(default_factory=dict)
    roles: tuple[str, ...] = ("",)
    args: Mapping[str, ArgColumn] = field(default_factory=dict)
    totals: Totals = field(default_factory=no_totals)
    others: Slots = field(default_factory=no_slots)

    @property
    def dropped(self) -> int:
        """Records lost to full slots, as far as known, over all launches."""
        return sum(launch.dropped for launch in self.launches)

    @property
    def payload(self) -> NDArray[np.float64]:
        """The payload of each event as a number; NaN where there is none."""
        return payload_values(self.events.payload, self.events.payload_type)


def of_class(kind: type[AnyTrace], columns: Trace) -> AnyTrace:
    """Return a trace in another class, such as ``ikp.Trace``."""
    return kind(*(getattr(columns, each.name) for each in fields(Trace)))


def payload_values(bits: Column, types: Column) -> NDArray[np.float64]:
    """Return payload words as float64 according to each event's type; NaN where there is none."""
    out = np.full(len(bits), np.nan)
    for kind, dtype in (
        (PayloadType.U32, "<u4"),
        (PayloadType.I32, "<i4"),
        (PayloadType.F32, "<f4"),
    ):
        chosen = types == kind
        with np.errstate(invalid="ignore"):  # signalling NaNs
            out[chosen] = bits[chosen].view(dtype)
    return out


def faults(trace: Trace) -> list[str]:
    """Return the contradictions within a trace, in words."""
    events, slots, totals = trace.events, trace.slots, trace.totals
    count, rows, sums = len(events), len(slots), len(totals)
    warps = slots, trace.others
    found = {
        "a slot names a launch that there is not": _any_outside(
            "launch", warps, len(trace.launches)
        ),
        "a slot names a role that there is not": _any_outside("role", warps, len(trace.roles)),
        "an event names a slot that there is not": _outside(events.slot, 0, rows),
        "an event names a region that there is not": _outside(events.region, 0, len(trace.regions)),
        "an event is neither range nor instant": _outside(
            events.kind, Kind.RANGE, Kind.INSTANT + 1
        ),
        "a payload's type is unknown": _outside(
            events.payload_type, PayloadType.NONE, PayloadType.F32 + 1
        ),
        "events are not sorted by slot": bool(np.any(events.slot[1:] < events.slot[:-1])),
        "an event ends before it starts": bool(np.any(events.end_ns < events.start_ns)),
        "an instant has a duration": bool(
            np.any((events.end_ns != events.start_ns) & (events.kind == Kind.INSTANT))
        ),
        "a time is negative": _any_outside("start_ns", (events, *warps), None),
        **_faults_of_totals(trace),
        "an argument's column is not as long as the events": any(
            len(column) != count for column in trace.args.values()
        ),
        "an arrow's number is no integer": any(
            column.given.any() and column.values.dtype.kind != "i"
            for name, column in trace.args.items()
            if is_flow(name)
        ),
    }
    if sums and not any(found.values()):
        mixed = np.intersect1d(slots.launch[events.slot], slots.launch[totals.slot])
        found["a launch has both events and totals"] = bool(len(mixed))
    return [fault for fault, there in found.items() if there]


def _faults_of_totals(trace: Trace) -> dict[str, bool]:
    totals = trace.totals
    return {
        "a total names a slot that there is not": _outside(totals.slot, 0, len(trace.slots)),
        "a total names a region that there is not": _outside(totals.region, 0, len(trace.regions)),
        "a total is of neither ranges nor instants": _outside(
            totals.kind, Kind.RANGE, Kind.INSTANT + 1
        ),
        "a total is negative": any(
            _outside(values, 0, None) for values in (totals.count, totals.ticks, totals.total_ns)
        ),
        "totals are not sorted by slot": bool(np.any(totals.slot[1:] < totals.slot[:-1])),
    }


def _any_outside(column: str, tables: Iterable[object], high: int | None) -> bool:
    """Return whether any of some tables has a number below 0, or not below ``high``."""
    return any(_outside(getattr(one, column), 0, high) for one in tables)


def _outside(values: Column, low: int, high: int | None) -> bool:
    if not len(values):
        return False
    return int(values.min()) < low or (high is not None and int(values.max()) >= high)


RowTable = Events | Totals
"""A table whose rows name a slot, a region and a kind."""


def row_tables(trace: Trace) -> tuple[RowTable, RowTable]:
    """Return the two tables of rows: events and totals."""
    return trace.events, trace.totals


def row_count(trace: Trace) -> tuple[int, str]:
    """Return how many rows a trace has, and the word for one: ``"total"`` if it has any."""
    summed = len(trace.totals)
    return (summed, "total") if summed else (len(trace.events), "event")


def holds_nothing(trace: Trace) -> bool:
    """Return whether a trace has neither rows nor warps."""
    return not (row_count(trace)[0] or len(trace.slots) or len(trace.others))
