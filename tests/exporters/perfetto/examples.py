"""Small traces made by hand, and what the tests of the exporter compare."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import InternedData
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceMessage

from ikp.core.abi import Kind
from ikp.core.trace import ClockFit, Events, Launch, Region, Slots, make_columns
from ikp.trace import Trace

START = 1_700_000_000_000_000_000
CYCLES = ClockFit("cycles", 0.5, "fitted", 16, 12.0, 30.0)


def launch(label: str = "gemm", **changes: Any) -> Launch:
    """Return a launch of 8 blocks of 2 warps on a GPU."""
    values: dict[str, Any] = {
        "label": label,
        "grid": (4, 2, 1),
        "block": (64, 1, 1),
        "warps_per_block": 2,
        "device": "NVIDIA H200",
        "backend": "triton",
        "clock": CYCLES,
        "capacity": 16,
    }
    return Launch(**values | changes)


def warp(
    *events: tuple[int, int] | int, names: Sequence[str] = ("load",), **launch_changes: Any
) -> Trace:
    """Return what one warp recorded, in this order: ranges (start, end), instants (time)."""
    return warps([list(events)], names=names, **launch_changes)


def warps(
    recorded: Sequence[Sequence[tuple[int, int] | int]],
    *,
    blocks: Sequence[tuple[int, int, int]] | None = None,
    names: Sequence[str] = ("load",),
    **launch_changes: Any,
) -> Trace:
    """Return what blocks of one warp recorded; ``blocks`` has the SM, start and end of each."""
    rows = [
        (slot, Kind.INSTANT, event, event) if isinstance(event, int) else (slot, Kind.RANGE, *event)
        for slot, events in enumerate(recorded)
        for event in events
    ]
    slot, kind, start, end = np.array(rows, np.int64).reshape(-1, 4).T
    count = len(recorded)
    if blocks is None:
        last = [max((row[3] for row in rows if row[0] == i), default=0) for i in range(count)]
        blocks = [(i, 0, last[i]) for i in range(count)]
    sm, begin, stop = np.array(blocks, np.int64).reshape(-1, 3).T
    kept = np.bincount(slot, minlength=count)
    return Trace(
        launches=(
            launch(
                **{"warps_per_block": 1, "attempted": len(rows), "kept": len(rows)} | launch_changes
            ),
        ),
        regions=tuple(Region(i, name) for i, name in enumerate(names)),
        slots=make_columns(
            Slots,
            launch=np.zeros(count),
            block=np.arange(count),
            warp=np.zeros(count),
            sm=sm,
            role=np.zeros(count),
            start_ns=START + begin,
            end_ns=START + stop,
            attempted=kept,
            kept=kept,
            finished=np.ones(count),
        ),
        events=make_columns(
            Events,
            slot=slot,
            region=np.arange(len(rows)) % len(names),
            kind=kind,
            start_ns=START + start,
            end_ns=START + end,
            ticks=2 * (end - start),
            payload_type=np.zeros(len(rows)),
            payload=np.zeros(len(rows)),
        ),
        provenance={"ikp": "0.1.0"},
    )


def nothing(**changes: Any) -> Trace:
    """Return a trace without launches."""
    empty = {name: [] for table in (Slots, Events) for name in table.__slots__}
    return Trace(
        launches=changes.get("launches", ()),
        regions=(Region(1, "load"),),
        slots=make_columns(Slots, **{name: empty[name] for name in Slots.__slots__}),
        events=make_columns(Events, **{name: empty[name] for name in Events.__slots__}),
    )


def assert_same(found: Trace, wanted: Trace) -> None:
    """Fail unless two traces are equal, columns and their dtypes included."""
    assert found.launches == wanted.launches
    assert found.regions == wanted.regions
    assert found.provenance == wanted.provenance
    assert found.roles == wanted.roles
    assert list(found.args) == list(wanted.args)
    for name, column in wanted.args.items():
        assert found.args[name].values.dtype.kind == column.values.dtype.kind
        np.testing.assert_array_equal(found.args[name].values, column.values, name)
        np.testing.assert_array_equal(found.args[name].given, column.given, name)
    for table in ("slots", "events", "totals", "others"):
        for field in fields(getattr(wanted, table)):
            one, other = (getattr(getattr(trace, table), field.name) for trace in (found, wanted))
            assert one.dtype == other.dtype, f"{table}.{field.name}"
            np.testing.assert_array_equal(one, other, f"{table}.{field.name}")


def assert_canonical(path: Path) -> None:
    """Check that every byte of a file is one that the protobuf library writes."""
    ordered(inflated(path))


def ordered(packets: bytes) -> bytes:
    """Return packets with their fields in the order of their numbers, as the library writes them.

    Ours are in another order. But numbers are the shortest, and nothing is unknown: else parsing
    and writing changes how many bytes there are.
    """
    message = TraceMessage.FromString(packets)
    for packet in message.packet:
        interned = InternedData.FromString(packet.interned_data.SerializeToString())
        packet.DiscardUnknownFields()
        if packet.HasField("gpu_info"):  # kernels' names are in an extension
            packet.interned_data.CopyFrom(interned)
    made = bytes(message.SerializeToString())
    assert len(made) == len(packets)
    return made


def inflated(path: Path) -> bytes:
    """Return a file's packets for viewers, read by the protobuf library and zlib."""
    outer = TraceMessage.FromString(path.read_bytes())
    packed = (packet.compressed_packets for packet in outer.packet)
    return b"".join(zlib.decompress(content) for content in packed if content)
