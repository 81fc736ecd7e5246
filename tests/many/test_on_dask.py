"""The map and the merge on a cluster of two worker processes, one of which may die."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dask
import pytest
from distributed import Client, LocalCluster

import ikp
from ikp.errors import ExportError, WorkerError
from tests.many.recorded import RANKS, dies_at_rank_2, save_ranks

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # distributed's own sockets


SETTINGS = {
    "distributed.scheduler.allowed-failures": 0,  # a file is given up when one worker died at it
    "distributed.scheduler.worker-saturation": 1.0,  # no other file waits at that worker
}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        dask.config.set(SETTINGS),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return save_ranks(tmp_path)


def test_a_cluster_counts_what_one_process_does(files: list[str], client: Client) -> None:
    assert len(client.scheduler_info()["workers"]) == 2
    for by in (None, "rank"):
        found = ikp.many.tally_on_dask(files, client, by)
        assert str(found.stats()) == str(ikp.many.tally_files(files, by).stats())
    twice = ikp.many.tally_on_dask([*files, *files], client)
    assert twice.files == 2 * RANKS


def test_a_damaged_file_is_an_error_or_told_as_lost(files: list[str], client: Client) -> None:
    Path(files[1]).write_text("damaged")
    with pytest.raises(ExportError, match=r"rank1\.pftrace"):
        ikp.many.tally_on_dask(files, client)
    found = ikp.many.tally_on_dask(files, client, keep_going=True)
    assert (found.files, [one.file for one in found.lost]) == (RANKS - 1, [files[1]])


def test_a_worker_that_dies_is_an_error_or_its_file_told_as_lost(
    files: list[str], client: Client
) -> None:
    found = ikp.many.tally_on_dask(files, client, change=dies_at_rank_2, keep_going=True)
    assert [one.file for one in found.lost] == [files[2]]
    assert "workers that counted it died" in found.stats().about[1]
    with pytest.raises(WorkerError, match=r"rank2\.pftrace: the workers that counted it died"):
        ikp.many.tally_on_dask(files, client, change=dies_at_rank_2)
