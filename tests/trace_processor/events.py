"""Compares ranges and instants, one by one."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ikp.core.abi import Kind, PayloadType
from ikp.core.trace import Trace
from tests.trace_processor.found import BLOCKS, Found
from tests.trace_processor.nesting import MOST_NESTED, depths, parents
from tests.trace_processor.query import Column
from tests.trace_processor.totals import events_of

ABSENT = -(1 << 62)
KINDS = {"uint": PayloadType.U32, "int": PayloadType.I32, "real": PayloadType.F32}


FLOWS = ("flow_out", "flow_in", "flow_in_2")


def check_events(found: Found, trace: Trace) -> Column:
    """Fail unless each event is a slice of its warp's track, with its arguments and its parent.

    Returns the slice of each event.
    """
    slices = events_of(found, trace)
    rows = _found_rows(found, slices, trace)
    wanted = _wanted_rows(trace)
    assert len(rows["slot"]) == len(trace.events), (
        f"there are {len(rows['slot'])} slices of warps, not {len(trace.events)}"
    )
    slot = rows["slot"]
    assert np.array_equal(slices["sm"], trace.slots.sm[slot]), "events are on the wrong SM"
    assert np.array_equal(slices["warp"], trace.slots.warp[slot]), "events are on the wrong warp"
    # Slices are numbered as they open. Of ranges that are equal, the last one recorded opens first,
    # because it holds the others; what has no duration holds nothing.
    opening = np.where(slices["dur"] == 0, slices["id"], -slices["id"])
    by_rows = np.lexsort((opening, *reversed(rows.values())))
    by_wanted = np.lexsort(tuple(reversed(wanted.values())))
    for name in wanted:
        _same(name, rows[name][by_rows], wanted[name][by_wanted], wanted, by_wanted)
    slice_of = np.empty(len(trace.events), np.int64)
    slice_of[by_wanted] = by_rows
    _check_nesting(slices, slice_of, trace)
    return np.asarray(slices["id"][slice_of])


def _found_rows(found: Found, slices: dict[str, Column], trace: Trace) -> dict[str, Column]:
    payload, kinds = found.numbers("payload", slices)
    types = np.array([KINDS.get(kind, PayloadType.NONE) for kind in kinds.tolist()], np.int64)
    return {
        "slot": _slots(found, slices, trace),
        "start": slices["ts"],
        "duration": slices["dur"],
        "name": _numbered(slices["name"], trace),
        "cycles": found.integers("cycles", slices, ABSENT),
        "ticks": found.integers("ticks", slices, ABSENT),
        "payload type": types,
        "payload": _bits(types, payload),
        **{name: found.integers(name, slices, 0) for name in FLOWS if name in trace.args},
    }


def _wanted_rows(trace: Trace) -> dict[str, Column]:
    events, slots = trace.events, trace.slots
    clocks = np.array([launch.clock.kind == "cycles" for launch in trace.launches], bool)
    in_cycles = clocks[slots.launch[events.slot]]
    duration = events.end_ns - events.start_ns
    named = np.array([region.name for region in trace.regions], object)
    told = (in_cycles & (events.kind == Kind.RANGE)) | (events.ticks != duration)
    types = events.payload_type.astype(np.int64)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        numbers = trace.payload.astype(object)
    return {
        "slot": events.slot.astype(np.int64),
        "start": events.start_ns,
        "duration": duration,
        "name": _numbered(named[events.region], trace),
        "cycles": np.where(told & in_cycles, events.ticks, ABSENT),
        "ticks": np.where(told & ~in_cycles, events.ticks, ABSENT),
        "payload type": types,
        "payload": _bits(types, numbers),
        **{name: trace.args[name].values for name in FLOWS if name in trace.args},
    }


def _slots(found: Found, slices: dict[str, Column], trace: Trace) -> Column:
    """Return the slot that each event is of: one of its lane and warp that has one at its time.

    Of slots that follow each other there, what has no duration and lies between them is first of
    the earlier ones.
    """
    left: dict[tuple[int, ...], list[int]] = defaultdict(list)
    events = trace.events
    places = list(zip(*_places(found, trace), strict=True))
    rows = (events.slot.tolist(), events.start_ns.tolist(), events.end_ns.tolist())
    for slot, start, end in zip(*rows, strict=True):
        left[*places[slot], start, end - start].append(slot)
    names = ("launch", "sm", "lane", "warp", "ts", "dur")
    result = np.full(len(slices["id"]), -1, np.int64)
    keys = list(zip(*(slices[name].tolist() for name in names), strict=True))
    for row in np.argsort(slices["id"]).tolist():
        if left[keys[row]]:
            result[row] = left[keys[row]].pop(0)
    return result


def _places(found: Found, trace: Trace) -> list[list[int]]:
    """Return launch, SM, lane and warp of each slot; its lane is that of its block's slice."""
    blocks, slots = found.with_role(BLOCKS), trace.slots
    numbers = found.integers("block", blocks, -1)
    keys = zip(blocks["launch"].tolist(), numbers.tolist(), blocks["sm"].tolist(), strict=True)
    lanes = dict(zip(keys, blocks["lane"].tolist(), strict=True))
    of_slots = zip(slots.launch.tolist(), slots.block.tolist(), slots.sm.tolist(), strict=True)
    lane = [lanes.get(key, -1) for key in of_slots]
    return [slots.launch.tolist(), slots.sm.tolist(), lane, slots.warp.tolist()]


