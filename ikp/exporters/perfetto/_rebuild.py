"""Makes slots and rows of the columns that a file's packets hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import Kind, PayloadType
from ikp.core.args import ArgColumn
from ikp.core.totals import make_totals
from ikp.core.trace import Events, Slots, Totals, make_columns
from ikp.exporters.columns.small_tables import args_of
from ikp.exporters.perfetto import _evidence as evidence
from ikp.exporters.perfetto._arguments import Columns
from ikp.exporters.perfetto._schema import Annotation, EventType, Facts
from ikp.exporters.perfetto.contents import Contents, Role
from ikp.exporters.protobuf.damage import DamagedError
from ikp.exporters.protobuf.split import Ints
from ikp.exporters.timeline.sums import NAME

_SLOT_COLUMNS = Slots.__slots__


def rebuild_slots(contents: Contents, count: int) -> tuple[Slots, Ints, Ints]:
    """Return the slots in their old order, each one's warp track, and its block.

    Raises:
        DamagedError: some are missing.
    """
    rows = together(contents.blocks, (*_SLOT_COLUMNS, "track", "slot"))
    order = np.argsort(rows["slot"], kind="stable")
    if len(order) != count or not np.array_equal(rows["slot"][order], np.arange(count)):
        raise DamagedError(f"not each of its {count} slots is there once")
    rows = {name: column[order] for name, column in rows.items()}
    for name in ("start_ns", "end_ns"):
        rows[name] = _unix_times(contents, rows[name])
    _check_range(rows, ("launch", "warp", "sm", "role"))
    slots = make_columns(Slots, **{name: rows[name] for name in _SLOT_COLUMNS})
    return slots, _warp_tracks(contents, rows["track"], rows["warp"]), rows["block"]


def _warp_tracks(contents: Contents, lane: Ints, warp: Ints) -> Ints:
    """Return the track of each warp: the child of its lane that has the warp's number as rank."""
    role = np.array(contents.tracks.role, np.int64)
    parent = np.array(contents.tracks.parent, np.int64)
    rank = np.array(contents.tracks.rank, np.int64)
    uuids = np.flatnonzero(role == Role.WARP)
    return _look_up((parent[uuids], rank[uuids]), uuids, (lane, warp), "a warp has no track")


def rebuild_rows(contents: Contents, facts: Facts, track: Ints, block: Ints) -> dict[str, Any]:
    """Return what a trace is made of whose rows are those of the file: events, arguments, totals.

    ``facts`` is what the file tells of itself, ``track`` and ``block`` are those of each slot.

    Raises:
        DamagedError: some are missing, or don't fit together.
    """
    regions = len(evidence.to_regions(facts))
    count, args = evidence.size(facts, "events"), args_of(facts)
    events, own = _rebuild_events(contents, count, regions, track, block, args)
    totals = _rebuild_totals(contents, evidence.size(facts, NAME, 0), track, block)
    return {"events": events, "args": own, "totals": totals}


def _rebuild_events(
    contents: Contents,
    count: int,
    regions: int,
    track: Ints,
    block: Ints,
    args: list[dict[str, str]],
) -> tuple[Events, dict[str, ArgColumn]]:
    """Return the events and their own arguments.

    They stand slot by slot in order of recording, which is that of their closing.
    ``track`` and ``block`` are those of each slot, ``args`` what the file tells of the arguments,
    ``regions`` how many there are: the name behind theirs is that of the slices of sums. Instants
    at which arrows end are no events; which arrows there are, the arguments say.

    Raises:
        DamagedError: some are missing, or don't fit together.
    """
    own = [(f"arg {i}", f"given {i}") for i in range(len(args))]
    rows = together(contents.events, (*_EVENT_COLUMNS, *(name for pair in own for name in pair)))
    opening, closing = _pairs(rows["track"], rows["type"])
    first_name = _told(contents.first_name, "the table of names") if len(opening) else 0
    name = rows["name"][opening]  # 0 where it is not interned: the ends of arrows
    events = (name >= first_name) & (name != first_name + regions)
    opening, closing = opening[events], closing[events]
    if len(opening) != count:
        raise DamagedError(f"it holds {len(opening)} of {count} events")
    parent = np.array(contents.tracks.parent, np.int64)
    overlap = np.array(contents.tracks.role, np.int64)[rows["track"]] == Role.OVERLAP
    warp_track = np.where(overlap, parent[rows["track"]], rows["track"])
    wanted = (warp_track[opening], rows["block"][opening])
    slots = np.arange(len(track))
    slot = _look_up((track, block), slots, wanted, "an event is of a block that is missing")
    order = np.lexsort((closing, slot))
    opening, closing, slot = opening[order], closing[order], slot[order]
    times = _unix_times(contents, rows["time"])
    start, end = times[opening], times[closing]
    rows["name"] = rows["name"] - first_name
    _check_range({"name": rows["name"][opening]}, ("name",))
    payload_type, payload = _payloads(
        rows["payload_field"][opening], rows["payload"][opening].view(np.uint64)
    )
    words = [(rows[value][opening].view(np.uint64), rows[given][opening]) for value, given in own]
    made = make_columns(
        Events,
        slot=slot,
        region=rows["name"][opening],
        kind=np.where(rows["type"][opening] == EventType.INSTANT, Kind.INSTANT, Kind.RANGE),
        start_ns=start,
        end_ns=end,
        ticks=np.where(rows["given"][opening], rows["ticks"][opening], end - start),
        payload_type=payload_type,
        payload=payload,
    )
    return made, evidence.rebuilt(args, words, contents.texts)


