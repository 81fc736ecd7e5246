"""Two GPUs of one host, a process for each: their traces on one axis of time, and in one file."""

from __future__ import annotations

from pathlib import Path

import pytest

import ikp
from tests.processes import run_ranks
from tests.trace_processor import check_trace

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs in one host"),
]

TOLERANCE_NS = 1_000_000_000
"""Shows that both GPUs count Unix time. How closely is measured, and printed, below."""


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_both_gpus_are_in_one_trace(backend: str, tmp_path: Path) -> None:
    ranks = run_ranks(backend, "cuda", 2, tmp_path)
    assert [one["all"] for one in ranks] == [True, False]
    whole = ikp.load(tmp_path / "all.pftrace")
    own = [ikp.load(tmp_path / f"own.{rank}.pftrace") for rank in range(2)]
    assert whole.launches == tuple(launch for each in own for launch in each.launches)
    assert [launch.rank for launch in whole.launches] == [0, 1]
    assert [launch.device.rpartition(" ")[2] for launch in whole.launches] == [
        "(cuda:0)",
        "(cuda:1)",
    ]
    frame = whole.to_pandas()
    for rank in range(2):
        mine = frame[(frame["rank"] == rank) & (frame.kind == "range")]
        blocks = [part.payload.tolist() for _, part in mine.groupby(["block", "warp"])]
        assert blocks == [list(range(3 + rank))] * (2 + rank) * 4
    for rank, one in enumerate(ranks):
        begin, end = one["window"]
        early, late = begin - one["own"][0], one["own"][1] - end
        print(
            f"{backend}: rank {rank} lies {-early} ns after the launch, {-late} ns before its end"
        )
        assert early < TOLERANCE_NS
        assert late < TOLERANCE_NS
    for name, rank in (("no trace", 1), ("versions", 1)):
        assert ranks[0][name] == ranks[1][name]
        assert f"rank {rank}" in ranks[0][name]


@pytest.mark.tp
def test_the_viewer_shows_both(tmp_path: Path) -> None:
    run_ranks("nccl", "cuda", 2, tmp_path)
    check_trace(tmp_path / "all.pftrace", ikp.load(tmp_path / "all.pftrace"))
