from __future__ import annotations

from enum import IntEnum

import pytest
from google.protobuf.internal.encoder import TagBytes
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from ikp.exporters.perfetto import _schema as schema
from ikp.exporters.protobuf import varints

MESSAGES = {
    schema.Event: protos.TrackEvent,
    schema.Annotation: protos.DebugAnnotation,
    schema.Packet: protos.TracePacket,
    schema.Descriptor: protos.TrackDescriptor,
    schema.Gpu: protos.GpuInfo.Gpu,
}
KERNELS = "InternedComputeKernel"
if hasattr(protos, KERNELS):  # older packages do not know kernels
    stage = protos.GpuRenderStageEvent
    MESSAGES |= {
        schema.RenderStage: stage,
        schema.ComputeLaunch: stage.ComputeKernelLaunch,
        schema.ComputeArg: stage.ExtraComputeArg,
    }


@pytest.mark.parametrize("fields", MESSAGES, ids=lambda fields: fields.__name__)
def test_fields_have_the_numbers_of_perfetto_s_own_schema(fields: type[IntEnum]) -> None:
    theirs = {field.name: field.number for field in MESSAGES[fields].DESCRIPTOR.fields}
    theirs["sequence_id"] = theirs.get("trusted_packet_sequence_id", 0)
    theirs["packet"] = protos.Trace.DESCRIPTOR.fields_by_name["packet"].number
    assert {one.name.lower(): theirs[one.name.lower()] for one in fields} == {
        one.name.lower(): one.value for one in fields
    }


def test_columns_stand_where_perfetto_has_nothing() -> None:
    packet = protos.TracePacket.DESCRIPTOR
    assert max(field.number for field in packet.fields) < schema.COLUMNS < 1 << 16
    assert all(stop <= schema.COLUMNS for _, stop in packet.extension_ranges)


def test_events_have_the_types_of_perfetto_s_own_schema() -> None:
    theirs = dict(protos.TrackEvent.Type.items())
    assert {f"TYPE_{kind.name}": kind.value for kind in schema.EventType}.items() <= theirs.items()


def test_tracks_say_what_perfetto_s_own_schema_means() -> None:
    theirs = protos.TrackDescriptor
    assert schema.EXPLICIT == theirs.EXPLICIT
    assert schema.MERGE_NONE == theirs.SIBLING_MERGE_BEHAVIOR_NONE


def test_clocks_and_flags_are_perfetto_s() -> None:
    clocks = dict(protos.BuiltinClock.items())
    assert clocks["BUILTIN_CLOCK_REALTIME"] == schema.REALTIME
    assert max(clocks.values()) < schema.FIRST_GLOBAL_CLOCK
    flags = dict(protos.TracePacket.SequenceFlags.items())
    assert flags["SEQ_INCREMENTAL_STATE_CLEARED"] == schema.CLEARED_STATE
    assert flags["SEQ_NEEDS_INCREMENTAL_STATE"] == schema.NEEDS_STATE


@pytest.mark.parametrize("field", [1, 15, 16, 23, 60, 2047])
@pytest.mark.parametrize("wire_type", [varints.VARINT, varints.FIXED64, varints.BYTES])
def test_tags_are_written_as_protobuf_does(field: int, wire_type: int) -> None:
    assert varints.tag(field, wire_type) == TagBytes(field, wire_type)


def test_interned_names_take_one_byte() -> None:
    assert max(schema.Arg) < 128
