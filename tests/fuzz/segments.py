"""Segments that something else wrote to: refused, decoded with a note, or decoded as before."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from random import Random

import numpy as np

from ikp.core import abi
from ikp.core.abi import ClockKind, Kind, Option, OverflowMode, PayloadType, SlotState
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.segment import Selection
from ikp.core.trace import Trace
from ikp.errors import DecodeError
from tests.core.decoding.checks import assert_consistent
from tests.fuzz.mutations import IN_PLACE, RESIZING, how_many
from tests.segments import LAUNCH, Launch, Record, Segment, Warp, nbytes
from tests.totals import SummingSegment

STEPS = [Record(100 * i, None if i == 3 else 100 * i + 50, i, np.uint32(i)) for i in range(1, 8)]


@dataclass(frozen=True, slots=True)
class Subject:
    """A segment as a kernel left it, and what is decoded from it."""

    name: str
    source: SegmentSource
    trace: Trace


@cache
def subjects() -> tuple[Subject, ...]:
    """Return segments of every kind that kernels write."""
    made: dict[str, Segment] = {}
    for clock in ClockKind:
        for overflow in OverflowMode:
            for unfinished in (0, 1, 3):
                name = f"{clock.name} {overflow.name} {unfinished} unfinished"
                made[name] = _recorded(clock, overflow, unfinished)
    for clock in (ClockKind.CYCLES, ClockKind.GLOBALTIMER):
        made[f"{clock.name} totals"] = _recorded(clock, OverflowMode.STOP, 1, SummingSegment)
    made["chosen"] = _chosen()
    made["placed"] = _placed()
    made["used twice"] = _used_twice()
    made["many small slots"] = _many()
    sources = {name: _source(name, segment) for name, segment in made.items()}
    return tuple(Subject(name, source, decode([source])) for name, source in sources.items())


def _source(name: str, segment: Segment) -> SegmentSource:
    """Return a segment as a session hands it to the decoder, with what that asked for."""
    source = segment.source(name)
    head = source.data[: abi.LAUNCH_HEADER_BYTES].view(abi.LAUNCH_HEADER)[0]
    clock, overflow = ClockKind(int(head["clock"])), OverflowMode(int(head["overflow"]))
    selection = Selection.of(head) if head["options"] & Option.SELECTED else None
    return replace(source, clock=clock, overflow=overflow, selection=selection)


def _recorded(
    clock: ClockKind,
    overflow: OverflowMode,
    unfinished: int,
    kind: type[Segment] = Segment,
) -> Segment:
    """Return 3 blocks of 2 warps with room for 4 records (2 wide ones), some of which are full."""
    warps = {
        (b, w): Warp(
            STEPS[: 1 + 2 * b + w],
            init=b,
            finish=None if b < unfinished else 10_000 + b,
            sm=b % 2,
            role=b,
        )
        for b in range(3)
        for w in range(2)
    }
    launch = Launch(warps, grid=(3, 1, 1), block=(64, 1, 1), overflow=overflow, clock=clock)
    segment = kind(nbytes(6, 4, spare=48))
    segment.run(launch)
    return segment


def _chosen() -> Segment:
    """Return what every eighth block and every other warp recorded."""
    segment = _recorded(ClockKind.CYCLES, OverflowMode.STOP, 0)
    words = {"grid_x": 24, "block_x": 128, "warps_per_block": 4, "options": Option.SELECTED}
    words |= {"warps": 0b0101, "first_block": 0, "block_step": 8, "block_count": 0xFFFFFFFF}
    for name, word in words.items():
        segment.poke(LAUNCH[name], word)
    return segment


def _placed() -> Segment:
    """Return records at indices that the kernel gave: 2, 0, 1 in each slot, 1 a hole in some."""
    segment = Segment(nbytes(4, 5))
    warps = {(b, 0): Warp(STEPS[:3], finish=10_000) for b in range(4)}
    segment.run(Launch(warps, grid=(4, 1, 1)))
    for slot in range(4):
        for record, step in enumerate(STEPS[:3]):
            kind = Kind.PLACED_INSTANT if step.end is None else Kind.PLACED_RANGE
            at = segment.record_at(slot, record)
            segment.poke(at, abi.tag(kind, PayloadType.U32, step.region))
        if slot % 2:
            at = segment.record_at(slot, 1)
            segment.data[at : at + 16] = bytes(16)
    return segment


def _used_twice() -> Segment:
    segment = Segment(nbytes(4, 5))
    for records, finish in ((5, 10_000), (2, 10_000)):
        warps = {(b, 0): Warp(STEPS[:records], finish=finish) for b in range(4)}
        segment.run(Launch(warps, grid=(4, 1, 1), grid_id=70 + records))
    return segment


def _many() -> Segment:
    """Return so many slots that the segment's size alone can't tell their number exactly."""
    segment = Segment(nbytes(96, 2, spare=100))
    warps = {(b, 0): Warp(STEPS[: b % 4], finish=10_000, sm=b % 7) for b in range(96)}
    segment.run(Launch(warps, grid=(96, 1, 1)))
    return segment


def mutated(random: Random) -> tuple[Subject, bytes]:
    """Return a subject, and its bytes after something else wrote to them."""
    subject = random.choice(subjects())
    data = bytearray(subject.source.data.tobytes())
    for _ in range(how_many(random)):
        random.choice(IN_PLACE)(data, random, _place(data, random))
    if random.random() < 0.02 and data:
        random.choice(RESIZING)(data, random, random.randrange(len(data)))
    return subject, bytes(data)


def _place(data: bytes, random: Random) -> int:
    """Return a place in the launch header, in the headers of slots, or anywhere."""
    at = random.randrange(len(data))
    head = abi.LAUNCH_HEADER_BYTES
    slot = int.from_bytes(data[LAUNCH["slot_bytes"] :][:4], "little")
    where = random.randrange(4)
    if where == 0:
        return at % head
    if where == 1 and at >= head and 0 < slot < len(data):
        header = head + (at - head) // slot * slot + at % abi.SLOT_HEADER_BYTES
        return min(header, len(data) - 1)
    return at


def attempt(random: Random) -> str:
    """Decode one mutated segment; return what came of it.

    ``refused``: not decoded, and told why. ``same``: each warp has as many records as before.
    ``told``: not so, and the launch's notes say that something is wrong or missing.
    ``untellable``: not so, and nothing in the bytes could tell. ``silent``: not so, and it could.

    Raises:
        Exception: the decoder's own fault.
    """
    subject, data = mutated(random)
    source = replace(subject.source, data=np.frombuffer(data, np.uint8))
    try:
        trace = decode([source])
    except DecodeError:
        return "refused"
    assert_consistent(trace)
    before, after = counts(subject.trace), counts(trace)
    if before == after:
        return "same"
    if not trace.launches or tellers(trace) - tellers(subject.trace):
        return "told"  # of a launch that there is not, the session says that no kernel ran
    places = [place for place in before | after if before.get(place) != after.get(place)]
    reasons = {_why_untellable(data, subject.trace, *place, after) for place in places}
    return "silent" if None in reasons else "untellable"


def tellers(trace: Trace) -> set[str]:
    """Return the notes that say of a launch that something is wrong or missing.

    A number of dropped records that is wrong itself tells nothing.
    """
    notes = {note for launch in trace.launches for note in launch.notes}
    return {re.sub(r"^\d+ (\w+ dropped).*", r"\1", note) for note in notes}


Counts = dict[tuple[int, int], tuple[int, int]]


def counts(trace: Trace) -> Counts:
    """Return how many records, or totals, each warp of each block has, and had."""
    columns = (
        getattr(trace.slots, name).tolist() for name in ("block", "warp", "kept", "attempted")
    )
    return {(b, w): (kept, had) for b, w, kept, had in zip(*columns, strict=True)}


def _why_untellable(data: bytes, trace: Trace, block: int, warp: int, counts: Counts) -> str | None:
    """Say why a warp's count can be wrong with nothing in the bytes that contradicts it.

    Looks at the bytes by itself, so that the decoder is not its own judge.
    """
    launch = trace.launches[0]
    record = abi.WIDE_RECORD if launch.clock.bits > abi.WORD_BITS else abi.RECORD
    header = np.frombuffer(data[: abi.LAUNCH_HEADER_BYTES], abi.LAUNCH_HEADER)[0]
    if header["launches"] != 1:
        return "records of an earlier launch may stand anywhere"
    order = sorted(counts)
    if (block, warp) not in order or len(order) != len(trace.slots):
        return None
    had = counts[block, warp][1]
    if had >= launch.capacity:
        return "how many were dropped stands there once"
    if launch.overflow == "stream":
        return "behind a stream's count may be records that came after the copy of the count"
    size = int(header["slot_bytes"])
    slot = data[abi.LAUNCH_HEADER_BYTES + order.index((block, warp)) * size :][:size]
    head = np.frombuffer(slot[: abi.SLOT_HEADER_BYTES], abi.SLOT_HEADER)[0]
    records = np.frombuffer(
        slot[abi.SLOT_HEADER_BYTES :][: launch.capacity * record.itemsize], record
    )
    kinds = records["tag"] >> abi.KIND_SHIFT
    if np.isin(kinds, [Kind.PLACED_RANGE, Kind.PLACED_INSTANT]).any():
        return "where the kernel gives indices, a record that is gone is a hole"
    unread = records[had : had + 1] if head["state"] == SlotState.FINISHED else records[had:]
    # None: something is where there should be nothing.
    return None if any(unread.tobytes()) else "the records are gone as a whole, and the count, too"
