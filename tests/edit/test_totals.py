"""Edits of traces with totals: kept, or refused, never lost."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ikp import edit
from ikp.core.trace import Trace
from ikp.errors import UsageError
from tests.exporters.perfetto.examples import assert_same
from tests.totals import gemm


def rows(trace: Trace) -> list[tuple[object, ...]]:
    frame = trace.to_pandas()
    names = ["label", "block", "warp", "region", "kind", "count", "ticks", "total_ns"]
    return [tuple(row) for row in frame[names].itertuples(index=False)]


def test_a_part_has_the_totals_of_its_warps_and_regions() -> None:
    trace = gemm()
    dots = edit.select(trace, region="dot", block=1)
    assert rows(dots) == [row for row in rows(trace) if row[1] == 1 and row[3] == "dot"]
    assert len(dots.slots) == 2
    assert "kept 2 of 12 totals" in dots.provenance["edited"]
    assert {row[3] for row in rows(edit.select(trace, kind="instant"))} == {"tile"}
    with pytest.raises(UsageError, match="no region matches 'x'"):
        edit.select(trace, region="x")


def test_traces_are_joined_with_their_totals() -> None:
    one, other = gemm(), edit.rename_launches(edit.select(gemm(8), region="load"), {"gemm": "b"})
    whole = edit.concat([one, other])
    assert rows(whole) == rows(one) + rows(other)
    assert_same(edit.select(whole, launch="gemm"), edit.select(whole, launch="gemm"))
    assert rows(edit.select(whole, launch="b")) == rows(other)


def test_merged_regions_are_added_up() -> None:
    merged = edit.merge_regions(gemm(), {"load": "work", "dot": "work"})
    row = merged.stats()["work"]
    assert (row.count, row.total_ns) == (512, 4 * 64 * 1200)
    assert len(merged.totals) == 8


def test_new_names_and_times_leave_totals_as_they_are() -> None:
    trace = gemm()
    renamed = edit.rename_regions(trace, str.upper)
    assert renamed.stats()["DOT"].total_ns == trace.stats()["dot"].total_ns
    assert rows(edit.shift(trace, 1000)) == rows(trace)
    roles = edit.rename_warps(trace, {0: "first"})
    assert {row.group for row in roles.stats("role")} == {"first", "no role"}


@pytest.mark.parametrize(
    "change",
    [
        lambda trace: edit.group_by(trace, "region"),
        lambda trace: edit.add_args(trace, step=lambda one: 1),
        lambda trace: edit.select(trace, window_ns=(0, 10)),
        lambda trace: edit.select(trace, where=np.zeros(0, bool)),
    ],
)
def test_what_concerns_events_alone_is_refused(change: Callable[[Trace], Trace]) -> None:
    with pytest.raises(UsageError, match="the trace has totals"):
        change(gemm())