_EVENT_COLUMNS = (
    "time",
    "track",
    "type",
    "name",
    "block",
    "ticks",
    "given",
    "payload",
    "payload_field",
)


def _rebuild_totals(contents: Contents, count: int, track: Ints, block: Ints) -> Totals:
    """Return the totals. ``track`` and ``block`` are those of each slot.

    Raises:
        DamagedError: some are missing.
    """
    names = ("region", "kind", "count", "ticks", "total_ns")
    rows = together(contents.sums, (*names, "track", "block"))
    _check_range(rows, ("region",))
    wanted = (rows["track"], rows["block"])
    slots = np.arange(len(track))
    slot = _look_up((track, block), slots, wanted, "a total is of a block that is missing")
    totals = make_totals(slot=slot, **{name: rows[name] for name in names})
    if len(totals) != count:
        raise DamagedError(f"it holds {len(totals)} of {count} totals")
    return totals


def _told(value: int | None, what: str) -> int:
    if value is None:
        raise DamagedError(f"{what} is missing")
    return value


LAST = (1 << 63) - 1


def _unix_times(contents: Contents, times: Ints) -> Ints:
    """Return times of the trace's clock as Unix times."""
    base = _told(contents.base_ns, "its clock")
    if not len(times):
        return times
    if (
        not -1 << 63 <= base < 1 << 63
        or not 0 <= int(times.min()) + base <= int(times.max()) + base <= LAST
    ):
        raise DamagedError("a time is before 1970, or beyond all clocks")
    return times + base


def _check_range(rows: Columns, names: tuple[str, ...]) -> None:
    """Refuse numbers that the trace's columns can't hold."""
    for name in names:
        if len(rows[name]) and not -1 << 31 <= rows[name].min() <= rows[name].max() < 1 << 31:
            raise DamagedError(f"a {name} has an impossible number")


def together(parts: list[Columns], names: tuple[str, ...]) -> Columns:
    """Return the columns of all parts."""
    if not parts:
        return {name: np.empty(0, np.int64) for name in names}
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def _pairs(track: Ints, kind: Ints) -> tuple[Ints, Ints]:
    """Match the packets that open events with those that close them; an instant does both.

    On each track they are brackets: those at one depth open and close in turn.
    """
    begins, ends = kind == EventType.SLICE_BEGIN, kind == EventType.SLICE_END
    by_track = np.argsort(track, kind="stable")
    change = begins.astype(np.int64) - ends
    depth = np.empty(len(track), np.int64)
    depth[by_track] = np.cumsum(change[by_track])
    depth -= begins
    opening, closing = (_by_depth(track, depth, np.flatnonzero(rows)) for rows in (begins, ends))
    if (
        len(opening) != len(closing)
        or np.any(track[opening] != track[closing])
        or np.any(depth[opening] != depth[closing])
        or np.any(opening >= closing)
    ):
        raise DamagedError("a range is opened and not closed, or closed and not opened")
    instants = np.flatnonzero(kind == EventType.INSTANT)
    return np.concatenate([opening, instants]), np.concatenate([closing, instants])


def _by_depth(track: Ints, depth: Ints, rows: Ints) -> Ints:
    return rows[np.lexsort((depth[rows], track[rows]))]


_MOST_KEY = (1 << 32) + 1
"""Above the numbers of tracks, of blocks and of warps: two make one number of 64 bits."""


def _look_up(keys: tuple[Ints, Ints], values: Ints, wanted: tuple[Ints, Ints], fault: str) -> Ints:
    """Return the value of each wanted pair of keys.

    Raises:
        DamagedError: one is missing.
    """
    for column in (*keys, *wanted):
        if len(column) and not -1 <= column.min() <= column.max() < _MOST_KEY:
            raise DamagedError(fault)
    known, sought = ((major << 33) + minor for major, minor in (keys, wanted))
    order = np.argsort(known, kind="stable")
    at = np.searchsorted(known, sought, sorter=order)
    if len(sought) and (not len(known) or int(at.max()) == len(known)):
        raise DamagedError(fault)
    found = order[at]
    if np.any(known[found] != sought):
        raise DamagedError(fault)
    return values[found]


def _payloads(field: Ints, value: NDArray[np.uint64]) -> tuple[Ints, NDArray[np.uint32]]:
    kind = np.zeros(len(field), np.int64)
    for number, payload_type in _TYPES.items():
        kind[field == number] = payload_type
    bits = value.astype(np.uint32)
    doubles = field == Annotation.DOUBLE_VALUE
    bits[doubles] = narrow_double(value[doubles])
    return kind, bits


_TYPES = {
    Annotation.UINT_VALUE: PayloadType.U32,
    Annotation.INT_VALUE: PayloadType.I32,
    Annotation.DOUBLE_VALUE: PayloadType.F32,
}


def narrow_double(bits: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Return the bits of float64 numbers as those of float32; a NaN keeps its bits too."""
    # Signalling NaNs are put right below; what no float32 can be is infinite.
    with np.errstate(invalid="ignore", over="ignore"):
        narrow = bits.view(np.float64).astype(np.float32).view(np.uint32)
    nan = np.isnan(bits.view(np.float64))
    sign = (bits[nan] >> np.uint64(63)) << np.uint64(31)
    fraction = (bits[nan] >> np.uint64(29)) & np.uint64(0x7FFFFF)
    narrow[nan] = (sign | np.uint64(0x7F800000) | fraction).astype(np.uint32)
    return narrow
