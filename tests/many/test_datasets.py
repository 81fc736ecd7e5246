"""A data set of many files: what others read in it, and what is left when something goes wrong."""

from __future__ import annotations

import errno
import json
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, example, given, settings
from pyarrow import dataset, parquet

import ikp
from ikp.cli.main import cli
from ikp.core.trace import Trace
from ikp.errors import ExportError, UsageError
from ikp.exporters.parquet import folder_name, schema, write_partition
from ikp.paths import DRAFT, draft_prefix
from tests.analysis.example import launch, trace
from tests.exporters.test_tables import rows
from tests.many.recorded import RANKS, dies_at_rank_2, of_rank, save_ranks
from tests.strategies import NAMES, traces_with_args
from tests.totals import gemm

EVENTS = 4  # of each rank
EXTRA = ("count", "total_ns", "share", "args", "file", "kernel")


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "ranks").mkdir()
    return save_ranks(tmp_path / "ranks")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


def written(folder: Path) -> list[str]:
    """Return the files of a data set that a reader finds, with nothing else beside it."""
    assert list(folder.parent.glob(f".*{DRAFT}")) == []
    parts = {path.relative_to(folder).parts[0] for path in folder.rglob("*.parquet")}
    return sorted(part.removeprefix("file=") for part in parts)


def ask(query: str) -> list[tuple[Any, ...]]:
    """Return what DuckDB answers."""
    with duckdb.connect() as connection:
        return list(connection.execute(query).fetchall())


def named(paths: list[str]) -> list[str]:
    return sorted(Path(path).name for path in paths)


def test_everyone_reads_it_as_it_is(files: list[str], folder: Path) -> None:
    assert ikp.many.to_dataset(files, folder) == ikp.many.Written(RANKS, RANKS * EVENTS)
    wanted = [
        (Path(path).name, row["label"], rank, row["region"], row["dur_ns"])
        for rank, path in enumerate(files)
        for row in rows(of_rank(rank))
    ]
    columns = ["file", "kernel", "rank", "region", "dur_ns"]
    query = f"select {', '.join(columns)} from '{folder}/**/*.parquet'"
    assert sorted(ask(query)) == sorted(wanted)
    assert sorted(polars.scan_parquet(folder).select(columns).collect().rows()) == sorted(wanted)
    arrow = dataset.dataset(folder, partitioning="hive").to_table(columns=columns)
    assert sorted(tuple(row.values()) for row in arrow.to_pylist()) == sorted(wanted)


def test_a_reader_opens_only_the_files_of_the_partitions_it_wants(
    files: list[str], folder: Path
) -> None:
    ikp.many.to_dataset(files, folder)
    shutil.rmtree(folder / "file=rank1.pftrace")
    (folder / "file=rank1.pftrace" / "kernel=gemm").mkdir(parents=True)
    (folder / "file=rank1.pftrace" / "kernel=gemm" / "part.parquet").write_text("damaged")
    query = f"select count(*) from '{folder}/**/*.parquet' where file = 'rank2.pftrace'"
    assert ask(query) == [(EVENTS,)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given=traces_with_args())
def test_whatever_a_trace_holds_the_schema_is_one_and_the_rows_are_its_own(
    given: Trace, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "one", ignore_errors=True)
    (tmp_path / "one").mkdir()
    assert write_partition(given, tmp_path / "one", "x.pftrace") == len(given.events)
    found: list[dict[str, Any]] = []
    for path in (tmp_path / "one").rglob("*.parquet"):
        part = parquet.ParquetFile(path)
        assert part.schema_arrow.remove_metadata() == schema()
        found += part.read().to_pylist()
    for row, wanted in zip(
        sorted(found, key=lambda row: row["launch"]),
        sorted(rows(given), key=lambda row: row["launch"]),
        strict=True,
    ):
        assert repr({k: v for k, v in row.items() if k not in EXTRA}) == repr(
            {k: v for k, v in wanted.items() if k in row and k not in EXTRA}
        )
        own = {name: wanted[name] for name in given.args if wanted[name] is not None}
        assert dict(row["args"] or {}).keys() == own.keys()


def test_totals_stand_beside_events_with_what_they_have(folder: Path) -> None:
    folder.mkdir()
    both = ikp.edit.concat([trace([(0, 0, 0, 9), (1, 0, 0, 5)]), gemm()])
    assert write_partition(both, folder, "x") == 2 + len(both.totals)
    files = f"'{folder}/**/*.parquet'"
    assert ask(f"select sum(dur_ns), count(start_ns) from {files} where count is null") == [(14, 2)]
    (found,) = ask(f"select sum(count), sum(total_ns) from {files} where start_ns is null")
    totals = both.totals
    assert found == (int(totals.count.sum()), int(totals.total_ns.sum()))


def test_arguments_are_a_map_from_name_to_text(folder: Path) -> None:
    folder.mkdir()
    args = {"step": [1, None, 3], "late": [True, None, None], "count": ["a", None, "b"]}
    some = ikp.edit.add_args(trace([(i, 0, 0, 9) for i in range(3)]), **args)
    write_partition(some, folder, "x")
    found = ask(f"select args, args['step'], count from '{folder}/**/*.parquet'")
    assert found == [
        ({"step": "1", "late": "true", "count": "a"}, "1", None),
        (None, None, None),
        ({"step": "3", "count": "b"}, "3", None),
    ]


