"""Files of layouts 1 and 2, which are read from their packets."""

from __future__ import annotations

import contextlib
import gzip
import tracemalloc
import zlib
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceMessage

from ikp.core.trace import Launch, Trace
from ikp.errors import ExportError
from ikp.exporters.perfetto import PerfettoExporter, older_reader
from ikp.exporters.perfetto import _inflate as inflate
from ikp.exporters.perfetto._rebuild import _check_range
from ikp.exporters.perfetto._schema import SUMMARY, Packet
from ikp.exporters.protobuf.damage import DamagedError
from ikp.exporters.protobuf.varints import BYTES, encoded_varint, tag
from tests.exporters.perfetto.examples import assert_same, inflated, warp, warps
from tests.exporters.perfetto.older import LAYOUT_1, LAYOUT_2, older_trace
from tests.totals import gemm

shared_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
TRACE = warps([[(0, 4), (2, 6), 7], [(1, 3)], []], names=["load", "dot"], notes=("n",))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "trace.pftrace"
    path.write_bytes((LAYOUT_2 / "overlapping.bin").read_bytes())
    return path


def read(path: Path) -> Trace:
    return PerfettoExporter().read(path)


def messages(path: Path) -> TraceMessage:
    return TraceMessage.FromString(inflated(path))


def rewrite(path: Path, message: TraceMessage) -> None:
    path.write_bytes(message.SerializeToString())


def test_a_file_without_compression_is_read_too(path: Path) -> None:
    path.write_bytes(inflated(path))
    assert_same(read(path), TRACE)


def test_a_file_compressed_in_part_is_read_too(path: Path) -> None:
    outer, inner = TraceMessage.FromString(path.read_bytes()), messages(path)
    first = TraceMessage.FromString(inflated_packet(outer, 0))
    mixed = TraceMessage(packet=[*inner.packet[: len(first.packet)], *outer.packet[1:]])
    rewrite(path, mixed)
    assert_same(read(path), TRACE)


def inflated_packet(outer: TraceMessage, index: int) -> bytes:
    import zlib

    return zlib.decompress(outer.packet[index].compressed_packets)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"nowhere.pftrace can't be read: No such file"):
        read(tmp_path / "nowhere.pftrace")


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="can't be read: Is a directory"):
        read(tmp_path)


def test_an_empty_file(path: Path) -> None:
    path.write_bytes(b"")
    with pytest.raises(ExportError, match="is empty"):
        read(path)


@pytest.mark.parametrize(
    "content",
    [b'{"traceEvents": []}', b"\x89PNG\r\n\x1a\n", gzip.compress(b"x" * 99), b"\0" * 99],
    ids=["json", "png", "gzip", "zeros"],
)
def test_a_file_of_another_kind(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ExportError, match="is not a whole Perfetto trace: it does not consist of"):
        read(path)


def test_a_perfetto_trace_of_somebody_else(path: Path) -> None:
    theirs = TraceMessage()
    for time in range(9):
        packet = theirs.packet.add(timestamp=time, trusted_packet_sequence_id=7)
        packet.track_event.track_uuid = 1 << 63
        packet.track_event.type = 1 + time % 2
    rewrite(path, theirs)
    with pytest.raises(ExportError, match="is a Perfetto trace, but ikp did not write it"):
        read(path)


def test_another_version_of_the_layout(path: Path) -> None:
    message = messages(path)
    for packet in message.packet:
        if packet.track_event.name == SUMMARY:
            packet.track_event.debug_annotations[0].int_value = 5
    rewrite(path, message)
    with pytest.raises(
        ExportError, match=r"has version 5 of ikp's layout; this ikp reads versions 1, 2, 3 and 4\."
    ):
        read(path)


def test_files_of_the_first_layout_are_read_as_ever() -> None:
    """In them, each launch is a process, and ids count from 1."""
    assert_same(read(LAYOUT_1), older_trace())