def _numbered(names: Column, trace: Trace) -> Column:
    """Return names as numbers, which sort faster; the processor has no empty names, only none."""
    known = {region.name: i for i, region in enumerate(trace.regions)}
    return np.array([known.get(name or "", -1) for name in names.tolist()], np.int64)


def _bits(types: Column, payload: Column) -> Column:
    bits = np.zeros(len(types), np.int64)
    whole = (types == PayloadType.U32) | (types == PayloadType.I32)
    bits[whole] = payload[whole].astype(np.int64)
    real = types == PayloadType.F32
    numbers = payload[real].astype(np.float64)
    numbers[np.isnan(numbers)] = np.nan  # the processor keeps no other bits of one
    bits[real] = numbers.view(np.int64)
    return bits


def _same(name: str, found: Column, wanted: Column, rows: dict[str, Column], order: Column) -> None:
    different = np.flatnonzero(found != wanted)
    if len(different):
        first = different[0]
        event = {key: column[order][first] for key, column in rows.items()}
        raise AssertionError(
            f"{len(different)} events differ in {name}: found {found[first]}, wanted {event}"
        )


def _check_nesting(slices: dict[str, Column], slice_of: Column, trace: Trace) -> None:
    events = trace.events
    bounds = np.searchsorted(events.slot, np.arange(len(trace.slots) + 1))
    ids, overlap = slices["id"][slice_of], slices["overlap"][slice_of]
    instant = events.kind == Kind.INSTANT
    found = _own_parents(slices["parent"][slice_of], ids, trace, instant)
    flat = np.ones(len(events), bool)
    flat[1:] = (events.start_ns[1:] >= events.end_ns[:-1]) | (np.diff(events.slot) != 0)
    flat[1:] &= ~(instant[1:] & instant[:-1] & (np.diff(events.start_ns) == 0))
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if flat[low:high].all():
            assert np.all(found[low:high] == -1), f"slot {events.slot[low]}: flat ranges nest"
            assert not overlap[low:high].any(), f"slot {events.slot[low]}: flat ranges need a lane"
        else:
            _check_slot(low, high, trace, ids, found, overlap)


def _own_parents(found: Column, ids: Column, trace: Trace, instant: Column) -> Column:
    """Return the slices that events lie in, but for instants in one of the slot before.

    Where a warp's last instant and the next one's first are of one moment, the processor takes one
    for the other's child.
    """
    slot, start = trace.events.slot, trace.events.start_ns
    event_of = {number: event for event, number in enumerate(ids.tolist())}
    above = np.array([event_of.get(number, -1) for number in found.tolist()], np.int64)
    foreign = (above >= 0) & instant & instant[above] & (start == start[above])
    return np.where(foreign & (slot != slot[above]), -1, found)


def _check_slot(
    low: int, high: int, trace: Trace, ids: Column, found: Column, overlap: Column
) -> None:
    events = trace.events
    slot = f"slot {events.slot[low]}"
    ranges = events.kind == Kind.RANGE

    def of(rows: Column) -> list[int] | None:
        columns = (events.start_ns[rows], events.end_ns[rows], ranges[rows])
        return parents(*(column.tolist() for column in columns))

    rows = np.arange(low, high)
    together = of(rows)
    fits = together is not None and max(depths(together)) < MOST_NESTED
    if fits:
        assert not overlap[rows].any(), f"{slot}: what nests was moved to other lanes"
    for lane in np.unique(overlap[rows]).tolist():
        on_lane = rows[overlap[rows] == lane]
        parent = of(on_lane)
        assert parent is not None, f"{slot}: ranges on overlap {lane} overlap"
        wanted = np.append(ids[on_lane], -1)[parent]
        wrong = np.flatnonzero(found[on_lane] != wanted)
        assert not len(wrong), (
            f"{slot}: event {on_lane[wrong[0]] - low} lies in slice {found[on_lane][wrong[0]]}, "
            f"not in {wanted[wrong[0]]}"
        )
