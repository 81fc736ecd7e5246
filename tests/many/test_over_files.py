"""Statistics of many files: what is damaged, lacks what is asked for, or kills its process."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

import ikp
from ikp.cli.main import cli
from ikp.errors import ExportError, IkpWarning, UsageError, WorkerError
from tests.many.recorded import RANKS, dies_at_rank_2, is_slow_at_rank_0, of_rank, save_ranks


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return save_ranks(tmp_path)


def test_all_files_are_counted_in_one_table(files: list[str]) -> None:
    frame = ikp.many.table(files, by="rank")
    load = frame[(frame["launch"] == "gemm") & (frame["region"] == "load")]
    assert dict(zip(load["group"], load["min_ns"], strict=True)) == {
        f"rank {rank}": 100 + rank for rank in range(RANKS)
    }


def test_by_hand_it_is_the_same(files: list[str]) -> None:
    by_hand = ikp.many.merge(map(ikp.many.tally, files)).stats()
    assert by_hand == ikp.many.tally_files(files).stats()
    assert ikp.many.tally_files(files[0]).files == 1


def test_workers_count_the_same_in_the_order_of_the_files(files: list[str]) -> None:
    alone = ikp.many.tally_files(files)
    together = ikp.many.tally_files(files, workers=2, change=is_slow_at_rank_0)
    assert str(together.stats()) == str(alone.stats())


def test_a_part_of_each_is_counted_and_files_without_it_are_told(files: list[str]) -> None:
    found = ikp.many.tally_files(files, change=partial(ikp.edit.select, rank=3))
    assert found.files == 1 and "3 files hold nothing that was chosen." in str(found.stats())
    nothing = ikp.many.tally_files(files, change=partial(ikp.edit.select, rank=9))
    with pytest.raises(UsageError, match="no launch has rank=9"):
        nothing.stats()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_damaged_file_is_an_error_or_told_as_lost(files: list[str], workers: int) -> None:
    path = Path(files[1])
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ExportError, match=r"rank1\.pftrace"):
        ikp.many.tally_files(files, workers=workers)
    with pytest.warns(IkpWarning, match=r"1 file not counted: .*rank1\.pftrace"):
        frame = ikp.many.table(files, workers=workers, keep_going=True)
    assert frame["launches"].tolist() == [RANKS - 1] * len(frame)


@pytest.mark.any_pins
def test_a_worker_that_dies_is_an_error_or_its_file_told_as_lost(files: list[str]) -> None:
    with pytest.raises(WorkerError, match=r"rank2\.pftrace: the process that worked on it died"):
        ikp.many.tally_files(files, workers=2, change=dies_at_rank_2)
    found = ikp.many.tally_files(files, workers=2, change=dies_at_rank_2, keep_going=True)
    assert found.files == RANKS - 1
    assert [Path(one.file).name for one in found.lost] == ["rank2.pftrace"]
    assert found.stats().rows[0].count == (RANKS - 1) * of_rank(0).stats().rows[0].count


def test_where_no_file_can_be_read_all_reasons_are_told(tmp_path: Path) -> None:
    missing = [str(tmp_path / f"{i}.pftrace") for i in range(8)]
    with pytest.raises(UsageError, match=r"0\.pftrace is not a file.* And 3 more\."):
        ikp.many.table(missing, keep_going=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": "day"}, "no statistics by 'day': use one of rank, sm,"),
        ({"by": "window"}, "need a width that they share, such as window:10us"),
        ({"workers": 0}, "workers=0 do no work"),
    ],
)
def test_what_cannot_be_meant_is_told_before_a_file_is_read(
    arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        ikp.many.tally_files(["no.pftrace"], **arguments)  # type: ignore[arg-type]


def invoke(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, ["stats", *words])
    return result.exit_code, result.stdout, result.stderr


def test_the_command_counts_in_workers_and_goes_on(files: list[str]) -> None:
    Path(files[0]).write_bytes(b"nothing")
    code, out, _ = invoke(*files, "--merge", "--workers", "2", "--keep-going", "--region", "load")
    assert code == 0
    assert "3 files counted together" in out and "1 file not counted: " in out
    assert "dot" not in out
    code, out, error = invoke(*files[1:], "--merge", "--format", "csv")
    assert out.startswith("launch,region,") and "percentiles are within 0.5 %" in error
    code, out, error = invoke(*files, "--merge")
    assert (code, out) == (1, "") and files[0] in error


def test_the_command_tells_what_is_for_many_files(files: list[str]) -> None:
    code, _, error = invoke(files[0], "--workers", "2")
    assert code == 1 and "add --merge" in error
