"""Random traces, as a kernel would record them, for property tests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ikp.core.abi import Kind, PayloadType
from ikp.core.args import arg_column
from ikp.core.rows import make_totals
from ikp.core.trace import (
    ClockFit,
    Events,
    Launch,
    Region,
    Slots,
    Totals,
    make_columns,
)
from ikp.trace import Trace
from tests.others import without_records

NAMES = st.one_of(
    st.sampled_from(["load", "dot", 'say "x"', "it's", "a\\b", "ранг", "測量", "🙂", "x" * 3000]),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12),
)
"""Names that a user may give; a NUL can't be in one, because the processor's results end there."""

Event = tuple[int, int, int, int]
"""Kind, region, start, end."""


@dataclass
class Recorder:
    """A warp that records: what ends is written down, so events come in order of their ends."""

    now: int
    open: list[tuple[int, int]] = field(default_factory=list)  # region, start
    events: list[Event] = field(default_factory=list)

    def step(self, action: str, region: int, which: int, pause: int) -> None:
        """Open or close a range, or record an instant, ``pause`` later than the last step."""
        self.now += pause
        if action == "open":
            self.open.append((region, self.now))
        elif action == "instant":
            self.events.append((Kind.INSTANT, region, self.now, self.now))
        elif self.open:
            # Not the innermost one, where ``which`` says so: then ranges overlap.
            region, start = self.open.pop(-1 - which % len(self.open))
            self.events.append((Kind.RANGE, region, start, self.now))

    def close_all(self) -> None:
        """Close what is open, the innermost first."""
        while self.open:
            self.step("close", 0, 0, 0)


@st.composite
def recordings(
    draw: st.DrawFn, regions: int, start: int, scale: int, most: int = 14, overlap: bool = True
) -> list[Event]:
    """Return what one warp recorded from ``start`` on, with steps of 0 to 3 times ``scale`` ns."""
    recorder = Recorder(start)
    step = st.tuples(
        st.sampled_from(["open", "open", "close", "close", "instant"]),
        st.integers(0, regions - 1),
        st.sampled_from([0, 0, 0, 1, 2]) if overlap else st.just(0),
        st.sampled_from([0, 0, scale, 2 * scale, 3 * scale]),
    )
    for action in draw(st.lists(step, max_size=most)):
        recorder.step(*action)
    if draw(st.booleans()):
        recorder.close_all()
    return recorder.events


@st.composite
def launches(draw: st.DrawFn) -> Launch:
    """Return a launch of a few blocks, with any evidence."""
    kind = draw(st.sampled_from(["cycles", "cycles", "globaltimer", "host"]))
    numbers = st.floats(0, 1e6)
    kept = draw(st.integers(0, 1 << 40))
    return Launch(
        label=draw(NAMES),
        grid=draw(st.tuples(*[st.integers(1, 3)] * 3)),
        block=draw(st.tuples(*[st.integers(1, 1024)] * 3)),
        warps_per_block=draw(st.integers(1, 3)),
        device=draw(NAMES),
        backend=draw(st.sampled_from(["triton", "cute"])),
        clock=ClockFit(
            kind=kind,
            ns_per_tick=draw(numbers) if kind == "cycles" else 1.0,
            rate=draw(st.sampled_from(["fitted", "nominal"])) if kind == "cycles" else "exact",
            anchors=draw(st.integers(0, 1 << 20)),
            residual_sd_ns=draw(st.none() | numbers),
            residual_max_ns=draw(st.none() | numbers),
            bits=draw(st.sampled_from([32, 32, 64])),
        ),
        overflow=draw(st.sampled_from(["stop", "wrap"])),
        capacity=draw(st.integers(0, 1 << 20)),
        segment_bytes=draw(st.integers(0, (1 << 31) - 16)),
        attempted=kept + draw(st.sampled_from([0, 0, 1, 1234])),
        kept=kept,
        unfinished=draw(st.integers(0, 3)),
        relaunches=draw(st.integers(0, 3)),
        number=draw(st.sampled_from([0, 0, 77 << 31 | 5])),
        notes=tuple(draw(st.lists(NAMES.filter(bool), max_size=2))),
        rank=draw(st.sampled_from([None, None, 0, 1, 10_000])),
        kernel=draw(st.sampled_from(["", "void k<float>(float*)"])),
        replay=draw(st.sampled_from(["", "CUDA graph 1, replay 7, node 3"])),
    )


@st.composite
def traces(draw: st.DrawFn, most_launches: int = 3) -> Trace:
    """Return a trace of a few launches: blocks after and beside each other, ties, overlaps."""
    regions = draw(st.lists(NAMES, min_size=1, max_size=4))
    all_launches = draw(st.lists(launches(), max_size=most_launches))
    scale = draw(st.sampled_from([1, 32, 1000, 1 << 30]))
    now = draw(st.sampled_from([0, 1_700_000_000_000_000_000, (1 << 63) - (1 << 40)]))
    slots: list[dict[str, Any]] = []
    events: list[Event] = []
    for number, launch in enumerate(all_launches):
        for slot, recorded in draw(_warps(number, launch, len(regions), now, scale)):
            slots.append(slot)
            events += recorded
        now += draw(st.integers(0, 20)) * scale
    return Trace(
        launches=tuple(all_launches),
        regions=tuple(Region(7 * i, name) for i, name in enumerate(regions)),
        slots=make_columns(
            Slots, **{name: [slot[name] for slot in slots] for name in Slots.__slots__}
        ),
        events=_events(draw, all_launches, slots, events),
        provenance=draw(
            st.dictionaries(st.from_regex("[a-z_]{1,8}", fullmatch=True), NAMES.filter(bool))
        ),
        roles=("", "producer"),
    )


@st.composite
def traces_with_others(draw: st.DrawFn) -> Trace:
    """Return a trace of which some blocks left no records, by choice, but when and where."""
    trace = draw(traces())
    blocks = sorted(set(zip(trace.slots.launch.tolist(), trace.slots.block.tolist(), strict=True)))
    chosen = draw(st.sets(st.sampled_from(blocks))) if blocks else set()
    return without_records(trace, chosen)


@st.composite
def traces_with_args(draw: st.DrawFn) -> Trace:
    """Return a trace whose events have arguments of every type, or not."""
    trace = draw(traces())
    count = len(trace.events)
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "iteration": st.integers(-(1 << 63), (1 << 63) - 1),
        "cost": st.floats(allow_nan=False),
        "tail": st.booleans(),
        'say, "x"': NAMES.filter(bool),  # a table can't tell an empty text from none
    }
    columns = {
        name: draw(st.lists(st.none() | kind, min_size=count, max_size=count))
        for name, kind in kinds.items()
    }
    args = {name: arg_column(name, values, count) for name, values in columns.items()}
    return replace(trace, args=args)


@st.composite
def traces_with_totals(draw: st.DrawFn, most_launches: int = 3) -> Trace:
    """Return a trace of which some launches, or all, kept totals in place of events."""
    trace = draw(traces(most_launches))
    chosen = [draw(st.booleans()) for _ in trace.launches]
    summed = np.array(chosen, bool)[trace.slots.launch]
    keys = st.tuples(st.integers(0, len(trace.regions) - 1), st.sampled_from([1, 2]))
    amounts = st.tuples(st.integers(1, (1 << 33) - 1), *[st.integers(0, (1 << 62) - 1)] * 2)
    rows = [
        (slot, region, kind, count, *((ticks, total_ns) if kind == Kind.RANGE else (0, 0)))
        for slot in np.flatnonzero(summed).tolist()
        for (region, kind), (count, ticks, total_ns) in draw(
            st.dictionaries(keys, amounts, max_size=4)
        ).items()
    ]
    columns = dict(zip(Totals.__slots__, np.array(rows, np.int64).reshape(-1, 6).T, strict=True))
    return replace(
        trace,
        launches=tuple(
            replace(one, mode="totals" if totals else "timeline")
            for one, totals in zip(trace.launches, chosen, strict=True)
        ),
        events=Events(
            *(getattr(trace.events, n)[~summed[trace.events.slot]] for n in Events.__slots__)
        ),
        totals=make_totals(**columns),
    )


@st.composite
def _warps(
    draw: st.DrawFn, number: int, launch: Launch, regions: int, now: int, scale: int
) -> list[tuple[dict[str, Any], list[Event]]]:
    x, y, z = launch.grid
    blocks = draw(st.lists(st.integers(0, x * y * z - 1), unique=True, max_size=4).map(sorted))
    warps = []
    for block in blocks:
        sm = draw(st.integers(0, 2))
        start = now + draw(st.integers(0, 8)) * scale
        for warp in range(launch.warps_per_block):
            recorded = draw(recordings(regions, start, scale))
            last = max([start, *(event[3] for event in recorded)])
            finished = draw(st.booleans())
            attempted = len(recorded) + draw(st.sampled_from([0, 0, 5]))
            slot = {
                "launch": number,
                "block": block,
                "warp": warp,
                "sm": sm,
                "role": draw(st.sampled_from([0, 0, 1])),
                "start_ns": start,
                "end_ns": last + (draw(st.integers(0, 2)) * scale if finished else 0),
                "attempted": attempted,
                "kept": len(recorded),
                "finished": finished,
            }
            warps.append((slot, recorded))
    return warps


def _events(
    draw: st.DrawFn, all_launches: list[Launch], slots: list[dict[str, Any]], rows: list[Event]
) -> Events:
    slot = np.repeat(np.arange(len(slots)), [one["kept"] for one in slots])
    kind, region, start, end = np.array(rows, np.int64).reshape(-1, 4).T
    chosen = st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows))
    types = np.array(draw(chosen), np.int64)
    bits = st.lists(st.integers(0, (1 << 32) - 1), min_size=len(rows), max_size=len(rows))
    payload = np.where(types == PayloadType.NONE, 0, np.array(draw(bits), np.int64))
    launch = np.array([one["launch"] for one in slots], np.int64)[slot]
    cycles = np.array([one.clock.kind == "cycles" for one in all_launches], bool)[launch]
    ticks = np.where(cycles & (kind == Kind.RANGE), (end - start) * 2 + 1, end - start)
    return make_columns(
        Events,
        slot=slot,
        region=region,
        kind=kind,
        start_ns=start,
        end_ns=end,
        ticks=ticks + draw(st.sampled_from([0, 0, 1])) * (slot % 2),
        payload_type=types,
        payload=payload,
    )
