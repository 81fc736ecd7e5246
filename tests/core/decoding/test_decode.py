"""Bytes to columns: what a kernel did is what the trace says, field by field."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ikp.core import abi
from ikp.core.abi import ClockKind, Kind, OverflowMode, PayloadType
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import FIRST_RECORDS, SegmentSource
from ikp.core.regions import fallback_name, region_id
from ikp.errors import RegionError
from tests.core.decoding.checks import assert_holds
from tests.segments import EPOCH, LAUNCH, Device, Launch, Number, Record, Segment, Sm, Warp, nbytes

SMS = Device({0: Sm(0), 1: Sm(2**33 + 17), 2: Sm(2**32 - 100), 131: Sm(2**52 + 1)})
"""Counters that start at zero, wrap at once, and are years old."""
TIMER = Device(SMS.sms, timer_step=32)
HOST = Device({0: Sm(origin=123_456_789_012_345, hz=10**9)})

STEPS = (Record(100, 200, 3), Record(250, None, 4), Record(150, 300, 5))


def warps(blocks: int, per_block: int) -> dict[tuple[int, int], Warp]:
    """Return warps that differ in time, SM and number of records."""
    sms = sorted(SMS.sms)
    return {
        (b, w): Warp(
            [replace(r, start=r.start + b, end=r.end and r.end + b) for r in STEPS[: 1 + b % 3]],
            init=b,
            finish=1000 + 10 * b + w,
            sm=sms[b % len(sms)],
            role=w,
        )
        for b in range(blocks)
        for w in range(per_block)
    }


@pytest.mark.parametrize(
    ("grid", "block"),
    [
        ((1, 1, 1), (32, 1, 1)),
        ((7, 1, 1), (128, 1, 1)),
        ((3, 4, 5), (64, 1, 1)),
        ((1, 5, 2), (8, 4, 3)),
        ((2, 1, 3), (33, 1, 1)),  # the last warp of a block is not full
        ((2, 1, 1), (1024, 1, 1)),
        ((2, 2, 2), (1, 1, 1)),
    ],
)
def test_every_warp_of_every_block_comes_back(
    grid: tuple[int, int, int], block: tuple[int, int, int]
) -> None:
    shape = Launch({}, grid, block)
    launch = replace(shape, warps=warps(int(np.prod(grid)), shape.warps_per_block))
    segment = Segment(nbytes(launch.slots, 5, spare=launch.slots * 16 - 1), SMS)
    truth = segment.run(launch)
    trace = decode([segment.source()])
    assert_holds(trace, truth)
    (found,) = trace.launches
    assert found.warps_per_block == launch.warps_per_block
    assert (found.attempted, found.kept, found.dropped) == (truth.attempted, truth.attempted, 0)
    assert (found.unfinished, found.needed_bytes, found.relaunches, found.notes) == (0, 0, 0, ())
    roles = ["", *(f"region {w}" for w in range(1, trace.launches[0].warps_per_block))]
    assert [trace.roles[i] for i in trace.slots.role] == [roles[w] for w in trace.slots.warp]


@pytest.mark.parametrize(
    ("clock", "device"),
    [
        (ClockKind.CYCLES, SMS),
        (ClockKind.GLOBALTIMER, SMS),
        (ClockKind.GLOBALTIMER, TIMER),
        (ClockKind.HOST, HOST),
    ],
)
def test_each_clock_is_placed_on_the_same_axis(clock: ClockKind, device: Device) -> None:
    work = {at: replace(w, sm=0 if device is HOST else w.sm) for at, w in warps(9, 1).items()}
    segment = Segment(nbytes(9, 4), device)
    truth = segment.run(Launch(work, grid=(9, 1, 1), clock=clock))
    trace = decode([segment.source()])
    assert_holds(trace, truth, within_ns=1 if clock is ClockKind.CYCLES else 0)
    fit = trace.launches[0].clock
    assert fit.kind == clock.name.lower()
    assert fit.rate == ("fitted" if clock is ClockKind.CYCLES else "exact")
    assert fit.ns_per_tick == pytest.approx(0.5 if clock is ClockKind.CYCLES else 1)


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        (None, None),
        (np.uint32(0), 0.0),
        (np.uint32(2**32 - 1), 2.0**32 - 1),
        (np.int32(-1), -1.0),
        (np.int32(-(2**31)), -(2.0**31)),
        (np.float32(1.5), 1.5),
        (np.float32("-inf"), -np.inf),
        (np.float32("nan"), np.nan),
        (np.float32(1e-45), float(np.float32(1e-45))),  # the smallest there is
    ],
)
def test_payloads_come_back_bit_for_bit(payload: Number | None, value: float | None) -> None:
    segment = Segment(nbytes(1, 2))
    records = [Record(10, 20, 1, payload), Record(30, None, 1, payload)]
    truth = segment.run(Launch({(0, 0): Warp(records)}))
    trace = decode([segment.source()])
    assert_holds(trace, truth)
    assert trace.payload == pytest.approx([np.nan if value is None else value] * 2, nan_ok=True)
    has_none = trace.events.payload_type == PayloadType.NONE
    assert has_none.all() == (payload is None)


def test_ticks_are_exact_where_nanoseconds_are_not() -> None:
    device = Device({0: Sm(hz=1_977_777_777)})
    records = [Record(i * 1000, i * 1000 + i, 1) for i in range(1, 200)]
    segment = Segment(nbytes(1, 300), device)
    truth = segment.run(Launch({(0, 0): Warp(records, finish=300_000)}))
    trace = decode([segment.source()])
    assert_holds(trace, truth)
    assert trace.events.ticks.tolist() == [
        device.ticks(0, r.last) - device.ticks(0, r.start) for r in records
    ]


def test_unix_nanoseconds_keep_their_last_digit() -> None:
    segment = Segment(nbytes(1, 2))
    segment.run(Launch({(0, 0): Warp([Record(3, 5)], init=0, finish=1000)}))
    trace = decode([segment.source()])
    assert trace.events.start_ns.tolist() == [EPOCH + 3]
    assert trace.slots.end_ns.tolist() == [EPOCH + 1000]


def test_ranges_may_overlap_and_last_longer_than_their_warp_waits() -> None:
    # An async range opened before another one, closed after it, and one of no length.
    records = [Record(10, 30), Record(20, 40, 2), Record(40, 40, 3), Record(5, 1_000_000, 4)]
    segment = Segment(nbytes(1, 4))
    truth = segment.run(Launch({(0, 0): Warp(records)}))
    assert_holds(decode([segment.source()]), truth)


def test_a_kernel_may_record_nothing_and_is_told_what_to_check() -> None:
    segment = Segment(nbytes(4, 1))
    truth = segment.run(Launch({(b, 0): Warp() for b in range(4)}, grid=(4, 1, 1)))
    trace = decode([segment.source()])
    assert_holds(trace, truth)
    assert len(trace.events) == 0
    assert trace.regions == ()
    (note,) = trace.launches[0].notes
    assert note.startswith("no records: 4 warps ran from ikp.init to the end and closed no range")
    assert "each ikp.start has its ikp.end" in note


def test_memory_that_no_kernel_wrote_to_is_no_launch() -> None:
    segment = Segment(nbytes(4, 3))
    ran = Segment(nbytes(1, 3))
    truth = ran.run(Launch({(0, 0): Warp(STEPS)}))
    trace = decode([segment.source("idle"), ran.source("busy"), segment.source("idle")])
    assert [launch.label for launch in trace.launches] == ["busy"]
    assert_holds(trace, truth)
    assert decode([]).launches == decode([segment.source()]).launches == ()


def test_launches_stand_in_order_each_with_its_own_facts() -> None:
    first, second = Segment(nbytes(4, 3), SMS), Segment(nbytes(2, 2), TIMER)
    truths = [
        first.run(Launch(warps(4, 1), grid=(4, 1, 1))),
        second.run(
            Launch(warps(1, 2), block=(64, 1, 1), clock=ClockKind.GLOBALTIMER, grid_id=1),
        ),
    ]
    trace = decode(
        [
            first.source("a", device="one", backend="x"),
            second.source("b", device="two", backend="y"),
        ],
        provenance={"host": "here"},
    )
    assert_holds(trace, *truths)
    assert [(launch.label, launch.device, launch.backend) for launch in trace.launches] == [
        ("a", "one", "x"),
        ("b", "two", "y"),
    ]
    assert [launch.segment_bytes for launch in trace.launches] == [nbytes(4, 3), nbytes(2, 2)]
    assert trace.provenance == {"host": "here"}


@pytest.mark.parametrize(
    ("language", "name"), [(1, "triton"), (2, "gluon"), (3, "cute"), (0, "plugin"), (9, "plugin")]
)
def test_a_launch_says_what_its_kernel_was_written_in(language: int, name: str) -> None:
    segment = Segment(nbytes(1, 1))
    segment.run(Launch({(0, 0): Warp()}))
    segment.poke(LAUNCH["language"], language)
    (launch,) = decode([segment.source(backend="plugin")]).launches
    assert launch.backend == name


def regions_of(*launches: tuple[list[int], dict[int, str] | None], **names: object) -> list[str]:
    """Return the name of each event's region, for launches that record the given ids."""
    sources = []
    for ids, table in launches:
        segment = Segment(nbytes(1, 10))
        segment.run(Launch({(0, 0): Warp([Record(i, i + 1, id_) for i, id_ in enumerate(ids)])}))
        sources.append(segment.source(regions=table))
    trace = decode(sources, **names)  # type: ignore[arg-type]
    assert len(set(trace.regions)) == len(trace.regions)
    assert {trace.regions[i] for i in trace.events.region} == set(trace.regions), "unused ones"
    return [trace.regions[i].name for i in trace.events.region]


