"""Rows that launches share, where there are very many launches."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from ikp.core.trace import Trace
from ikp.exporters.perfetto import PerfettoExporter
from ikp.exporters.perfetto.first_look import query, shared_rows_of
from ikp.exporters.perfetto.reader import read_head
from ikp.exporters.timeline import shared_rows
from ikp.exporters.timeline.tracks import lay_out
from tests.exporters.perfetto.examples import warps
from tests.strategies import traces
from tests.trace_processor import columns, open_trace
from tests.trace_processor.found import check_import


def alike(trace: Trace) -> Trace:
    """Return a trace whose launches are all of one kernel."""
    launches = tuple(replace(one, label="k", rank=None) for one in trace.launches)
    return replace(trace, launches=launches)


def three(starts: list[int]) -> Trace:
    """Return launches of one block of 10 ns each, that start at some times."""
    blocks = [(0, start, start + 10) for start in starts]
    trace = warps([[]] * len(starts), blocks=blocks)
    launch = replace(trace.launches[0], grid=(1, 1, 1), label="k")
    slots = replace(trace.slots, launch=np.arange(len(starts), dtype=np.int32))
    return replace(trace, launches=(launch,) * len(starts), slots=slots)


def write(trace: Trace, path: Path, most: int) -> Path:
    """Write a trace whose launches share rows from so many rows on."""
    with patch.object(shared_rows, "MOST_ROWS", most):
        PerfettoExporter().write(trace, path, force=True)
    return path


def slices(path: Path) -> tuple[Counter[Any], int]:
    """Return all slices, with depth and arguments, and how many rows there are."""
    with open_trace(path) as processor:
        check_import(processor)
        found = columns(
            processor,
            "select ts, dur, coalesce(name, '') name, depth, (select group_concat(key || '=' || "
            "coalesce(display_value, ''), ';') from (select key, display_value from args a where "
            "a.arg_set_id = s.arg_set_id order by key)) args from slice s",
        )
        rows = columns(processor, "select count(*) n from track")["n"].tolist()[0]
    return Counter(zip(*(column.tolist() for column in found.values()), strict=True)), rows


@given(traces())
def test_what_is_on_a_shared_row_follows_one_another(trace: Trace) -> None:
    """A row of warps holds one warp of a CTA slot of an SM, whichever launch it is of."""
    trace = alike(trace)
    layout = lay_out(trace, shared=True)
    places: dict[int, tuple[str, int]] = {}
    for track, launch, warp, sm in zip(
        layout.slot_track.tolist(),
        *(getattr(trace.slots, name).tolist() for name in ("launch", "warp", "sm")),
        strict=True,
    ):
        place = (f"{layout.launches[launch].parent} {sm}", warp)
        assert places.setdefault(track, place) == place
    ran: dict[int, list[tuple[int, int]]] = {}
    for one in layout.launches:
        ran.setdefault(one.evidence, []).append((one.start, one.end))
    for row in ran.values():
        assert all(end <= start for (_, end), (start, _) in pairwise(sorted(row)))
    uuids = [one.uuid for one in layout.tracks]
    assert len(set(uuids)) == len(uuids)
    assert {*layout.slot_track.tolist(), *layout.blocks.track.tolist()} <= {*uuids}


@pytest.mark.parametrize(
    ("starts", "rows"), [([0, 10, 20], 1), ([0, 5, 20], 2), ([0, 1, 2], 3), ([20, 0, 10], 2)]
)
def test_launches_that_overlap_have_a_row_each(starts: list[int], rows: int) -> None:
    """Of two that touch, the later one of the file follows."""
    found = lay_out(three(starts), shared=True)
    assert len({one.evidence for one in found.launches}) == rows
    names = [
        one.name for one in found.tracks if one.rank > 0 and "launches of k" in one.description
    ]
    assert names == ["k"] * rows


@pytest.mark.tp
@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trace=traces())
def test_a_viewer_shows_the_same_slices_on_fewer_rows(trace: Trace, tmp_path: Path) -> None:
    trace = alike(trace)
    own, rows = slices(write(trace, tmp_path / "own.pftrace", 1 << 40))
    shared, fewer = slices(write(trace, tmp_path / "shared.pftrace", 0))
    assert shared == own
    assert fewer <= rows


def test_a_file_says_whether_rows_are_shared_and_opens_by_their_names(tmp_path: Path) -> None:
    """Who opens an older file, or one of few launches, finds each launch's own row."""
    for most, row, rows in ((0, "^k$", 9), (1 << 40, f"^k #{1}$", None)):
        head = read_head(write(three([0, 10, 20]), tmp_path / "x.pftrace", most))
        assert head.shared == (rows is not None)
        assert f'"{row}"' in query(head, 1)["startupCommands"]
        assert shared_rows_of(head) == rows


@pytest.mark.parametrize(("launches", "slots", "shared"), [(1, 99_996, False), (1, 99_997, True)])
def test_rows_are_shared_from_so_many_on(launches: int, slots: int, shared: bool) -> None:
    assert shared_rows.are_shared(three([0]).launches * launches, slots) == shared
