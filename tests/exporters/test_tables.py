"""CSV and Parquet, read back by the csv module, pandas and pyarrow: what was recorded, exactly."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyarrow import dataset, parquet

from ikp.core.args import arg_column
from ikp.core.table import COLUMNS
from ikp.core.trace import Trace
from ikp.errors import ExportError, PluginError
from ikp.exporters.csv_file import CsvExporter, _numbers
from ikp.exporters.parquet import ParquetExporter
from ikp.exporters.text import join
from ikp.plugins import EXPORTERS, load
from ikp.registry import exporter_for_path
from tests.exporters.perfetto.examples import nothing, warp
from tests.strategies import traces_with_args

shared_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
WORDS = {"label", "role", "region", "kind", "clock"}
ARGS = {
    "iteration": [3, None, -(1 << 63)],
    "cost": [0.1, None, -0.0],
    "tail": [True, None, False],
    'say, "x"': ["測量\nnext", None, "a,b"],
}


def rows(trace: Trace) -> list[dict[str, Any]]:
    """Return what each row must hold; None where nothing is."""
    slots, events = trace.slots, trace.events
    found = []
    for i, slot in enumerate(events.slot.tolist()):
        launch = int(slots.launch[slot])
        x, y, _ = trace.launches[launch].grid
        block = int(slots.block[slot])
        start, end = int(events.start_ns[i]), int(events.end_ns[i])
        payload = float(trace.payload[i])
        values = (
            *(launch, trace.launches[launch].label, trace.launches[launch].rank),
            *(block, block % x, block // x % y, block // (x * y)),
            *(int(slots.warp[slot]), int(slots.sm[slot]), trace.roles[slots.role[slot]]),
            trace.regions[events.region[i]].name,
            "range" if events.kind[i] == 1 else "instant",
            *(start, end, end - start, int(events.ticks[i]), trace.launches[launch].clock.kind),
            None if math.isnan(payload) else payload,
        )
        args = {name: column.value(i) for name, column in trace.args.items()}
        found.append({**dict(zip(COLUMNS, values, strict=True)), **args})
    return found


def read_csv(content: bytes) -> list[dict[str, Any]]:
    table = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
    number: dict[str, Callable[[str], Any]] = {"payload": float, "cost": float}
    number |= {"tail": lambda text: text == "True", 'say, "x"': str}
    return [
        {
            name: text if name in WORDS else number.get(name, int)(text) if text else None
            for name, text in row.items()
        }
        for row in table
    ]


def with_args(trace: Trace) -> Trace:
    args = {name: arg_column(name, values, 3) for name, values in ARGS.items()}
    return replace(trace, args=args)


def same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    assert [list(row) for row in found] == [list(row) for row in wanted]
    assert [repr(row) for row in found] == [repr(row) for row in wanted]  # -0.0 is not 0.0


@shared_folder
@given(trace=traces_with_args())
def test_csv_reads_back_exactly(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    CsvExporter().write(trace, path, force=True)
    wanted = [
        {k: float(v) if k == "payload" and v is not None else v for k, v in row.items()}
        for row in rows(trace)
    ]
    same(read_csv(path.read_bytes()), wanted)


@shared_folder
@given(trace=traces_with_args())
def test_parquet_reads_back_exactly(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    ParquetExporter().write(trace, path, force=True)
    found = parquet.read_table(path)
    same(found.to_pylist(), rows(trace))
    evidence = json.loads(found.schema.metadata[b"ikp"])
    assert evidence["provenance"] == trace.provenance
    assert [one["kept"] for one in evidence["launches"]] == [one.kept for one in trace.launches]


def test_pandas_reads_both_into_the_same_frame(tmp_path: Path) -> None:
    trace = with_args(warp((0, 5), 7, (6, 9), names=["load", "dot"]))
    trace.save(tmp_path / "t.csv")
    trace.save(tmp_path / "t.parquet")
    ours = trace.to_pandas().astype(object)
    for frame in (pandas.read_csv(tmp_path / "t.csv"), pandas.read_parquet(tmp_path / "t.parquet")):
        assert list(frame) == list(ours) == [*COLUMNS, *ARGS]
        for name in ("region", "start_ns", "end_ns", "dur_ns", "ticks", "block"):
            assert frame[name].tolist() == ours[name].tolist()
        assert frame["cost"].isna().tolist() == ours["cost"].isna().tolist() == [False, True, False]


def test_gz_is_compressed(tmp_path: Path) -> None:
    trace = warp((0, 5), 7)
    for name in ("t.csv", "t.csv.gz"):
        trace.save(tmp_path / name)
    packed = (tmp_path / "t.csv.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "t.csv").read_bytes()


def test_many_rows_are_cut_and_laid_together_again(tmp_path: Path) -> None:
    trace = warp(*((i, i + i % 3) for i in range(300)), names=["load", "x" * 5000])
    trace.save(tmp_path / "t.csv")
    same(read_csv((tmp_path / "t.csv").read_bytes()), rows(trace))


@shared_folder
@given(trace=traces_with_args(), rank=st.sampled_from([None, 3]))
def test_a_column_has_one_type_whatever_a_trace_lacks(
    trace: Trace, rank: int | None, tmp_path: Path
) -> None:
    ranked = replace(trace, launches=tuple(replace(one, rank=rank) for one in trace.launches))
    schemas = []
    for one in (nothing(), warp((0, 5), 7), replace(ranked, args={})):
        one.save(tmp_path / "t.parquet", force=True)
        schemas.append(parquet.read_schema(tmp_path / "t.parquet").remove_metadata())
    assert schemas[0] == schemas[1] == schemas[2]
    assert str(schemas[0].field("rank").type) == "int32"
    assert ranked.to_pandas()["rank"].dtype == nothing().to_pandas()["rank"].dtype == "Int32"


def test_one_data_set_of_files_with_and_without(tmp_path: Path) -> None:
    plain = warp((0, 5), (6, 9))
    for number, (rank, cost) in enumerate([(None, [None, None]), (3, [0.5, None])]):
        launches = tuple(replace(one, rank=rank) for one in plain.launches)
        args = {"cost": arg_column("cost", cost, 2)}
        replace(plain, launches=launches, args=args).save(tmp_path / f"{number}.parquet")
    schemas = [parquet.read_schema(tmp_path / f"{n}.parquet").remove_metadata() for n in (0, 1)]
    table = dataset.dataset(tmp_path, schema=pyarrow.unify_schemas(schemas)).to_table()
    assert table["rank"].to_pylist() == [None, None, 3, 3]
    assert table["cost"].to_pylist() == [None, None, 0.5, None]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_an_empty_trace_has_the_same_columns(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"t{suffix}"
    nothing().save(path)
    read = pandas.read_csv if suffix == ".csv" else pandas.read_parquet
    frame = read(path)
    assert (list(frame), len(frame)) == (list(COLUMNS), 0)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_file_that_exists_is_kept(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"t{suffix}"
    path.write_text("mine")
    with pytest.raises(ExportError, match="force=True"):
        warp((0, 1)).save(path)
    broken = warp((5, 1))
    with pytest.raises(ExportError, match="contradicts itself"):
        exporter_for_path(path).write(broken, path, force=True)
    assert path.read_text() == "mine"
    warp((0, 1)).save(path, force=True)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_without_pyarrow_the_extra_is_named_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "ikp.exporters.parquet.find_spec",
        lambda name: None if name == "pyarrow" else real(name),
    )
    with pytest.raises(PluginError, match=r"pip install 'ikp\[parquet\]'"):
        load(EXPORTERS, "parquet")
    with pytest.raises(ExportError, match=r"pip install 'ikp\[parquet\]'"):
        exporter_for_path(tmp_path / "t.parquet")
    warp((0, 1)).save(tmp_path / "t.csv")  # others still work


def test_floats_are_written_in_full(tmp_path: Path) -> None:
    trace = warp((0, 1), (1, 2))
    bits = np.array([0x3DCCCCCD, 0x40000000], np.uint32)
    types = np.array([3, 3], np.uint8)
    trace = replace(trace, events=replace(trace.events, payload=bits, payload_type=types))
    trace.save(tmp_path / "t.csv")
    found = [row["payload"] for row in read_csv((tmp_path / "t.csv").read_bytes())]
    assert found == [0.10000000149011612, 2.0]


@given(st.lists(st.floats() | st.sampled_from([2.0**53, -(2.0**53), 3.0, -1e300]), min_size=1))
@example([-0.0])
@example([-0.0, 1.0, 0.0])
def test_numbers_in_csv_keep_every_bit(values: list[float]) -> None:
    texts = join(_numbers(np.array(values)), b"\n").decode().splitlines()
    read = [float(text) if text else math.nan for text in texts]
    assert list(map(repr, read)) == list(map(repr, values))