def test_regions_are_named_by_backend_and_host() -> None:
    load = region_id("load")
    ids = [load, 0, 7, load, abi.MAX_USER_REGION]
    names = {load: "load", region_id("never recorded"): "never recorded"}
    assert regions_of((ids, {0: "zero", 7: "seven", 8: "eight"}), names=names) == [
        *("load", "zero", "seven", "load", fallback_name(abi.MAX_USER_REGION))
    ]


def test_ids_without_a_name_are_shown_as_numbers_and_kept_apart() -> None:
    unknown = [abi.HASHED_REGION, abi.REGION_MASK, 0, 3]
    assert regions_of((unknown, None)) == [
        *("region 0x0000000?", "region 0x3ffffff?", "region 0", "region 3")
    ]


def test_launches_may_number_their_regions_alike() -> None:
    load = region_id("load")
    tables = ({0: "copy", 1: "same"}, {0: "multiply", 1: "same"}, None)
    launches = [([0, 1, load], table) for table in tables]
    assert regions_of(*launches, names={load: "load"}) == [
        *("copy", "same", "load"),
        *("multiply", "same", "load"),
        *("region 0", "region 1", "load"),
    ]


def test_two_names_with_one_hash_are_refused_by_name() -> None:
    number = region_id("load")
    with pytest.raises(RegionError, match=rf"'load' and 'other' share the id {number:#x}.*rename"):
        regions_of(([number], {number: "other"}), names={number: "load"})


