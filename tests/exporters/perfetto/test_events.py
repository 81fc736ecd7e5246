from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceMessage
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from ikp.core.abi import Kind, PayloadType
from ikp.exporters.perfetto._events import EventColumns, encode, payloads, widen_float
from ikp.exporters.perfetto._packets import Flows, Ids, argument
from ikp.exporters.perfetto._schema import Arg
from ikp.exporters.protobuf.varints import Numbers
from tests.exporters.perfetto.examples import ordered

BEFORE = 500
"""When the packet in front of a batch is."""
FLOATS = st.one_of(
    st.integers(0, (1 << 32) - 1),
    st.sampled_from([0x7F800001, 0xFF800001, 0x7FC00000, 0xFFFFFFFF, 0x7F800000, 0x80000000, 1]),
)

EVENT = st.fixed_dictionaries(
    {
        "start": st.one_of(st.integers(0, 1000), st.integers(0, (1 << 63) - 1)),
        "end": st.one_of(st.integers(0, 1000), st.integers(0, (1 << 63) - 1)),
        "kind": st.sampled_from(list(Kind)),
        "name": st.integers(1, 1 << 22),
        "track": st.integers(1, 1 << 22),
        "ticks": st.one_of(st.none(), st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 99)),
        "ticks_name": st.sampled_from([Arg.CYCLES, Arg.TICKS]),
        "payload_type": st.sampled_from(list(PayloadType)),
        "payload": FLOATS,
    }
)
"""What may stand in a packet; that ends lie behind starts does not concern how it is written."""


def batch(events: list[dict[str, int]], opens: list[int], closes: list[int]) -> EventColumns:
    def column(name: str, dtype: type = np.uint64) -> np.ndarray:
        return np.array([event[name] or 0 for event in events], dtype)

    shown = np.array([event["ticks"] is not None for event in events], bool)
    ticks, named = column("ticks", np.int64), column("ticks_name")
    return EventColumns(
        before=BEFORE,
        start=column("start", np.int64),
        end=column("end", np.int64),
        is_range=column("kind", np.uint8) == Kind.RANGE,
        name=Numbers.of(column("name")),
        track=Numbers.of(column("track")),
        args=(
            argument(Arg.CYCLES, Numbers.of(ticks, shown & (named == Arg.CYCLES))),
            argument(Arg.TICKS, Numbers.of(ticks, shown & (named == Arg.TICKS))),
            *payloads(column("payload", np.uint32), column("payload_type", np.uint8)),
        ),
        opens=np.array(opens, np.int64),
        closes=np.array(closes, np.int64),
    )


def packet(time: int, kind: int, track: int) -> TracePacket:
    made = TracePacket(timestamp=time, trusted_packet_sequence_id=1, sequence_flags=2)
    made.track_event.type = kind
    made.track_event.track_uuid = track
    return made


def serialized(packets: Iterable[TracePacket]) -> bytes:
    """Return packets of which each says how much later it is than the one in front of it."""
    before, made = BEFORE, []
    for one in packets:
        step = TracePacket.FromString(one.SerializeToString())
        step.timestamp = (one.timestamp - before) % (1 << 64)
        before = one.timestamp
        made.append(step)
    return bytes(TraceMessage(packet=made).SerializeToString())


def opening(event: dict[str, int]) -> TracePacket:
    made = packet(event["start"], 1 if event["kind"] == Kind.RANGE else 3, event["track"])
    made.track_event.name_iid = event["name"]
    if event["ticks"] is not None:
        made.track_event.debug_annotations.add(
            name_iid=event["ticks_name"], int_value=event["ticks"]
        )
    bits = np.array([event["payload"]], np.uint32)
    if event["payload_type"] != PayloadType.NONE:
        argument = made.track_event.debug_annotations.add(name_iid=Arg.PAYLOAD)
        if event["payload_type"] == PayloadType.U32:
            argument.uint_value = int(bits[0])
        elif event["payload_type"] == PayloadType.I32:
            argument.int_value = int(bits.view(np.int32)[0])
        else:
            argument.double_value = float(widen_float(bits).view(np.float64)[0])
    return made


