from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import DebugAnnotation
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceMessage

from ikp.exporters.perfetto._schema import Annotation
from ikp.exporters.protobuf.damage import DamagedError
from ikp.exporters.protobuf.split import Fields, padded, split, whole
from ikp.exporters.protobuf.varints import encoded_varint

U64, I64 = st.integers(0, (1 << 64) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
ANNOTATIONS = st.builds(
    DebugAnnotation,
    name_iid=st.one_of(st.none(), st.integers(0, 200), U64),
    uint_value=st.one_of(st.none(), U64),
    name=st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=20)),
)


def split_all(messages: list[DebugAnnotation]) -> tuple[bytes, Fields]:
    parts = [one.SerializeToString() for one in messages]
    sizes = np.array([len(part) for part in parts], np.int64)
    content = b"".join(parts)
    return content, split(padded(content), np.cumsum(sizes) - sizes, sizes)


@given(st.lists(ANNOTATIONS, max_size=20))
def test_fields_are_those_that_the_protobuf_library_wrote(messages: list[DebugAnnotation]) -> None:
    content, fields = split_all(messages)
    count = len(messages)
    assert fields.column(Annotation.NAME_IID, count).tolist() == [m.name_iid for m in messages]
    assert fields.column(Annotation.UINT_VALUE, count).tolist() == [m.uint_value for m in messages]
    names = fields.numbered(Annotation.NAME)
    found = {
        row: content[start : start + size].decode()
        for row, start, size in zip(names.message, names.start, names.size, strict=True)
    }
    assert found == {row: m.name for row, m in enumerate(messages) if m.HasField("name")}


@given(st.lists(st.floats(), max_size=20))
def test_doubles_keep_their_bits(numbers: list[float]) -> None:
    _, fields = split_all([DebugAnnotation(double_value=number) for number in numbers])
    bits = fields.column(Annotation.DOUBLE_VALUE, len(numbers))
    np.testing.assert_array_equal(bits, np.array(numbers).view(np.uint64))


@given(st.lists(st.integers(0, 4), max_size=9))
def test_repeated_fields_stay_in_order(counts: list[int]) -> None:
    messages = [DebugAnnotation() for _ in counts]
    for message, count in zip(messages, counts, strict=True):
        for value in range(count):
            message.array_values.add(int_value=value)
    content, fields = split_all(messages)
    parts = fields.numbered(Annotation.ARRAY_VALUES)
    inner = split(padded(content), parts.start, parts.size)
    values = inner.column(Annotation.INT_VALUE, len(parts.start), default=0)
    for row, count in enumerate(counts):
        assert values[parts.message == row].tolist() == list(range(count))


@given(st.lists(st.binary(max_size=300), max_size=9))
def test_submessages_are_found_whatever_their_length(contents: list[bytes]) -> None:
    data = b"".join(b"\x0a" + encoded_varint(len(one)) + one for one in contents)
    starts, sizes = whole(padded(data), 0, len(data), 1)
    assert [
        data[start : start + size] for start, size in zip(starts, sizes, strict=True)
    ] == contents


@pytest.mark.parametrize("bytes_of_size", [1, 2, 3, 4, 5, 6])
def test_a_size_may_take_more_bytes_than_it_needs_up_to_five(bytes_of_size: int) -> None:
    size = bytes([0x80 | 3] + [0x80] * (bytes_of_size - 2) + [0]) if bytes_of_size > 1 else b"\x03"
    data = b"\x0a" + size + b"abc" + b"\x0a\x00"
    if bytes_of_size > 5:  # a file of so many GB was not written by one packet
        with pytest.raises(DamagedError, match="a packet is too long"):
            whole(padded(data), 0, len(data), 1)
    else:
        starts, sizes = whole(padded(data), 0, len(data), 1)
        assert (starts.tolist(), sizes.tolist()) == ([1 + len(size), len(data)], [3, 0])


@given(st.binary(max_size=60))
@example(b"\x8d\x00\x80\x80\x80\x80")  # a fixed field: not a varint, nor behind one
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    data = padded(content)
    try:
        fields = split(data, np.array([0]), np.array([len(content)]))
    except DamagedError:
        return
    assert (fields.start + fields.size <= len(content)).all()


@given(st.binary(max_size=60))
def test_any_bytes_are_packets_or_refused(content: bytes) -> None:
    try:
        starts, sizes = whole(padded(content), 0, len(content), 1)
    except DamagedError:
        return
    assert (starts + sizes <= len(content)).all()
    packets = TraceMessage()
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        assert start >= 2 and size >= 0
    assert not packets.packet


@pytest.mark.parametrize(
    "content",
    [
        b"\x08",  # a key and nothing behind it
        b"\x0a\x05ab",  # a text that is cut off
        b"\x0b\x01",  # a wire type that is not in use
        b"\x08" + b"\xff" * 11,  # a number without end
        b"\x0a" + encoded_varint((1 << 64) - 1) + b"ab",  # a length beyond all memory
        b"\x09\x01",  # a double that is cut off
    ],
)
def test_what_is_no_message_is_refused(content: bytes) -> None:
    with pytest.raises(DamagedError):
        split(padded(content), np.array([0]), np.array([len(content)]))
