"""Arrows in Chrome JSON, as text and as Perfetto's trace processor reads them."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ikp
from ikp.core.args import arrows
from ikp.core.trace import Trace
from ikp.exporters.chrome import ChromeExporter
from tests.edit.test_connect import chain
from tests.edit.warps import block, ring
from tests.trace_processor import columns, open_trace
from tests.trace_processor.found import check_import

pytestmark = pytest.mark.any_pins

Place = tuple[int, int]
"""The warp that an event is of, and its start."""

SLICES = """
    select s.id, s.ts, s.dur, s.name, t.name thread, coalesce(s.parent_id, -1) parent
    from slice s join thread_track tt on s.track_id = tt.id join thread t using (utid)
"""


def wanted_arrows(trace: Trace) -> Counter[tuple[Place, Place, bool]]:
    """Return source and target of each arrow, and whether it ends at an instant of its own."""
    events = trace.events
    begin = int(min(trace.slots.start_ns.min(), events.start_ns.min()))
    rows: Counter[tuple[Place, Place, bool]] = Counter()
    for source, target in zip(*(each.tolist() for each in arrows(trace.args)), strict=True):
        late = bool(events.start_ns[target] <= events.start_ns[source])
        at = events.end_ns[target] if late else events.start_ns[target]
        ends = [(source, events.start_ns[source]), (target, at)]
        one, other = (
            (int(trace.slots.warp[events.slot[row]]), int(ns) - begin) for row, ns in ends
        )
        rows[one, other, late] += 1
    return rows


def found_arrows(path: Path) -> Counter[tuple[Place, Place, bool]]:
    with open_trace(path) as processor:
        check_import(processor)
        slices = columns(processor, SLICES)
        flows = columns(processor, "select slice_out, slice_in from flow")
        lost = columns(processor, "select value from stats where name glob 'flow_*' and value > 0")
    assert not len(lost["value"])
    place, names = {}, {}
    for identity, ts, name, thread in zip(
        *(slices[one].tolist() for one in ("id", "ts", "name", "thread")), strict=True
    ):
        match = re.match(r"lane \d+ · warp (\d+)", thread)
        place[identity], names[identity] = (int(match[1]) if match else -1, ts), name
    rows: Counter[tuple[Place, Place, bool]] = Counter()
    for out, to in zip(flows["slice_out"].tolist(), flows["slice_in"].tolist(), strict=True):
        rows[place[out], place[to], names[to] == "arrow"] += 1
    assert sum(late for *_, late in rows.elements()) == list(names.values()).count("arrow")
    return rows


@pytest.mark.tp
@pytest.mark.parametrize("late", [3, 1, 0, -4], ids=str)
@pytest.mark.parametrize("producer", [(0, 2), (0, 20)], ids=["ended", "open"])
def test_the_viewer_draws_them(late: int, producer: tuple[int, int], tmp_path: Path) -> None:
    trace = ikp.edit.connect(ring(8, 4, producer, late), "issue", "wait")
    trace.save(tmp_path / "t.json")
    assert len(arrows(trace.args)[0]) == 16
    assert found_arrows(tmp_path / "t.json") == wanted_arrows(trace)


@pytest.mark.tp
def test_the_viewer_draws_chains_and_instants(tmp_path: Path) -> None:
    sent = [("issue", 10 * k, None, k) for k in range(4)]
    got = [("wait", 10 * k + 1, None, k) for k in range(4)]
    for trace in (chain(), ikp.edit.connect(block(got, sent, got), "issue", "wait")):
        ChromeExporter().write(trace, tmp_path / "t.json", force=True)
        assert found_arrows(tmp_path / "t.json") == wanted_arrows(trace)


@st.composite
def crossings(draw: st.DrawFn) -> Trace:
    """Return two warps whose ranges and instants may overlap, no two starting together."""
    warps = []
    for name in ("issue", "wait"):
        starts = draw(st.lists(st.integers(0, 40), min_size=1, max_size=6, unique=True))
        lengths = st.lists(
            st.none() | st.integers(1, 12), min_size=len(starts), max_size=len(starts)
        )
        warps.append(
            [
                (name, start, None if length is None else start + length, draw(st.integers(0, 1)))
                for start, length in zip(starts, draw(lengths), strict=True)
            ]
        )
    return block(*draw(st.permutations(warps)))


@pytest.mark.tp
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=settings.default.max_examples // 2,
)
@given(trace=crossings())
def test_whatever_was_recorded_is_drawn(trace: Trace, tmp_path: Path) -> None:
    try:
        trace = ikp.edit.connect(trace, "issue", "wait")
    except ikp.UsageError:
        return
    events = trace.events
    source, target = arrows(trace.args)
    shown = events.end_ns[target] > events.start_ns[source]
    ChromeExporter().write(trace, tmp_path / "t.json", force=True)
    wanted = wanted_arrows(trace)
    if not shown.all():  # those that would go back in time are not there
        left = np.zeros(len(events), bool)
        left[target[~shown]] = True
        args = {**trace.args}
        args["flow_in"] = replace(args["flow_in"], given=args["flow_in"].given & ~left)
        wanted = wanted_arrows(replace(trace, args=args))
    assert found_arrows(tmp_path / "t.json") == wanted


def test_each_arrow_is_two_lines_behind_its_events(tmp_path: Path) -> None:
    trace = ikp.edit.connect(
        block([("issue", 5, 6, 0), ("issue", 20, 21, 1)], [("wait", 2, 9, 0), ("wait", 25, 26, 1)]),
        "issue",
        "wait",
    )
    trace.save(tmp_path / "t.json")
    lines: list[dict[str, Any]] = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    of_warps = [one for one in lines if one["ph"] in "Xisf" and one["name"] != "gemm"]
    of_warps = [one for one in of_warps if not one["name"].startswith("block")]
    told = [(one["ph"], one["name"], one["ts"], one.get("id"), one.get("bp")) for one in of_warps]
    assert told == [
        ("X", "issue", 0.005, None, None),
        ("s", "flow", 0.005, 1, None),
        ("X", "issue", 0.02, None, None),
        ("s", "flow", 0.02, 2, None),
        ("X", "wait", 0.002, None, None),
        ("i", "arrow", 0.009, None, None),
        ("f", "flow", 0.009, 1, "e"),
        ("X", "wait", 0.025, None, None),
        ("f", "flow", 0.025, 2, "e"),
    ]
    assert {(one["pid"], one["tid"]) for one in of_warps[:4]} == {
        (of_warps[0]["pid"], of_warps[0]["tid"])
    }
