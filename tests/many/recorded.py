"""Files of ranks, and what is done to them in other processes, which import it from here."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ikp.trace import Trace
from tests.analysis.example import launch, trace

RANKS = 4


def of_rank(rank: int) -> Trace:
    """Return a trace of two launches. Each rank takes a little longer than the one before it."""
    events = [(0, 0, 0, 100 + rank), (0, 1, 100 + rank, 400), (1, 0, 0, 300), (2, 2, 50, 50)]
    launches = (
        launch("gemm", rank=rank, attempted=5, kept=3),
        launch("norm", rank=rank, attempted=1, kept=1),
    )
    return trace(events, launches=launches, slots=[(0, 0), (0, 1), (1, 0)], residence=1000 + rank)


def save_ranks(folder: Path, count: int = RANKS) -> list[str]:
    """Write a file for each rank and return their paths."""
    paths = [folder / f"rank{rank}.pftrace" for rank in range(count)]
    for rank, path in enumerate(paths):
        of_rank(rank).save(path)
    return [str(path) for path in paths]


def dies_at_rank_2(given: Trace) -> Trace:
    """End the process at once, as the system does for lack of memory, at one of the files."""
    if given.launches[0].rank == 2:
        os._exit(9)
    return given


def is_slow_at_rank_0(given: Trace) -> Trace:
    """Let the first file be counted last."""
    if given.launches[0].rank == 0:
        time.sleep(0.5)
    return given