@pytest.mark.parametrize("overflow", OverflowMode)
def test_a_buffer_too_small_for_the_grid_says_what_would_do(overflow: OverflowMode) -> None:
    slots = 100
    size = abi.LAUNCH_HEADER_BYTES + slots * abi.min_slot_bytes(overflow) - 1
    work = {(b, 0): Warp(STEPS) for b in range(slots)}
    launch = Launch(work, grid=(slots, 1, 1), overflow=overflow)
    segment = Segment(size)
    segment.run(launch)
    trace = decode([segment.source("tiny")])
    (found,) = trace.launches
    assert (found.capacity, found.attempted, len(trace.slots)) == (0, 0, 0)
    (note,) = found.notes
    assert note == (
        f"nothing recorded: {size} bytes are too small for 100 warps; prof.buffer('tiny', "
        f"size={found.needed_bytes}) holds {FIRST_RECORDS} records per warp"
    )
    again = Segment(found.needed_bytes)
    truth = again.run(launch)
    trace = decode([again.source()])
    assert_holds(trace, truth)
    assert trace.launches[0].capacity == FIRST_RECORDS


def test_warps_that_never_reached_init_are_counted() -> None:
    segment = Segment(nbytes(12, 3), SMS)
    work = {at: w for at, w in warps(6, 2).items() if at[0] != 2 and at != (4, 1)}
    truth = segment.run(Launch(work, grid=(6, 1, 1), block=(64, 1, 1)))
    trace = decode([segment.source()])
    assert_holds(trace, truth)
    assert trace.launches[0].notes == (
        "3 warps never reached init (the kernel hung, failed, or exited early)",
    )