def test_the_evidence_of_a_kernel_is_with_it(files: list[str], folder: Path) -> None:
    ikp.many.to_dataset(files, folder)
    path = folder / "file=rank3.pftrace" / "kernel=norm" / "part.parquet"
    evidence = json.loads(parquet.read_schema(path).metadata[b"ikp"])
    assert [(one["launch"], one["label"], one["rank"]) for one in evidence["launches"]] == [
        (1, "norm", 3)
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@example(label="a/b")
@example(label="%41")
@example(label="..")
@example(label="0X0")
@example(label="測" * 300)
@given(label=NAMES)
def test_any_label_is_a_folder_and_read_back(label: str, tmp_path: Path) -> None:
    folder = tmp_path / "labels"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write_partition(trace([(0, 0, 0, 9)], launches=(launch(label),)), folder, "x")
    assert len(list(folder.rglob("*.parquet"))) == 1
    plain = "hive_partitioning=true, hive_types_autocast=false"  # DuckDB takes 0X0 for a number
    query = f"select kernel, label from read_parquet('{folder}/**/*.parquet', {plain})"
    ((kernel, exact),) = ask(query)
    assert exact == label
    if len(folder_name(label)) < 200 and label:
        assert kernel == label


def test_it_grows_and_a_file_of_it_is_replaced_only_by_force(
    files: list[str], folder: Path
) -> None:
    ikp.many.to_dataset(files[:2], folder)
    ikp.many.to_dataset(files[2], folder)
    assert written(folder) == named(files[:3])
    with pytest.raises(ExportError, match=r"has a file rank2\.pftrace already.*--force"):
        ikp.many.to_dataset(files[2:], folder)
    done = ikp.many.to_dataset(files[1:], folder, force=True, change=partial(_only, "norm"))
    assert (done.files, done.rows) == (3, 3 * 1)
    query = f"select file, count(*) from '{folder}/**/*.parquet' group by all order by all"
    assert [count for _, count in ask(query)] == [EVENTS, 1, 1, 1]


def _only(label: str, given: ikp.Trace) -> ikp.Trace:
    return ikp.edit.select(given, launch=label)


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path, folder: Path) -> None:
    paths = []
    for run in ("monday", "tuesday"):
        (tmp_path / run).mkdir()
        paths += save_ranks(tmp_path / run, 1)
    ikp.many.to_dataset(paths, folder)
    files = ask(f"select distinct file from '{folder}/**/*.parquet' order by 1")
    assert files == [("monday/rank0.pftrace",), ("tuesday/rank0.pftrace",)]
    with pytest.raises(UsageError, match="is named twice"):
        ikp.many.to_dataset([paths[0], paths[0]], folder, force=True)


def test_a_full_disk_leaves_what_was_sound(
    files: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ikp.many.to_dataset(files[:2], folder)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fails(_: int) -> None:
        raise full

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(ExportError, match=r"rank2\.pftrace can't be written: No space left"):
        ikp.many.to_dataset(files[2:], folder, keep_going=True)
    with pytest.raises(ExportError, match="No space left"):
        ikp.many.to_dataset(files[:1], folder, force=True)
    assert written(folder) == named(files[:2])


@pytest.mark.any_pins
def test_a_worker_that_dies_leaves_what_was_sound(files: list[str], folder: Path) -> None:
    done = ikp.many.to_dataset(files, folder, workers=2, change=dies_at_rank_2, keep_going=True)
    assert [Path(one.file).name for one in done.lost] == ["rank2.pftrace"]
    assert written(folder) == named([*files[:2], *files[3:]])


def test_what_killed_writers_left_is_removed(files: list[str], folder: Path) -> None:
    left = folder.parent / f"{draft_prefix()}left{DRAFT}"
    (left / "new").mkdir(parents=True)
    ikp.many.to_dataset(files, folder)
    assert not left.exists()


def test_a_folder_that_holds_other_things_is_left_alone(files: list[str], tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="holds other things than a data set, such as 'ranks'"):
        ikp.many.to_dataset(files, tmp_path)
    with pytest.raises(ExportError, match="can't be the folder of a data set"):
        ikp.many.to_dataset(files, tmp_path / "no" / "data")


def invoke(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["convert", *map(str, words)])
    return result.exit_code, result.stderr


def test_the_command_makes_one_of_many_files(files: list[str], folder: Path) -> None:
    Path(files[0]).write_text("damaged")
    code, told = invoke(*files, f"{folder}/")
    assert code == 1 and files[0] in told
    code, told = invoke(*files, f"{folder}/", "--keep-going", "--workers", 2, "--region", "d*")
    assert code == 0, told
    assert "data: 3 rows of 3 files." in told and "ikp: not converted: " in told
    assert written(folder) == named(files[1:])
    code, told = invoke(files[1], folder)
    assert code == 1 and "has a file rank1.pftrace already" in told


def test_the_command_tells_several_files_from_one(files: list[str], tmp_path: Path) -> None:
    code, told = invoke(*files, tmp_path / "x.parquet")
    assert code == 1 and "Give a folder, with a slash at its end." in told
    assert not (tmp_path / "x.parquet").exists()
