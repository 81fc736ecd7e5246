"""Arrows between events that belong together."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import ikp
from ikp.core.abi import PayloadType
from ikp.core.args import arrows
from ikp.core.trace import Trace
from ikp.edit._across import pairs
from ikp.errors import ExportError, UsageError
from tests.edit.warps import block, joined, ring
from tests.exporters.perfetto.examples import START, assert_same
from tests.strategies import traces
from tests.totals import gemm
from tests.trace_processor import check_trace

shared_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def connected(trace: Trace, **options: Any) -> list[tuple[str, int, int, str, int, int]]:
    return joined(ikp.edit.connect(trace, "issue", "wait", **options))


@pytest.mark.parametrize("stages", [1, 3, 4, 100])
@pytest.mark.parametrize("late", [3, 0, -4], ids=["after", "together", "before"])
def test_each_wait_belongs_to_the_issue_of_its_step(stages: int, late: int) -> None:
    wanted = [
        ("issue", 1, 10 * k, "wait", warp, 10 * k + late) for k in range(12) for warp in (0, 2)
    ]
    assert connected(ring(12, stages, late=late)) == sorted(wanted)


def test_the_n_th_belongs_to_the_n_th_where_a_payload_says_nothing() -> None:
    trace = block(
        [("issue", k, k + 1, 7) for k in range(5)], [("wait", 10 + k, 11 + k, 7) for k in range(5)]
    )
    assert connected(trace) == [("issue", 0, k, "wait", 1, 10 + k) for k in range(5)]


@pytest.mark.parametrize(
    ("issued", "waited"),
    [
        (range(12), range(7)),
        (range(7), range(12)),
        (range(5, 12), range(12)),
        (range(12), range(5, 12)),
        (range(12), range(0, 12, 2)),
        (range(3, 9), range(12)),
    ],
    ids=str,
)
def test_what_was_lost_on_one_side_moves_no_other_arrow(issued: range, waited: range) -> None:
    issues = [("issue", 10 * k, 10 * k + 2, k % 3) for k in issued]
    waits = [("wait", 10 * k + 3, 10 * k + 9, k % 3) for k in waited]
    both = sorted(set(issued) & set(waited))
    assert connected(block(issues, waits)) == [
        ("issue", 0, 10 * k, "wait", 1, 10 * k + 3) for k in both
    ]


def test_of_several_sources_the_last_to_start_was_waited_for() -> None:
    trace = block(
        [("issue", 0, 4, 0), ("issue", 23, 24, 1)],
        [("issue", 3, 4, 0), ("issue", 20, 29, 1)],
        [("wait", 1, 9, 0), ("wait", 20, 30, 1)],
    )
    assert connected(trace) == [("issue", 0, 23, "wait", 2, 20), ("issue", 1, 3, "wait", 2, 1)]


def test_what_ended_before_it_has_no_source() -> None:
    trace = block(
        [("issue", 5, 6, 0), ("issue", 20, 21, 1)], [("wait", 0, 4, 0), ("wait", 8, 21, 1)]
    )
    assert connected(trace) == [("issue", 0, 20, "wait", 1, 8)]


@pytest.mark.parametrize(
    ("within", "wanted"),
    [
        ("warp", {(0, 0), (2, 2)}),
        ("block", {(0, 0), (0, 1), (2, 2)}),
        ("launch", {(2, 0), (2, 1), (2, 2)}),
        ("trace", {(2, 0), (2, 1), (2, 2)}),
    ],
)
def test_how_far_arrows_go(within: Any, wanted: set[tuple[int, int]]) -> None:
    trace = block(
        [("issue", 0, 1, 0), ("wait", 8, 9, 0)],
        [("wait", 8, 9, 0)],
        [("issue", 2, 3, 0), ("wait", 8, 9, 0)],
        blocks=[0, 0, 1],
    )
    assert {(a, b) for _, a, _, _, b, _ in connected(trace, within=within)} == wanted


def test_blocks_of_two_launches_are_two_whatever_their_numbers() -> None:
    other = block([("wait", 5, 6, 3)], blocks=[0])
    for bit in range(31):
        one = block([("issue", 0, 1, 3)], blocks=[1 << bit])
        with pytest.raises(UsageError, match=r"belong together: .* in one block"):
            connected(ikp.edit.concat([one, other]), within="block")


def test_launches_are_apart_unless_asked_for() -> None:
    one, other = block([("issue", 0, 1, 3)]), block([("wait", 5, 6, 3)])
    both = ikp.edit.concat([one, other])
    with pytest.raises(UsageError, match="no 'issue' and 'wait' belong together"):
        ikp.edit.connect(both, "issue", "wait", within="launch")
    assert connected(both, within="trace") == [("issue", 0, 0, "wait", 0, 5)]


def test_payloads_are_compared_as_numbers() -> None:
    trace = block(
        [("issue", i, i + 1, i) for i in range(4)], [("wait", 9, 10, i) for i in range(4)]
    )
    bits = np.array([2**32 - 1, 2, 0x40A00000, 0x7FC00000, 2**32 - 1, 2, 5, 0x7FC00000], np.uint32)
    types = [PayloadType.U32, PayloadType.U32, PayloadType.F32, PayloadType.F32]
    types += [PayloadType.I32, PayloadType.I32, PayloadType.I32, PayloadType.F32]
    events = replace(trace.events, payload=bits, payload_type=np.array(types, np.uint8))
    source, target = arrows(ikp.edit.connect(replace(trace, events=events), "issue", "wait").args)
    assert list(zip(source.tolist(), target.tolist(), strict=True)) == [(1, 5), (2, 6)]


def chain() -> Trace:
    """Return arrows from each issue to two waits, from those to mmas, and from issues to mmas."""
    issues = [("issue", 10 * k, 10 * k + 2, k) for k in range(4)]
    ours = [("wait", 10 * k + 3, 10 * k + 5, k) for k in range(4)]
    ours += [("mma", 10 * k + 6, 10 * k + 9, k) for k in range(4)]
    trace = ikp.edit.connect(block(issues, ours, ours), "issue", "wait")
    trace = ikp.edit.connect(trace, "wait", "mma", within="warp")
    return ikp.edit.connect(trace, "issue", "mma")


def chained() -> list[tuple[str, int, int, str, int, int]]:
    at = [10 * k for k in range(4)]
    wanted = [("issue", 0, t, "wait", warp, t + 3) for t in at for warp in (1, 2)]
    wanted += [("wait", warp, t + 3, "mma", warp, t + 6) for t in at for warp in (1, 2)]
    wanted += [("issue", 0, t, "mma", warp, t + 6) for t in at for warp in (1, 2)]
    return sorted(wanted)


def test_arrows_add_up() -> None:
    trace = chain()
    assert list(trace.args) == ["flow_out", "flow_in", "flow_in_2"]
    assert joined(trace) == chained()
    told = trace.provenance["edited"].split("; ")
    assert told[0] == (
        "connect('issue', 'wait', within='block') drew 8 arrows from 4 of 4 to 8 events"
    )


def test_a_table_joined_with_itself_is_the_table_of_arrows() -> None:
    frame = ikp.edit.connect(ring(6, 3), "issue", "wait").to_pandas()
    table = frame.merge(frame, left_on="flow_out", right_on="flow_in", suffixes=("", "_to"))
    table = table[table["flow_out"].notna()]
    assert len(table) == 12
    assert (table["start_ns_to"] - table["start_ns"]).tolist() == [3] * 12


def test_arrows_follow_their_events() -> None:
    trace = chain()
    assert joined(ikp.edit.select(trace, warp=[0, 1])) == [row for row in chained() if row[4] == 1]
    assert joined(ikp.edit.select(trace, region="wait")) == []
    apart = ikp.edit.group_by(trace, "region")
    assert len(arrows(apart.args)[0]) == len(chained())


def test_traces_that_become_one_keep_their_arrows_apart() -> None:
    parts = [chain(), ring(3, 3), ikp.edit.connect(ring(6, 3), "issue", "wait"), chain()]
    whole = ikp.edit.concat(parts)
    offset = np.cumsum([0, *(len(part.events) for part in parts)])
    for column in (0, 1):
        wanted = [
            arrows(part.args)[column] + low for part, low in zip(parts, offset[:-1], strict=True)
        ]
        assert Counter(arrows(whole.args)[column].tolist()) == Counter(
            np.concatenate(wanted).tolist()
        )


def test_they_are_in_every_file(tmp_path: Path) -> None:
    trace = chain()
    for suffix in ("pftrace", "json", "csv", "parquet", "hatchet"):
        trace.save(tmp_path / f"t.{suffix}")
    assert_same(ikp.load(tmp_path / "t.pftrace"), trace)
    head, first, *_ = (tmp_path / "t.csv").read_text().splitlines()
    assert head.endswith(",payload,flow_out,flow_in,flow_in_2")
    assert first.endswith(",0,1,,")
    assert parquet.read_table(tmp_path / "t.parquet")["flow_in"].to_pylist()[4] == 1
    phases = Counter(
        one["ph"] for one in json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    )
    assert phases["s"] == phases["f"] == len(chained())


@pytest.mark.tp
@pytest.mark.parametrize("late", [3, 1, 0, -4], ids=str)
@pytest.mark.parametrize("producer", [(0, 2), (0, 20)], ids=["ended", "open"])
def test_the_viewer_draws_them(late: int, producer: tuple[int, int], tmp_path: Path) -> None:
    """Whether the source is over or not, and however near the two start."""
    trace = ikp.edit.connect(ring(8, 4, producer, late), "issue", "wait")
    trace.save(tmp_path / "t.pftrace")
    assert_same(ikp.load(tmp_path / "t.pftrace"), trace)
    check_trace(tmp_path / "t.pftrace", trace)


@pytest.mark.tp
def test_the_viewer_draws_chains_and_instants(tmp_path: Path) -> None:
    sent = [("issue", 10 * k, None, k) for k in range(4)]
    got = [("wait", 10 * k + 1, None, k) for k in range(4)]
    instants = ikp.edit.connect(block(got, sent, got), "issue", "wait")
    both = ikp.edit.concat([chain(), ikp.edit.shift(instants, 100)])
    both.save(tmp_path / "t.pftrace")
    assert_same(ikp.load(tmp_path / "t.pftrace"), both)
    check_trace(tmp_path / "t.pftrace", both)


@pytest.mark.tp
def test_one_source_has_many_targets(tmp_path: Path) -> None:
    """Some events have 300 arrows, most one or none."""
    waits = [[("wait", 5 + warp, 900 + warp, 0), ("wait", 950, 960, 1)] for warp in range(300)]
    issues = [("issue", 0, 1, 0), ("issue", 1, 2, 5), ("issue", 920, 921, 1)]
    trace = ikp.edit.connect(block(issues, *waits), "issue", "wait")
    trace.save(tmp_path / "t.pftrace")
    assert_same(ikp.load(tmp_path / "t.pftrace"), trace)
    check_trace(tmp_path / "t.pftrace", trace)


@pytest.mark.tp
def test_a_target_that_is_over_when_its_source_starts_gets_no_arrow(tmp_path: Path) -> None:
    """The timer was too coarse to tell, or times were changed."""
    trace = block([("wait", 3, 5, 0), ("wait", 6, 9, 1)], [("issue", 5, 6, 0), ("issue", 7, 8, 1)])
    trace = ikp.edit.connect(trace, "issue", "wait")
    assert len(joined(trace)) == 2
    trace.save(tmp_path / "t.pftrace")
    check_trace(tmp_path / "t.pftrace", trace)
    assert_same(ikp.load(tmp_path / "t.pftrace"), trace)


@st.composite
def recorded_with_few_payloads(draw: st.DrawFn) -> Trace:
    """Return a trace in which payloads often agree."""
    trace = draw(traces())
    assume(len(trace.events))
    values = draw(
        st.lists(st.integers(0, 2), min_size=len(trace.events), max_size=len(trace.events))
    )
    kinds = np.full(len(values), int(PayloadType.U32), np.uint8)
    events = replace(trace.events, payload=np.array(values, np.uint32), payload_type=kinds)
    return replace(trace, events=events)


@pytest.mark.any_pins
@pytest.mark.tp
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
    max_examples=settings.default.max_examples // 2,
)
@given(
    trace=recorded_with_few_payloads(),
    within=st.sampled_from(["warp", "block", "launch", "trace"]),
    again=st.booleans(),
)
def test_whatever_was_recorded_is_drawn_and_read_back(
    trace: Trace, within: Any, again: bool, tmp_path: Path
) -> None:
    names = [one.name for one in trace.regions]
    assume(len(set(names)) > 1)
    one, other = list(dict.fromkeys(names))[:2]
    try:
        trace = ikp.edit.connect(trace, one, other, within=within)
        trace = ikp.edit.connect(trace, other, one, within=within) if again else trace
    except UsageError:
        assume(False)
    trace.save(tmp_path / "t.pftrace", force=True)
    check_trace(tmp_path / "t.pftrace", trace)
    assert_same(ikp.load(tmp_path / "t.pftrace"), trace)


TIMES = st.lists(st.integers(0, 9), min_size=1, max_size=5).map(sorted)


@given(starts=TIMES, ends=TIMES)
def test_as_many_are_paired_as_can_be_with_the_least_time_between(
    starts: list[int], ends: list[int]
) -> None:
    trace = block([("issue", one, 20, 0) for one in starts], [("wait", 0, one, 0) for one in ends])
    rows = [np.flatnonzero(trace.events.region == number) for number in (0, 1)]
    source, target = pairs(trace, *rows, "block")
    begin, end = trace.events.start_ns[source] - START, trace.events.end_ns[target] - START
    assert np.all(begin <= end)
    in_time = np.argsort(end, kind="stable")
    assert np.all(np.diff(begin[in_time]) >= 0), "the n-th is not paired with the n-th"
    most = min(len(starts), len(ends))
    for count in range(most, -1, -1):
        found = [
            sum(some) - sum(others)
            for some in combinations(ends, count)
            for others in combinations(starts, count)
            if all(a <= b for a, b in zip(others, some, strict=True))
        ]
        if found:
            break
    assert (len(source), int((end - begin).sum())) == (count, min(found))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("issues", "wait"), "no region 'issues'; it has: 'issue', 'mma', 'wait'"),
        (("issue", "mma"), "no events of region 'mma'"),
        (("issue", "issue"), "can't be joined with itself"),
        (("wait", "issue"), "belong together: none with one payload, in one warp"),
        (("issue", "wait", "sm"), "within='sm' is unknown: use one of 'warp', 'block'"),
    ],
    ids=str,
)
def test_what_cannot_be_joined_is_told(arguments: tuple[Any, ...], message: str) -> None:
    source, target, *within = arguments
    with pytest.raises(UsageError, match=message):
        ikp.edit.connect(ring(8, 8), source, target, within=within[0] if within else "warp")


def test_payloads_that_differ_are_told() -> None:
    trace = block([("issue", k, k + 1, k) for k in range(9)], [("wait", 20, 21, 1 << 20)])
    with pytest.raises(UsageError, match=r"Payloads are 0, 1, 2, 3, 4, 5, \.\.\. and 1048576\."):
        ikp.edit.connect(trace, "issue", "wait")


@pytest.mark.parametrize(
    ("within", "advice"),
    [
        (
            "block",
            "Record the same in both, or look further, with within= one of 'launch', 'trace'.",
        ),
        ("trace", "Record the same in both."),
    ],
)
def test_where_to_look_further_is_told(within: Any, advice: str) -> None:
    trace = block([("issue", 0, 1, 3)], [("wait", 20, 21, 4)])
    with pytest.raises(UsageError) as refused:
        ikp.edit.connect(trace, "issue", "wait", within=within)
    assert str(refused.value).endswith(f"Payloads are 3 and 4. {advice}")


def test_events_without_payload_cannot_be_joined() -> None:
    trace = block([("issue", 0, 1, None)], [("wait", 2, 3, 0)])
    with pytest.raises(
        UsageError, match=r"no event of 'issue' has a payload.*ikp.range\('issue', k\)"
    ):
        ikp.edit.connect(trace, "issue", "wait")
    mixed = block([("issue", 0, 1, None), ("issue", 1, 2, 0)], [("wait", 2, 3, 0)])
    assert connected(mixed) == [("issue", 0, 1, "wait", 1, 2)]


def test_a_payload_that_all_warps_share_is_refused() -> None:
    """An arrow from each of 5000 blocks to each would take a long time, and tell nothing."""
    trace = block(
        *([("issue", 0, 1, 0), ("wait", 2, 3, 0)] for _ in range(5000)), blocks=range(5000)
    )
    with pytest.raises(UsageError, match="too many events with the same payload"):
        ikp.edit.connect(trace, "issue", "wait", within="launch")
    assert len(connected(trace)) == 5000


def test_totals_have_nothing_to_join() -> None:
    with pytest.raises(UsageError, match="connect joins events, and the trace has totals"):
        ikp.edit.connect(gemm(), "load", "dot")


@pytest.mark.parametrize("name", ["flow_out", "flow_in", "flow_in_2", "flow_in_10"])
def test_their_arguments_are_no_one_elses(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name!r}: that name is of the arrows"):
        ikp.edit.add_args(ring(1, 1), **{name: [1, 2, 3]})


def test_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    trace = ikp.edit.add_args(ring(1, 1), name=["a", "b", None])
    with pytest.raises(ExportError, match="an arrow's number is no integer"):
        replace(trace, args={"flow_out": trace.args["name"]}).save(tmp_path / "t.pftrace")