def test_files_of_the_second_layout_are_read_as_ever() -> None:
    assert_same(read(LAYOUT_2 / "rich.bin"), older_trace())
    assert_same(read(LAYOUT_2 / "totals.bin"), gemm(2))


def test_a_file_cut_short_anywhere_is_refused(path: Path) -> None:
    content = path.read_bytes()
    for length in range(1, len(content), 3):
        path.write_bytes(content[:length])
        with pytest.raises(ExportError, match=r"is not a whole Perfetto trace: .*cut short"):
            read(path)


def test_packets_that_are_missing_are_missed(path: Path) -> None:
    message = messages(path)
    for index, packet in enumerate(message.packet):
        if packet.track_event.type == 4:  # counters are drawn, not read back
            continue
        without = TraceMessage(packet=[*message.packet[:index], *message.packet[index + 1 :]])
        rewrite(path, without)
        with contextlib.suppress(ExportError):
            # It is told elsewhere too: the end of a block's slice, the name of an SM's track.
            assert_same(read(path), TRACE)


@shared_folder
@given(st.data())
def test_damage_is_refused_or_harmless(path: Path, data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from([path.read_bytes(), inflated(path)])))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, content[place] ^ 8]))
    damaged = path.with_name("damaged.pftrace")
    damaged.write_bytes(content)
    with contextlib.suppress(ExportError):
        assert len(read(damaged).events) == len(TRACE.events)


@pytest.mark.parametrize("numbers", [[0, 1 << 31], [-(1 << 31) - 1, 0], [1 << 62]], ids=str)
def test_numbers_that_no_column_holds_are_refused(numbers: list[int]) -> None:
    rows = {"sm": np.array(numbers, np.int64)}
    with pytest.raises(DamagedError, match="a sm has an impossible number"):
        _check_range(rows, ("sm",))
    _check_range({"sm": np.clip(rows["sm"], -(1 << 31), (1 << 31) - 1)}, ("sm",))
    _check_range({"sm": rows["sm"][:0]}, ("sm",))


def test_evidence_that_a_newer_ikp_adds_is_no_obstacle(path: Path) -> None:
    message = messages(path)
    for packet in message.packet:
        if packet.track_event.name == "gemm":
            packet.track_event.debug_annotations.add(name="mood", string_value="good")
            for annotation in packet.track_event.debug_annotations:
                if annotation.name == "clock":
                    annotation.dict_entries.add(name="jitter_ns", double_value=0.5)
    rewrite(path, message)
    assert_same(read(path), TRACE)


def test_the_deepest_nesting_is_read(path: Path) -> None:
    path.write_bytes((LAYOUT_2 / "deep.bin").read_bytes())
    assert_same(read(path), warp(*((900 - i, 900 + i) for i in range(800))))


# What is made to do damage


def packed(*parts: bytes) -> bytes:
    """Return the parts, deflated as far as it goes, as a packet that holds packets."""
    deflater = zlib.compressobj(9)
    content = b"".join([*map(deflater.compress, parts), deflater.flush()])
    inner = tag(Packet.COMPRESSED_PACKETS, BYTES) + encoded_varint(len(content)) + content
    return tag(Packet.PACKET, BYTES) + encoded_varint(len(inner)) + inner


BOMBS = {
    "packets of nothing": [b"\x0a\x00" * (1 << 15)] * 128,
    "one packet of zeros": [b"\x0a" + encoded_varint(8 << 20), *[bytes(1 << 20)] * 8],
}


