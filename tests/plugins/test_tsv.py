"""The plugin's TSV: what a trace holds is what comes back."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from ikp.core.abi import Kind, PayloadType
from ikp.core.trace import Trace
from ikp.errors import ExportError
from tests.analysis.example import trace as example
from tests.strategies import traces

MODULE = Callable[[str], ModuleType]
EVENTS = [(0, 0, 10, 30), (0, 2, 30, 30), (3, 1, 15, 99)]


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, dialect=csv.excel_tab))


def parsed(row: dict[str, str]) -> tuple[Any, ...]:
    """Return a row's values with their types, the payload as bits."""
    numbers = ("launch", "block", "warp", "sm", "start_ns", "end_ns", "ticks")
    bits = {
        "none": lambda text: 0 if text == "" else None,
        "u32": lambda text: np.uint32(int(text)),
        "i32": lambda text: np.int32(int(text)).view(np.uint32),
        "f32": lambda text: np.float32(text).view(np.uint32),
    }[row["payload_type"]](row["payload"])
    words = (row["label"], row["region"], row["kind"], row["payload_type"])
    return (*(int(row[name]) for name in numbers), *words, bits)


def expected(trace: Trace) -> list[tuple[Any, ...]]:
    slots, events = trace.slots, trace.events
    found = []
    for i, slot in enumerate(events.slot):
        launch, payload_type = slots.launch[slot], PayloadType(events.payload_type[i])
        place = (launch, slots.block[slot], slots.warp[slot], slots.sm[slot])
        times = (events.start_ns[i], events.end_ns[i], events.ticks[i])
        names = (trace.launches[launch].label, trace.regions[events.region[i]].name)
        kinds = (Kind(events.kind[i]).name.lower(), payload_type.name.lower())
        bits = 0 if payload_type is PayloadType.NONE else events.payload[i]
        if payload_type is PayloadType.F32 and np.isnan(events.payload[i : i + 1].view("<f4"))[0]:
            bits = np.float32("nan").view(np.uint32)  # text knows one NaN
        found.append((*place, *times, *names, *kinds, bits))
    return found


def test_a_row_per_event_in_order(module: MODULE, tmp_path: Path) -> None:
    trace = example(EVENTS, payload={0: 7.0, 2: 0.1})
    trace.save(tmp_path / "t.tsv")
    rows = read(tmp_path / "t.tsv")
    assert [(r["region"], r["kind"]) for r in rows] == [
        ("load", "range"),
        ("tile done", "instant"),
        ("dot", "range"),
    ]
    assert [parsed(row) for row in rows] == expected(trace)
    assert list(rows[0]) == list(module("tsv_exporter").COLUMNS)


@given(trace=traces())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_trace_reads_back_exactly(module: MODULE, tmp_path: Path, trace: Trace) -> None:
    path = tmp_path / "any.tsv"
    module("tsv_exporter").TsvExporter().write(trace, path, force=True)
    assert [parsed(row) for row in read(path)] == expected(trace)


def test_a_file_that_exists_is_kept(registered: None, tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("mine")
    with pytest.raises(ExportError, match="force=True"):
        example(EVENTS).save(path)
    assert path.read_text() == "mine"
    example(EVENTS).save(path, force=True)
    assert len(read(path)) == len(EVENTS)
    assert [each.name for each in tmp_path.iterdir()] == ["t.tsv"]


def test_a_path_that_cannot_be_written_is_told(registered: None, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="can't be written"):
        example(EVENTS).save(tmp_path / "nowhere" / "t.tsv")


def test_what_fails_half_way_leaves_the_old_file(module: MODULE, tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("old")
    broken = example([(0, 99, 1, 2)])  # there is no region 99
    with pytest.raises(IndexError):
        module("tsv_exporter").TsvExporter().write(broken, path, force=True)
    assert [each.name for each in tmp_path.iterdir()] == ["t.tsv"]
    assert path.read_text() == "old"


def test_without_the_plugin_the_suffix_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"no exporter knows the suffix of 't\.tsv'"):
        example(EVENTS).save(tmp_path / "t.tsv")
