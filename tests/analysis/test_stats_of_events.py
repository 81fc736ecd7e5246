"""Statistics by iteration and by window of time, and histograms."""

import json
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given

from ikp.analysis.counting_regions import stats
from ikp.cli.main import cli
from ikp.core.abi import Kind, PayloadType
from ikp.errors import UsageError
from tests.analysis.example import launch, trace
from tests.strategies import traces
from tests.totals import gemm

pytestmark = pytest.mark.any_pins

EVENTS = [(0, 0, 0, 100), (0, 1, 100, 400), (0, 2, 500, 500), (1, 0, 0, 300), (2, 0, 850, 950)]


def counted(made, values):
    """Return the trace with these payloads; None for those without."""
    types = [PayloadType.NONE if one is None else PayloadType.I32 for one in values]
    bits = np.array([one or 0 for one in values], np.int32).view(np.uint32)
    events = replace(made.events, payload=bits, payload_type=np.array(types, np.uint8))
    return replace(made, events=events)


def sound(made):
    clocks = [replace(one.clock, ns_per_tick=one.clock.ns_per_tick or 1) for one in made.launches]
    pairs = zip(made.launches, clocks, strict=True)
    return replace(made, launches=tuple(replace(one, clock=clock) for one, clock in pairs))


def rows(table):
    return [(row.group, row.region, row.count, row.total_ns) for row in table]


def test_each_iteration_has_its_rows_in_order():
    table = stats(counted(trace(EVENTS), [10, 9, 9, 10, None]), "iteration")
    assert rows(table) == [
        ("no iteration", "load", 1, 100),
        ("iteration 9", "dot", 1, 300),
        ("iteration 9", "tile done", 1, None),
        ("iteration 10", "load", 2, 400),
    ]
    assert [row.share for row in table] == [0.025, 0.075, None, 0.1], "of all the label's warps"
    assert [(one.group, one.warps, one.residence_ns) for one in table.residence] == [("", 4, 4000)]


def test_each_window_has_the_events_that_begin_in_it():
    table = stats(trace(EVENTS), "window:500ns")
    assert rows(table) == [
        ("0 ns to 500 ns", "load", 2, 400),
        ("0 ns to 500 ns", "dot", 1, 300),
        ("500 ns to 1.00 us", "load", 1, 100),
        ("500 ns to 1.00 us", "tile done", 1, None),
    ]
    assert rows(stats(trace(EVENTS), "window"))[-1][0] == "819 ns to 882 ns", "a 16th of 1000"


def test_windows_count_from_each_launchs_start():
    made = trace(
        [(0, 0, 0, 10), (1, 0, 5000, 5010)],
        launches=(launch(), launch()),
        slots=[(0, 0), (1, 0)],
    )
    later = made.slots.start_ns + np.array([0, 5000])
    made = replace(made, slots=replace(made.slots, start_ns=later, end_ns=later + 100))
    assert rows(stats(made, "window:50ns")) == [("0 ns to 50 ns", "load", 2, 20)]


@pytest.mark.parametrize("by", ["iteration", "window"])
@given(made=traces().map(sound))
def test_units_are_parts_of_the_whole(by, made):
    parts = stats(made, by)
    sums = defaultdict(Counter)
    for row in parts:
        sums[row.launch, row.region, row.kind].update(
            count=row.count, total_ns=row.total_ns or 0, self_ns=row.self_ns or 0
        )
    whole = {
        (row.launch, row.region, row.kind): Counter(
            count=row.count, total_ns=row.total_ns or 0, self_ns=row.self_ns or 0
        )
        for row in stats(made)
    }
    assert sums == whole
    assert str(parts) and parts.residence == stats(made).residence


@given(made=traces().map(sound))
def test_a_histogram_holds_each_range_once_between_its_edges(made):
    table = stats(made, histogram=True)
    events, of_slot = made.events, made.slots.launch
    found = {(one.launch, one.region): one for one in table.histograms}
    assert found.keys() == {(row.launch, row.region) for row in table if row.kind == "range"}
    for (label, region), one in found.items():
        chosen = events.kind == Kind.RANGE
        chosen &= [made.launches[of_slot[slot]].label == label for slot in events.slot]
        chosen &= [made.regions[i].name == region for i in events.region]
        took = np.maximum(1, (events.end_ns - events.start_ns)[chosen])
        assert sum(one.counts) == len(took)
        assert one.edges_ns[0] == pytest.approx(took.min())
        assert one.edges_ns[-1] == pytest.approx(took.max(), rel=1e-6)
        inner = np.array(one.edges_ns[1:-1])
        for cut, below in zip(inner, np.cumsum(one.counts), strict=False):
            low, high = ((took < cut * (1 + sign * 1e-9)).sum() for sign in (-1, 1))
            assert low <= below <= high


def test_the_table_shows_histograms_as_bars_where_asked():
    durations = [10] * 8 + [20] * 4 + [100]
    made = trace([(0, 0, 100 * i, 100 * i + took) for i, took in enumerate(durations)])
    assert "█   ▄          ▁" in str(stats(made, histogram=True))
    assert "histogram" not in str(stats(made)) and not stats(made).to_dict()["histograms"]
    assert sum(stats(made, histogram=True).to_dict()["histograms"][0]["counts"]) == 13


@pytest.mark.parametrize(
    ("by", "told"),
    [
        ("window:10", "window:10us"),
        ("window:0ns", "window:10us"),
        ("window:1ps", "window:10us"),
        ("windows", "iteration, window"),
        ("window:0.05ns", "window:10us"),
    ],
)
def test_what_is_no_unit_is_refused(by, told):
    with pytest.raises(UsageError, match=told):
        stats(trace(EVENTS), by)


def test_units_without_end_are_refused():
    with pytest.raises(UsageError, match="name a longer one"):
        stats(trace([(0, 0, 0, 10), (0, 0, 20_000, 20_010)], residence=30_000), "window:1ns")
    many = trace([(0, 0, i, i + 1) for i in range(10_001)], residence=20_000)
    with pytest.raises(UsageError, match="count no iterations"):
        stats(counted(many, list(range(10_001))), "iteration")


@pytest.mark.parametrize("by", ["iteration", "window"])
def test_totals_dont_say_when(by):
    with pytest.raises(UsageError, match="record a timeline"):
        stats(gemm(), by)


def test_the_command_shows_both(tmp_path):
    counted(trace(EVENTS), [10, 9, 9, 10, None]).save(tmp_path / "x.pftrace")
    words = ["stats", str(tmp_path / "x.pftrace"), "--by", "iteration", "--histogram"]
    table = CliRunner().invoke(cli, words)
    assert table.exit_code == 0, table.output
    assert table.stdout.index("iteration 9") < table.stdout.index("iteration 10")
    found = json.loads(CliRunner().invoke(cli, [*words, "--format", "json"]).stdout)
    assert found["tables"][0]["rows"][0]["group"] == "no iteration"
    assert len(found["tables"][0]["histograms"]) == 3
    wrong = CliRunner().invoke(cli, [*words[:2], "--by", "weekday"])
    assert wrong.exit_code == 1 and "use one of rank" in wrong.stderr
