"""Totals in every format: read back exactly, and by the viewers themselves."""

from __future__ import annotations

import csv
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from pyarrow import parquet

import ikp
from ikp import plugins, registry
from ikp.core.abi import Kind
from ikp.core.table import TOTAL_COLUMNS
from ikp.core.trace import Trace
from ikp.errors import ExportError, UsageError
from ikp.exporters.perfetto import PerfettoExporter
from ikp.exporters.perfetto import _writer as sums
from tests.exporters.perfetto.examples import assert_canonical, assert_same
from tests.exporters.test_hatchet import needs_viewer, viewed
from tests.segments import Warp
from tests.strategies import traces_with_totals
from tests.totals import gemm, recorded
from tests.trace_processor import check_trace, columns, open_trace
from tests.trace_processor.found import check_import

shared_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def made() -> Trace:
    """Return four warps that loaded 64 times 600 cycles and multiplied 64 times 1800."""
    return gemm()


@shared_folder
@given(trace=traces_with_totals())
def test_a_pftrace_gives_them_back(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "t.pftrace"
    PerfettoExporter().write(trace, path, force=True)
    assert_same(PerfettoExporter().read(path), trace)


@shared_folder
@given(trace=traces_with_totals())
def test_every_byte_is_as_the_protobuf_library_writes_it(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "t.pftrace"
    PerfettoExporter().write(trace, path, force=True)
    assert_canonical(path)


@pytest.mark.any_pins
@shared_folder
@given(trace=traces_with_totals())
def test_how_warps_are_cut_makes_no_difference(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "t.pftrace"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sums, "AT_ONCE", 1)
        PerfettoExporter().write(trace, path, force=True)
    assert_same(PerfettoExporter().read(path), trace)


@pytest.mark.tp
@settings(shared_folder, max_examples=settings.default.max_examples // 2)
@given(trace=traces_with_totals())
def test_perfetto_shows_each_warp_with_its_totals(trace: Trace, tmp_path: Path) -> None:
    names = [region.name for region in trace.regions]
    assume(len({"".join("_" if c in ".[]" else c for c in name) for name in names}) == len(names))
    path = tmp_path / "t.pftrace"
    PerfettoExporter().write(trace, path, force=True)
    check_trace(path, trace)


@pytest.mark.tp
def test_perfetto_finds_them_by_name(made: Trace, tmp_path: Path) -> None:
    for suffix in ("pftrace", "json"):
        made.save(tmp_path / f"t.{suffix}")
        sql = (
            "select s.dur, extract_arg(s.arg_set_id, '{0}totals.dot.count') n,"
            " extract_arg(s.arg_set_id, '{0}totals.dot.cycles') c,"
            " extract_arg(s.arg_set_id, '{0}totals.tile.instants') i"
            " from slice s where s.name = 'totals'"
        ).format("debug." if suffix == "pftrace" else "args.")
        with open_trace(tmp_path / f"t.{suffix}") as processor:
            check_import(processor)
            found = columns(processor, sql)
        assert {name: set(map(int, found[name])) for name in found} == {
            "dur": {100_000},
            "n": {64},
            "c": {115_200},
            "i": {3},
        }
        assert len(found["n"]) == 4


@pytest.mark.any_pins
@shared_folder
@given(trace=traces_with_totals())
def test_chrome_json_holds_each_total(trace: Trace, tmp_path: Path) -> None:
    assume(len({region.name or "(no name)" for region in trace.regions}) == len(trace.regions))
    trace.save(tmp_path / "t.json", force=True)
    content = json.loads((tmp_path / "t.json").read_text())
    found: Counter[tuple[Any, ...]] = Counter()
    for event in content["traceEvents"]:
        for name, one in event.get("args", {}).get("totals", {}).items():
            block = event["args"]["block"]
            if "instants" in one:
                found[block, name, "instants", one["instants"]] += 1
            if "count" in one:
                ticks = one.get("cycles", one.get("ticks"))
                found[block, name, one["count"], ticks, one["total_ns"]] += 1
    wanted: Counter[tuple[Any, ...]] = Counter()
    rows = zip(*(getattr(trace.totals, n).tolist() for n in trace.totals.__slots__), strict=True)
    for slot, region, kind, count, ticks, total_ns in rows:
        of = (int(trace.slots.block[slot]), trace.regions[region].name or "(no name)")
        more = (count, ticks, total_ns) if kind == Kind.RANGE else ("instants", count)
        wanted[*of, *more] += 1
    assert found == wanted


def test_tables_have_a_row_for_each(made: Trace, tmp_path: Path) -> None:
    frame = made.to_pandas()
    assert tuple(frame.columns) == TOTAL_COLUMNS
    dots = frame[frame.region == "dot"]
    assert dots["count"].tolist() == [64] * 4
    assert dots.ticks.tolist() == [115_200] * 4
    assert dots.total_ns.tolist() == [57_600] * 4
    assert dots.share.tolist() == [0.576] * 4
    assert list(zip(dots.block, dots.warp, strict=True)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    tiles = frame[frame.kind == "instant"]
    assert tiles["count"].tolist() == [3] * 4 and tiles.share.isna().all()
    for suffix in ("csv", "parquet"):
        made.save(tmp_path / f"t.{suffix}")
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["total_ns"] for row in rows] == [str(value) for value in frame.total_ns]
    table = parquet.read_table(tmp_path / "t.parquet").to_pydict()
    assert table["ticks"] == frame.ticks.tolist()
    assert json.loads(parquet.read_schema(tmp_path / "t.parquet").metadata[b"ikp"])


def test_a_table_of_events_and_totals_is_refused(made: Trace, tmp_path: Path) -> None:
    both = ikp.edit.concat([made, gemm(timeline=True)])
    assert len(both.events) and len(both.totals)
    for suffix in ("csv", "parquet"):
        with pytest.raises(UsageError, match="events and totals"):
            both.save(tmp_path / f"t.{suffix}")
    with pytest.raises(UsageError, match="events and totals"):
        both.to_pandas()
    both.save(tmp_path / "t.pftrace")
    assert_same(ikp.load(tmp_path / "t.pftrace"), both)


def test_a_trace_of_totals_that_is_empty_has_their_columns() -> None:
    empty = recorded({(0, 0): Warp()})
    assert not len(empty.totals) and tuple(empty.to_pandas().columns) == TOTAL_COLUMNS


@needs_viewer
@pytest.mark.parametrize(
    ("metric", "dot", "load"),
    [("cycles", 460_800, 153_600), ("normalized_cycles", 115_200, 38_400)],
)
def test_proton_viewer_prints_them(
    made: Trace, tmp_path: Path, metric: str, dot: float, load: float
) -> None:
    made.save(tmp_path / "t.hatchet")
    found = {(depth, name): value for depth, name, value in viewed(tmp_path / "t.hatchet", metric)}
    assert found[1, "gemm"] == pytest.approx(dot + load, rel=1e-3)
    assert found[2, "dot"] == pytest.approx(dot, rel=1e-3)
    assert found[2, "load"] == pytest.approx(load, rel=1e-3)
    assert "tile" not in {name for _, name in found}


def test_an_exporter_that_knows_no_totals_is_not_asked(
    made: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lines:
        interface, suffixes = plugins.INTERFACE, (".lines",)

        def write(self, trace: Trace, path: Any, *, force: bool = False) -> None:
            raise AssertionError

    monkeypatch.setattr(registry, "exporter_for_path", lambda _: Lines())
    with pytest.raises(ExportError, match="can't hold totals"):
        made.save(tmp_path / "t.lines")


def test_a_trace_that_contradicts_itself_is_refused(made: Trace, tmp_path: Path) -> None:
    faults = {
        "names a slot": {"slot": np.full(len(made.totals), 99, np.int32)},
        "names a region": {"region": np.full(len(made.totals), 99, np.int32)},
        "neither ranges nor instants": {"kind": np.full(len(made.totals), 5, np.uint8)},
        "is negative": {"ticks": np.full(len(made.totals), -1)},
        "sorted by slot": {"slot": made.totals.slot[::-1]},
    }
    for fault, columns_ in faults.items():
        broken = replace(made, totals=replace(made.totals, **columns_))
        for suffix in ("pftrace", "json", "csv", "parquet", "hatchet"):
            with pytest.raises(ExportError, match=fault):
                broken.save(tmp_path / f"t.{suffix}", force=True)
