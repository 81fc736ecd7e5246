"""Ranges that begin in one warp and end in another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

import ikp
from ikp.core.abi import PayloadType
from ikp.core.regions import region_id
from ikp.core.trace import Region, Trace
from ikp.errors import UsageError
from tests.edit.test_connect import recorded_with_few_payloads
from tests.edit.warps import block, joined, ring
from tests.exporters.perfetto.examples import START, assert_same
from tests.totals import gemm
from tests.trace_processor import check_trace

pytestmark = pytest.mark.any_pins


def flights(trace: Trace) -> list[tuple[int, int, int, Any]]:
    """Return warp, start, end and payload of each range in flight."""
    return sorted(
        (one.warp, one.start_ns - START, one.end_ns - START, one.payload)
        for one in trace.ranges()
        if one.region == "in flight"
    )


def spanned(trace: Trace, **options: Any) -> list[tuple[int, int, int, Any]]:
    return flights(ikp.edit.span(trace, "in flight", "issue", "wait", **options))


def test_a_range_lasts_from_the_issue_to_the_end_of_its_wait() -> None:
    trace = ring(6, 4, producer=(0, 25))
    made = ikp.edit.span(trace, "in flight", "issue", "wait")
    assert flights(made) == [(1, 10 * k, 10 * k + 9, k % 4) for k in range(6)]
    assert made.regions[-1] == Region(region_id("in flight"), "in flight")
    assert made.provenance["edited"] == (
        "span('in flight', 'issue', 'wait', within='block', begin_at='start', end_at='end', "
        "until='first') made 6 ranges; 0 of 6 'issue' had no end"
    )
    assert made.stats()["in flight"].count == 6


def test_ticks_are_its_time_at_the_launch_s_rate() -> None:
    made = ikp.edit.span(ring(2, 2), "in flight", "issue", "wait")
    assert [one.cycles for one in made.ranges() if one.region == "in flight"] == [18, 18]
    trace = ring(2, 2)
    timer = replace(trace.launches[0].clock, kind="globaltimer", ns_per_tick=1.0, rate="exact")
    trace = replace(trace, launches=(replace(trace.launches[0], clock=timer),))
    made = ikp.edit.span(trace, "in flight", "issue", "wait")
    ticks = [(one.ticks, one.cycles) for one in made.ranges() if one.region == "in flight"]
    assert ticks == [(9, None), (9, None)]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, (0, 10)),
        ({"until": "last"}, (0, 30)),
        ({"begin_at": "end"}, (2, 10)),
        ({"end_at": "start"}, (0, 5)),
        ({"end_at": "start", "until": "last"}, (0, 6)),
        ({"begin_at": "end", "end_at": "start"}, (2, 5)),
    ],
    ids=str,
)
def test_which_moments_count(options: Any, wanted: tuple[int, int]) -> None:
    trace = block([("issue", 0, 2, 8)], [("wait", 6, 10, 8)], [("wait", 5, 30, 8)])
    assert spanned(trace, **options) == [(0, *wanted, 8)]


def test_what_found_no_end_makes_no_range_and_is_counted() -> None:
    trace = block(
        [("issue", 0, 1, 0), ("issue", 10, 11, 1), ("issue", 20, 31, 2)],
        [("wait", 3, 4, 0), ("wait", 15, 30, 2)],
    )
    made = ikp.edit.span(trace, "in flight", "issue", "wait")
    assert flights(made) == [(0, 0, 4, 0), (0, 20, 30, 2)]
    assert made.provenance["edited"].endswith("made 2 ranges; 1 of 3 'issue' had no end")
    assert spanned(trace, begin_at="end") == [(0, 1, 4, 0)]
    with pytest.raises(UsageError, match="would end after it began: choose other moments"):
        spanned(ikp.edit.select(trace, where=trace.payload == 2), begin_at="end")


def test_instants_will_do() -> None:
    trace = block([("issue", 4, None, 8)], [("wait", 9, None, 8)])
    assert spanned(trace) == [(0, 4, 9, 8)]


def test_it_is_a_range_like_others() -> None:
    """It can be chosen, connected, and has no arguments of what it was made of."""
    trace = ikp.edit.add_args(ring(5, 5), step=range(15))
    trace = ikp.edit.connect(trace, "issue", "wait")
    made = ikp.edit.span(trace, "in flight", "issue", "wait")
    assert joined(made) == joined(trace)
    assert [one.args for one in made.ranges() if one.region == "in flight"] == [{}] * 5
    again = ikp.edit.connect(made, "in flight", "wait")
    assert len(joined(again)) == 2 * len(joined(trace))
    assert len(ikp.edit.select(made, region="in*").events) == 5


@pytest.mark.tp
def test_the_viewer_shows_them_on_rows_of_their_own(tmp_path: Path) -> None:
    """They overlap each other and the issues, and the last outlives its warp."""
    trace = ikp.edit.connect(ring(9, 4, late=3), "issue", "wait")
    waits = trace.events.region == 1
    events = replace(trace.events, end_ns=trace.events.end_ns + np.where(waits, 25, 0))
    made = ikp.edit.span(replace(trace, events=events), "in flight", "issue", "wait")
    assert made.events.end_ns.max() > made.slots.end_ns[1]
    made.save(tmp_path / "t.pftrace")
    check_trace(tmp_path / "t.pftrace", made)
    assert_same(ikp.load(tmp_path / "t.pftrace"), made)


@pytest.mark.tp
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
    max_examples=settings.default.max_examples // 2,
)
@given(trace=recorded_with_few_payloads())
def test_events_stay_in_order_and_all_others_as_they_were(trace: Trace, tmp_path: Path) -> None:
    names = list(dict.fromkeys(one.name for one in trace.regions))
    assume(len(names) > 1)
    try:
        made = ikp.edit.span(trace, "in flight, all of it", *names[:2], within="launch")
    except UsageError:
        assume(False)
    events = made.events
    ordered = np.lexsort((events.end_ns, events.slot))
    assert np.array_equal(ordered, np.arange(len(events)))
    new = events.region == len(trace.regions)
    assert np.all(events.payload_type[new] == PayloadType.U32)
    old = ikp.edit.select(made, where=~new)
    assert_same(replace(old, provenance={}, regions=()), replace(trace, provenance={}, regions=()))
    made.save(tmp_path / "t.pftrace", force=True)
    check_trace(tmp_path / "t.pftrace", made)
    assert_same(ikp.load(tmp_path / "t.pftrace"), made)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("wait", "issue", "wait"), {}, "has a region 'wait' already: give the new one another"),
        (("", "issue", "wait"), {}, "a region's name is a non-empty string"),
        (("x", "issues", "wait"), {}, "no region 'issues'; it has"),
        (("x", "issue", "wait"), {"begin_at": "middle"}, "begin_at='middle' is unknown"),
        (("x", "issue", "wait"), {"end_at": 3}, "end_at=3 is unknown: use one of 'start', 'end'"),
        (("x", "issue", "wait"), {"until": "all"}, "until='all' is unknown: use one of 'first'"),
        (("x", "issue", "wait"), {"within": "sm"}, "within='sm' is unknown"),
        (("x", "issue", "wait"), {"within": "warp"}, "no 'issue' and 'wait' belong together"),
    ],
    ids=str,
)
def test_what_cannot_be_is_told(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ikp.edit.span(ring(3, 3), *arguments, **options)


def test_totals_have_no_moments() -> None:
    with pytest.raises(UsageError, match="span makes ranges, and the trace has totals"):
        ikp.edit.span(gemm(), "x", "load", "dot")
