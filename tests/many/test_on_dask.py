"""The map and the merge on a cluster of two worker processes, one of which dies in the end."""

from __future__ import annotations

from pathlib import Path

import dask
import pytest
from distributed import Client, LocalCluster

import ikp
from ikp.errors import ExportError, WorkerError
from tests.many.recorded import RANKS, dies_at_rank_2, save_ranks

SETTINGS = {
    "distributed.scheduler.allowed-failures": 0,  # a file is given up when one worker died at it
    "distributed.scheduler.worker-saturation": 1.0,  # no other file waits at that worker
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # distributed's own sockets
def test_a_cluster_counts_as_one_process_does_and_tells_what_it_lost(tmp_path: Path) -> None:
    files = save_ranks(tmp_path)
    with (
        dask.config.set(SETTINGS),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        assert len(client.scheduler_info()["workers"]) == 2
        counts_the_same(files, client)
        Path(files[1]).write_text("damaged")
        tells_a_damaged_file(files, client)
        tells_a_file_at_which_a_worker_died(files[2:], client)


def counts_the_same(files: list[str], client: Client) -> None:
    for by in (None, "rank"):
        found = ikp.many.tally_on_dask(files, client, by)
        assert str(found.stats()) == str(ikp.many.tally_files(files, by).stats())
    assert ikp.many.tally_on_dask([*files, *files], client).files == 2 * RANKS


def tells_a_damaged_file(files: list[str], client: Client) -> None:
    with pytest.raises(ExportError, match=r"rank1\.pftrace"):
        ikp.many.tally_on_dask(files, client)
    found = ikp.many.tally_on_dask(files, client, keep_going=True)
    assert (found.files, [one.file for one in found.lost]) == (RANKS - 1, [files[1]])


def tells_a_file_at_which_a_worker_died(files: list[str], client: Client) -> None:
    found = ikp.many.tally_on_dask(files, client, change=dies_at_rank_2, keep_going=True)
    assert (found.files, [one.file for one in found.lost]) == (len(files) - 1, files[:1])
    assert "workers that counted it died" in found.stats().about[1]
    with pytest.raises(WorkerError, match=r"rank2\.pftrace: the workers that counted it died"):
        ikp.many.tally_on_dask(files, client, change=dies_at_rank_2)
