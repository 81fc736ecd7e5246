"""What a decoded trace must say: the truth that was kept beside the bytes, and no contradiction."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ikp.core.abi import Kind, PayloadType
from ikp.core.regions import fallback_name
from ikp.core.trace import Trace
from tests.segments import EventTruth, SlotTruth, Truth


def assert_holds(trace: Trace, *truths: Truth, within_ns: int = 1) -> None:
    """Compare all of ``trace`` with the truth: exactly, and times to ``within_ns``."""
    slots = [(i, slot) for i, truth in enumerate(truths) for slot in truth.slots]
    events = _events(truths)
    launches = trace.launches
    assert [launch.grid for launch in launches] == [truth.launch.grid for truth in truths]
    assert [launch.block for launch in launches] == [truth.launch.block for truth in truths]
    assert [launch.capacity for launch in launches] == [truth.capacity for truth in truths]
    assert trace.slots.launch.tolist() == [i for i, _ in slots]
    for name in ("block", "warp", "sm", "finished", "kept"):
        assert getattr(trace.slots, name).tolist() == [getattr(s, name) for _, s in slots], name
    roles = ["" if slot.role == 0 else fallback_name(slot.role) for _, slot in slots]
    assert [trace.roles[index] for index in trace.slots.role.tolist()] == roles
    for name in ("slot", "kind", "payload_type", "payload", "ticks"):
        assert getattr(trace.events, name).tolist() == [getattr(e, name) for e in events], name
    assert [trace.regions[i].id for i in trace.events.region] == [e.region for e in events]
    _assert_counts(trace, [slot for _, slot in slots])
    for table, rows in ((trace.slots, [slot for _, slot in slots]), (trace.events, events)):
        for name in ("start_ns", "end_ns"):
            true = np.array([getattr(row, name) for row in rows], np.int64)
            error = np.abs(getattr(table, name) - true).max(initial=0)
            assert error <= within_ns, f"{type(table).__name__}.{name} is {error} ns off"
    assert_consistent(trace)


def _events(truths: Iterable[Truth]) -> list[EventTruth]:
    first, events = 0, []
    for truth in truths:
        events += [event._replace(slot=event.slot + first) for event in truth.events]
        first += len(truth.slots)
    return events


def _assert_counts(trace: Trace, slots: list[SlotTruth]) -> None:
    """A warp that finished wrote its count down; else the decoder knows a lower bound."""
    true = np.array([slot.attempted for slot in slots], np.int64)
    told, finished = trace.slots.attempted, trace.slots.finished
    assert told[finished].tolist() == true[finished].tolist()
    assert (told <= true).all()


def _kept_events(trace: Trace) -> np.ndarray:
    """Return how many events each slot must have; of one that kept totals, none."""
    summed = np.array([launch.mode == "totals" for launch in trace.launches], bool)
    return np.where(summed[trace.slots.launch], 0, trace.slots.kept)


def assert_consistent(trace: Trace) -> None:
    """Check what every trace promises, whatever the bytes were that it was decoded from."""
    slots, events, launches = trace.slots, trace.events, trace.launches
    for table in (slots, events):
        lengths = {len(getattr(table, name)) for name in table.__dataclass_fields__}
        assert lengths == {len(table)}
        assert (table.start_ns >= 0).all()
        assert (table.start_ns <= table.end_ns).all()
    for index, size in (
        (slots.launch, len(trace.launches)),
        (events.slot, len(slots)),
        (events.region, len(trace.regions)),
        (slots.sm, 1 << 16),
        (slots.role, len(trace.roles)),
    ):
        assert ((index >= 0) & (index < size)).all()
    assert (np.diff(slots.launch) >= 0).all() and (np.diff(events.slot) >= 0).all()
    assert np.isin(events.kind, [Kind.RANGE, Kind.INSTANT]).all()
    assert np.isin(events.payload_type, list(PayloadType)).all()
    instant = events.kind == Kind.INSTANT
    assert (events.start_ns[instant] == events.end_ns[instant]).all()
    assert (events.ticks >= 0).all()
    bits = np.array([launch.clock.bits for launch in launches], np.int64)
    assert (events.ticks >> bits[slots.launch[events.slot]] == 0).all()
    assert np.bincount(events.slot, minlength=len(slots)).tolist() == _kept_events(trace).tolist()
    assert (slots.kept <= slots.attempted).all()
    for i, launch in enumerate(trace.launches):
        mine = slots.launch == i
        assert (slots.block[mine] < math.prod(launch.grid)).all() and (slots.block >= 0).all()
        assert (slots.warp[mine] < launch.warps_per_block).all() and (slots.warp >= 0).all()
        assert launch.attempted == slots.attempted[mine].sum()
        assert launch.kept == slots.kept[mine].sum()
        assert launch.unfinished == np.count_nonzero(~slots.finished[mine])
        assert np.isfinite([launch.clock.ns_per_tick, launch.clock.residual_max_ns or 0]).all()
        assert launch.clock.ns_per_tick > 0


def assert_same(one: Trace, other: Trace) -> None:
    """Compare all of two traces, to the last bit."""
    assert one.launches == other.launches
    assert (one.regions, one.roles) == (other.regions, other.roles)
    for table in ("slots", "events", "totals", "others"):
        mine, theirs = getattr(one, table), getattr(other, table)
        for name in mine.__dataclass_fields__:
            assert np.array_equal(getattr(mine, name), getattr(theirs, name)), f"{table}.{name}"