def test_a_million_ranges_of_8192_warps_decode() -> None:
    slots, ranges = 8192, 129
    data = np.zeros(nbytes(slots, ranges), np.uint8)
    segment = Segment(nbytes(1, 1))
    segment.run(Launch({(0, 0): Warp()}, block=(1024, 1, 1)))
    head = np.frombuffer(segment.data[:128], np.uint8).copy().view(abi.LAUNCH_HEADER)
    head["grid"], head["block"] = (16, 16, 4), (256, 1, 1)
    head["warps_per_block"], head["slot_bytes"] = 8, 64 + ranges * 16
    data[:128] = head.view(np.uint8)
    body = data[128:].reshape(slots, -1)
    heads = np.zeros(slots, abi.SLOT_HEADER)
    heads["init_ns"], heads["init_clock"] = EPOCH, np.arange(slots) % 132 << 40
    heads["finish_ns"] = EPOCH + 1_000_000
    heads["finish_clock"] = heads["init_clock"] + 2_000_000
    heads["sm"], heads["grid_id"] = np.arange(slots) % 132, head["grid_id"]
    heads["state"], heads["attempted"] = 3, ranges
    body[:, :64] = heads.view(np.uint8).reshape(slots, 64)
    records = np.zeros((slots, ranges), abi.RECORD)
    records["tag"] = abi.tag(Kind.RANGE, PayloadType.U32, 1)
    records["start"] = 10_000 * np.arange(ranges)
    records["end"] = records["start"] + 1 + np.arange(slots)[:, None]
    records["payload"] = np.arange(slots * ranges).reshape(slots, ranges)
    body[:, 64:] = records.view(np.uint8).reshape(slots, -1)
    trace = decode([SegmentSource("big", data)])
    assert len(trace.events) == 1_056_768
    assert np.array_equal(trace.events.payload, np.arange(slots * ranges, dtype=np.uint32))
    assert np.array_equal(trace.events.ticks, np.repeat(np.arange(slots) + 1, ranges))
    assert np.array_equal(trace.slots.block, np.arange(slots) // 8)
    assert trace.launches[0].dropped == 0


@pytest.mark.parametrize("records", [2, 3])  # of a slot: also where it is full
@pytest.mark.parametrize("clock", list(ClockKind))
def test_a_launch_may_name_the_range_from_init_to_finish(clock: ClockKind, records: int) -> None:
    shape = Launch({}, (3, 1, 1), (64, 1, 1), clock=clock)
    launch = replace(shape, warps=warps(3, 2))
    device = HOST if clock.unit is ClockKind.HOST else SMS
    wide = abi.WIDE_RECORD.itemsize if clock.bits == 64 else abi.RECORD_BYTES
    segment = Segment(nbytes(launch.slots, records, record_bytes=wide), device)
    truth = segment.run(launch)
    plain = decode([segment.source()])
    segment.poke(LAUNCH["whole"], 77)

    trace = decode([segment.source(regions={77: "all of it"})])

    events = trace.events
    whole = np.array([trace.regions[i].name == "all of it" for i in events.region])
    assert events.slot[whole].tolist() == list(range(launch.slots))
    assert (events.start_ns[whole] == trace.slots.start_ns).all()
    assert (events.end_ns[whole] == trace.slots.end_ns).all()
    assert events.start_ns[~whole].tolist() == plain.events.start_ns.tolist()
    (told,), (before,) = trace.launches, plain.launches
    assert told.dropped == before.dropped
    assert told.attempted == truth.attempted + launch.slots


def test_a_whole_range_of_a_region_that_nothing_names_is_told() -> None:
    segment = Segment(nbytes(6, 4))
    segment.run(Launch(warps(3, 2), (3, 1, 1), (64, 1, 1)))
    segment.poke(LAUNCH["whole"], 77)
    (told,) = decode([segment.source()]).launches
    assert ["77" in note and "something else wrote" in note for note in told.notes] == [True]
    assert decode([segment.source()], {77: "all"}).launches[0].notes == ()
