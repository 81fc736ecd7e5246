"""A verdict of any trace: its numbers are those of the columns, its JSON fits its schema."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.verdict import MOST_BYTES
from ikp.core.abi import Kind
from ikp.core.trace import ClockFit
from ikp.errors import UsageError
from ikp.trace import Trace
from tests.analysis.explain.launches import Range, Scene, Warp
from tests.documents import check_document, schema
from tests.strategies import NAMES, traces, traces_with_totals

pytestmark = pytest.mark.any_pins


def checked(trace: Trace) -> dict[str, Any]:
    """Return a verdict's JSON, which holds what is true of any."""
    verdict = trace.explain()
    text = verdict.to_json()
    assert len(text.encode()) <= MOST_BYTES
    said: dict[str, Any] = json.loads(text)
    check_document(said, "explain")
    assert all(len(line) <= 100 for line in str(verdict).splitlines())
    for one in verdict.findings:
        assert 0 <= one.bound_share <= 1 and one.speedup_at_most >= 1
        assert one.confidence in ("measured", "likely", "possible")
    return said


@given(traces())
def test_any_trace_has_a_verdict_whose_numbers_are_those_of_its_columns(trace: Trace) -> None:
    said = checked(trace)
    if said["launch"] is None:
        assert len(trace.slots) == 0
        return
    of = trace.launches[said["launch"]["index"]]
    slots, events = trace.slots, trace.events
    mine = slots.launch == said["launch"]["index"]
    ends = np.maximum(slots.end_ns, slots.start_ns)
    assert said["launch"]["label"] in (of.label, of.label[:120])
    assert said["launch"]["duration_ns"] == ends[mine].max() - slots.start_ns[mine].min()
    assert said["launch"]["warps"] == mine.sum() and said["launch"]["dropped"] == of.dropped
    assert said["launch"]["blocks"] == len(np.unique(slots.block[mine]))
    whole = int((ends - slots.start_ns)[mine].sum())
    ranges = (events.kind == Kind.RANGE) & mine[events.slot]
    names = np.array([region.name for region in trace.regions], object)[events.region]
    for use in said["regions"]:
        numbers = {one.id for one in trace.regions if one.name == use["name"]}
        same = ranges & (names == use["name"])
        took = (events.end_ns - events.start_ns)[same]
        if len(numbers) == 1:  # two regions may have one name
            assert use["count"] == same.sum()
            assert use["p50_ns"] == pytest.approx(np.median(took), rel=1e-5)
        assert use["activity"] in [one.value for one in Activity]
    if whole and not said["left_out"].get("time"):
        free = said["in_no_range_share"]
        assert sum(one["share"] for one in said["time"]) + free == pytest.approx(1, abs=1e-4)
    if said["lanes"]:
        shares = (said["lanes"][f"{part}_share"] for part in ("busy", "start", "switch", "end"))
        assert sum(shares) == pytest.approx(1, abs=1e-4)


@given(traces_with_totals())
def test_totals_are_never_made_findings_of(trace: Trace) -> None:
    said = checked(trace)
    if said["launch"] is not None:
        assert trace.launches[said["launch"]["index"]].mode == "timeline"


@given(traces(), NAMES)
def test_the_interpreters_times_are_no_findings(trace: Trace, name: str) -> None:
    clock = ClockFit("host", 1.0, "exact")
    launches = tuple(replace(one, clock=clock, device=name) for one in trace.launches)
    said = checked(replace(trace, launches=launches))
    assert said["findings"] == []
    if said["launch"] is not None:
        assert said["left_out"] or "interpreter" in said["unknown"][0]["rationale"]


def test_the_tree_has_self_times_that_the_columns_have() -> None:
    ranges: list[Range] = [
        ("tile", 0, 1000), ("load", 0, 300), ("dot", 400, 900), ("wait mma", 500, 700),
        ("tile", 1000, 2000), ("load", 1000, 1300),
    ]  # fmt: skip
    verdict = Scene().add(Warp(0, 0, 0, 0, 2000, ranges)).trace().explain()
    found = {one.path: (one.count, one.total_share, one.self_share) for one in verdict.tree}
    assert found == {
        ("tile",): (2, 1.0, pytest.approx(0.45)),
        ("tile", "load"): (2, pytest.approx(0.3), pytest.approx(0.3)),
        ("tile", "dot"): (1, pytest.approx(0.25), pytest.approx(0.15)),
        ("tile", "dot", "wait mma"): (1, pytest.approx(0.1), pytest.approx(0.1)),
    }
    assert verdict.tree[0].path == ("tile",)