@given(st.lists(EVENT, max_size=12), st.randoms(use_true_random=False))
def test_packets_are_the_bytes_that_the_protobuf_library_writes(
    events: list[dict[str, int]], random: object
) -> None:
    places = list(range(sum(1 + (event["kind"] == Kind.RANGE) for event in events)))
    random.shuffle(places)  # type: ignore[attr-defined]
    wanted: list[TracePacket] = [TracePacket()] * len(places)
    opens, closes = [], []
    for event in events:
        opens.append(places.pop())
        wanted[opens[-1]] = opening(event)
        is_range = event["kind"] == Kind.RANGE
        closes.append(places.pop() if is_range else opens[-1])
        if is_range:
            wanted[closes[-1]] = packet(event["end"], 2, event["track"])
    found = encode(batch(events, opens, closes))
    assert ordered(found.tobytes()) == serialized(wanted)


IDS = st.lists(st.integers(1, (1 << 64) - 1), max_size=20)


@given(
    st.lists(st.tuples(EVENT, IDS, IDS, IDS), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_packets_with_flows_are_the_bytes_that_the_protobuf_library_writes(
    events: list[tuple[dict[str, int], list[int], list[int], list[int]]], random: object
) -> None:
    ranges = [event["kind"] == Kind.RANGE for event, *_ in events]
    places = list(range(len(events) + sum(ranges)))
    random.shuffle(places)  # type: ignore[attr-defined]
    wanted: list[list[TracePacket]] = [[] for _ in places]
    opens, closes = [], []
    for (event, leaving, arriving, late), is_range in zip(events, ranges, strict=True):
        opens.append(places.pop())
        opened = opening(event)
        opened.track_event.flow_ids.extend(leaving)
        opened.track_event.terminating_flow_ids.extend(arriving)
        wanted[opens[-1]] = [opened]
        closes.append(places.pop() if is_range else opens[-1])
        if is_range:
            wanted[closes[-1]] = [packet(event["end"], 2, event["track"])]
            if late:
                instant = packet(event["end"], 3, event["track"])
                instant.track_event.name = "arrow"
                instant.track_event.terminating_flow_ids.extend(late)
                wanted[closes[-1]].insert(0, instant)
    made = batch([event for event, *_ in events], opens, closes)
    late = [ids if is_range else [] for (*_, ids), is_range in zip(events, ranges, strict=True)]
    flows = Flows(ids(one for _, one, *_ in events), ids(one for _, _, one, _ in events), ids(late))
    found = encode(replace(made, flows=flows))
    assert ordered(found.tobytes()) == serialized(chain.from_iterable(wanted))


def ids(lists: Iterable[list[int]]) -> Ids:
    each = list(lists)
    count = np.array([len(one) for one in each], np.int64)
    numbers = np.array([number for one in each for number in one], np.uint64)
    return Ids(np.repeat(np.arange(len(each)), count), numbers.view(np.int64), count)


@given(st.lists(EVENT, min_size=1, max_size=12))
def test_ranges_alone_in_cycles_are_the_same_bytes(events: list[dict[str, int]]) -> None:
    ranges = [
        event | {"kind": Kind.RANGE, "ticks_name": Arg.CYCLES, "ticks": event["ticks"] or 0}
        for event in events
    ]
    opens = list(range(0, 2 * len(ranges), 2))
    made = batch(ranges, opens, [place + 1 for place in opens])
    wanted = [
        one for event in ranges for one in (opening(event), packet(event["end"], 2, event["track"]))
    ]
    assert ordered(encode(made).tobytes()) == serialized(wanted)


@given(st.lists(FLOATS))
def test_floats_become_doubles_bit_by_bit(bits: list[int]) -> None:
    words = np.array(bits, np.uint32)
    wide = widen_float(words)
    numbers = ~np.isnan(words.view(np.float32))
    np.testing.assert_array_equal(
        wide.view(np.float64)[numbers], words.view(np.float32)[numbers].astype(np.float64)
    )
    nan = wide[~numbers]
    assert np.isnan(nan.view(np.float64)).all()
    signs, fractions = nan >> np.uint64(63), nan >> np.uint64(29) & np.uint64(0x7FFFFF)
    np.testing.assert_array_equal(signs, words[~numbers] >> 31)
    np.testing.assert_array_equal(fractions, words[~numbers] & 0x7FFFFF)