@pytest.mark.parametrize("parts", BOMBS.values(), ids=BOMBS)
def test_a_file_is_inflated_no_further_than_its_size_explains(
    path: Path, parts: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflate, "LEAST", 1 << 18)
    monkeypatch.setattr(inflate, "PIECE", 1 << 16)
    with path.open("ab") as file:
        file.write(packed(*parts))
    size = path.stat().st_size
    most = (1 << 18) + 32 * size
    assert 4 * most < 8 << 20
    tracemalloc.start()
    try:
        with pytest.raises(ExportError, match=rf"pftrace has {size:,} bytes, and inflates to"):
            read(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12 * most


def test_the_environment_allows_more(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflate, "LEAST", 1000)
    path.write_bytes(path.read_bytes() + packed(b"\x0a\x00" * (1 << 19)))
    with pytest.raises(ExportError, match="set IKP_INFLATE_MIB to more in the environment"):
        read(path)
    monkeypatch.setenv("IKP_INFLATE_MIB", "4")
    assert_same(read(path), TRACE)
    monkeypatch.setenv("IKP_INFLATE_MIB", "a lot")
    with pytest.raises(ExportError, match="IKP_INFLATE_MIB='a lot' in the environment is no num"):
        read(path)


def test_parts_larger_than_are_taken_apart_together_are_read_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = inflated(path)
    for size in (50, 333, 1000):
        monkeypatch.setattr(inflate, "PIECE", size)
        monkeypatch.setattr(older_reader, "PIECE", size)
        for file in (content, packed(content)):
            path.write_bytes(file)
            assert_same(read(path), TRACE)


CLAIMS = ["launches", "slots", "events"]


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("count", [-1, 0, 10**12, (1 << 63) - 1])
def test_a_count_that_is_not_so_takes_no_memory(path: Path, name: str, count: int) -> None:
    message = messages(path)
    for packet in message.packet:
        for annotation in packet.track_event.debug_annotations:
            if packet.track_event.name == SUMMARY and annotation.name == name:
                annotation.int_value = count
    rewrite(path, message)
    tracemalloc.start()
    try:
        with pytest.raises(ExportError, match=f"{count}|doesn't say how many {name}"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_ids_of_tracks_may_not_ask_for_an_endless_table(path: Path) -> None:
    message = messages(path)
    message.packet.add().track_descriptor.uuid = 1 << 27
    rewrite(path, message)
    with pytest.raises(ExportError, match="a track has an impossible id"):
        read(path)


def test_a_first_track_of_64_bits_is_refused(path: Path) -> None:
    """Found by the fuzzer: once an OverflowError."""
    message = messages(path)
    first = next(one for one in message.packet if one.HasField("track_descriptor"))
    first.track_descriptor.uuid = (1 << 64) - 1
    rewrite(path, message)
    with pytest.raises(ExportError, match="ikp did not write it"):
        read(path)


def test_arguments_that_events_have_no_room_for_are_refused(path: Path) -> None:
    message = messages(path)
    for packet in message.packet:
        if packet.track_event.name == SUMMARY:
            args = packet.track_event.debug_annotations.add(name="args")
            for number in range(3_000):
                entry = args.array_values.add()
                entry.dict_entries.add(name="name", string_value=str(number))
                entry.dict_entries.add(name="type", string_value="int")
    message.packet.extend([message.packet[-1]] * 30_000)
    rewrite(path, message)
    with pytest.raises(ExportError, match="inflates to more than"):
        read(path)


def test_a_checksum_that_is_wrong_is_noticed(path: Path) -> None:
    content = packed(inflated(path))
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ExportError, match="a compressed part is damaged"):
        read(path)


@pytest.mark.parametrize("name", [field.name for field in fields(Launch)])
def test_evidence_of_another_type_is_refused(path: Path, name: str) -> None:
    message = messages(path)
    for packet in message.packet:
        if packet.track_event.name == "gemm" and packet.track_event.type == 1:
            found = [one for one in packet.track_event.debug_annotations if one.name == name]
            argument = found[0] if found else packet.track_event.debug_annotations.add(name=name)
            argument.ClearField("dict_entries")
            argument.ClearField("array_values")
            if argument.WhichOneof("value") == "string_value" or not found:
                argument.double_value = 0.5
            else:
                argument.string_value = "0.5"
    rewrite(path, message)
    with pytest.raises(ExportError, match="the evidence of a launch is incomplete"):
        read(path)