@given(st.data())
def test_a_tree_of_nested_ranges_adds_up(data: st.DataObject) -> None:
    trace = data.draw(traces())
    verdict = trace.explain()
    if verdict.launch is None or not verdict.tree:
        return
    assert sum(one.count for one in verdict.tree) <= len(trace.events)
    for one in verdict.tree:
        assert one.self_share <= one.total_share + 1e-9


def test_a_launch_can_be_named() -> None:
    scene = Scene().add(Warp(0, 0, 0, 0, 100), Warp(0, 0, 0, 200, 900, launch=1))
    trace = scene.trace()
    assert trace.explain(1).launch.duration_ns == 700  # type: ignore[union-attr]
    assert trace.explain("ker*").launch.launches == 2  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="numbered from 0"):
        trace.explain(7)
    with pytest.raises(UsageError, match="no launch matches"):
        trace.explain("other")


def test_of_several_launches_the_median_is_explained() -> None:
    scene = Scene()
    for i, took in enumerate([500, 100, 300]):
        scene.add(
            Warp(0, 0, 0, 1000 * i, 1000 * i + took, [("a", 1000 * i, 1000 * i + 9)], launch=i)
        )
    launch = scene.trace().explain().launch
    assert launch is not None and launch.index == 2
    assert (launch.min_ns, launch.median_ns, launch.max_ns) == (100, 300, 500)


def test_long_names_leave_room_for_the_first_finding() -> None:
    scene = Scene(label="k" * 50_000)
    for block in range(17):
        begin = block // 8 * 10_000
        name = f"{block}" * 3000
        scene.add(Warp(block, 0, block % 8, begin, begin + 10_000, [(name, begin, begin + 9_000)]))
    said = checked(scene.trace())
    assert said["findings"][0]["id"] == "tail" and said["left_out"]["characters"] == 1


def test_the_page_names_each_field_and_each_finding() -> None:
    from pathlib import Path

    from ikp.analysis.explain import findings

    root = Path(__file__).parents[3]
    page = (root / "docs" / "verdict.md").read_text()
    for name in schema("explain")["properties"]:
        assert f"`{name}`" in page, name
    manual = (root / "docs" / "reading-a-trace.md").read_text()
    sources = "".join(p.read_text() for p in Path(findings.__path__[0]).glob("*.py"))
    for name in IDS:
        assert f'"{name}"' in sources and f"#### `{name}`" in manual, name


IDS = (
    "unchanged-values", "unfused-sums", "scaled-operands", "products-with-ones", "checks",
    "unused-random-numbers", "unpacked-numbers", "alike-lanes", "serial-sums", "linear-search",
    "unused-shared-memory", "private-staging", "uncached-loads",
    "single-warp-products",
    "far-memory", "idle-threads", "empty-blocks", "small-blocks", "serial-thread", "wide-operands",
    "wide-data",
    "masked-work", "repeated-work", "repeated-stores",
    "tail", "late-start", "block-switch", "few-blocks", "slow-sm", "imbalance", "slow-block",
    "late-producer", "late-consumer", "few-stages", "barrier-skew", "serial-mma", "epilogue",
    "late-copy", "exposed-load", "bank-conflicts", "narrow-loads", "slow-memory", "low-occupancy",
    "launch-gaps", "unseen-wait", "queued-copies",
    "barriers", "copy-issue", "few-warps", "local-memory", "uncoalesced", "atomics",
    "no-tensor-cores", "slow-arithmetic", "repeated-loads", "divergence", "small-tiles",
    "flag-wait", "late-message", "late-launch", "block-order", "unstaged-loads",
    "dependent-loads", "fences", "constants", "shuffles", "busy-lines",
    "calls", "ordered-loads", "zeroed-loads", "halo", "repeated-setup", "same-operands",
    "lone-loads", "many-warps", "promoted-sums", "block-shape",
)  # fmt: skip
