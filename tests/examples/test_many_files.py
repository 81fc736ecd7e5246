"""The example for a cluster, on the one that the environment names."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributed import LocalCluster

import ikp
from examples import many_files_dask
from tests.many.recorded import save_ranks


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # distributed's own sockets
def test_a_table_by_rank_and_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = save_ranks(tmp_path, 3)
    Path(paths[0]).write_text("damaged")
    with LocalCluster(processes=False, n_workers=1, dashboard_address=":0") as cluster:
        monkeypatch.setenv("DASK_SCHEDULER", cluster.scheduler_address)
        found = many_files_dask.main(paths)
    assert (found.files, [one.file for one in found.lost]) == (2, paths[:1])
    shown = capsys.readouterr().out
    assert "rank 1" in shown and "rank 2" in shown and "1 file not counted: " in shown
    assert str(found.stats()) == str(ikp.many.tally_files(paths, "rank", keep_going=True).stats())
