import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ikp.analysis.counting_regions import stats
from ikp.analysis.render import COLUMNS, as_text
from ikp.analysis.stats import RegionStats, Residence
from ikp.core.abi import Kind
from ikp.core.trace import ClockFit, make_columns
from ikp.errors import UsageError
from ikp.terminal import width
from tests.analysis.example import START, launch, trace

EVENTS = [(0, 0, 0, 100), (0, 1, 100, 400), (0, 2, 500, 500), (1, 0, 0, 300), (2, 0, 50, 250)]


def test_exact_figures_of_one_launch():
    table = stats(trace(EVENTS))
    assert table.rows == (
        RegionStats(
            launch="gemm",
            region="load",
            kind="range",
            launches=1,
            count=3,
            total_ns=600,
            self_ns=600,
            mean_ns=200.0,
            p50_ns=200.0,
            p95_ns=290.0,
            p99_ns=298.0,
            min_ns=100,
            max_ns=300,
            share=0.15,
            self_share=0.15,
            total_cycles=1200,
            mean_cycles=400.0,
            p50_cycles=400.0,
            p95_cycles=580.0,
        ),
        RegionStats(
            *("gemm", "dot", "range", 1, 1, 300, 300, 300.0, 300.0, 300.0, 300.0, 300, 300),
            *(0.075, 0.075, 600, 600.0, 600.0, 600.0),
        ),
        RegionStats("gemm", "tile done", "instant", 1, 1),
    )
    assert table.residence == (Residence("gemm", "", 4, 4000, 3100),)
    assert table["dot"].count == len(list(table)) - 2 == 1


def test_launches_with_one_label_are_taken_together_and_others_apart():
    table = stats(
        trace(
            [(0, 0, 0, 10), (1, 0, 0, 30), (2, 0, 0, 50)],
            launches=(launch("a"), launch("b"), launch("a")),
            slots=[(0, 0), (1, 0), (2, 0)],
            residence=100,
        )
    )
    assert [(r.launch, r.launches, r.count, r.total_ns, r.share) for r in table] == [
        ("a", 2, 2, 60, 0.3),
        ("b", 1, 1, 30, 0.3),
    ]


def test_regions_of_one_name_are_one_row():
    table = stats(trace([(0, 0, 0, 10), (0, 1, 0, 30)], regions=("load", "load")))
    assert [(row.region, row.count) for row in table] == [("load", 2)]


def test_a_range_of_no_length_counts_as_a_range():
    made = trace([(0, 0, 0, 10), (0, 1, 5, 5)])
    kinds = np.full(2, Kind.RANGE, np.uint8)
    table = stats(replace(made, events=replace(made.events, kind=kinds)))
    assert (table["dot"].kind, table["dot"].total_ns, table["dot"].share) == ("range", 0, 0.0)


def test_no_residence_time_gives_no_share():
    assert stats(trace(EVENTS, residence=0))["dot"].share is None


def test_an_empty_trace_gives_an_empty_table_that_prints():
    table = stats(trace([], launches=(launch(),), slots=[(0, 0)]))
    assert len(table) == 0
    assert "0 records, none dropped" in str(table)


def test_durations_too_wide_to_pack_beside_the_group():
    made = trace([(0, 0, 0, 1), (0, 1, 0, 7), (1, 1, 0, 2)])
    long = made.events.end_ns.copy()
    long[0] += 2**62
    table = stats(replace(made, events=replace(made.events, end_ns=long)))
    assert table["load"].max_ns == 2**62 + 1
    assert (table["dot"].min_ns, table["dot"].max_ns, table["dot"].mean_ns) == (2, 7, 4.5)


RANGES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 10**6), st.integers(0, 2**40)),
    max_size=60,
)


@given(RANGES)
def test_agrees_with_a_naive_implementation(drawn):
    events = [(slot, region, start, start + length) for slot, region, start, length in drawn]
    made = trace(
        events,
        launches=(launch("a"), launch("b"), launch("a")),
        slots=[(0, 0), (1, 0), (2, 0), (2, 1)],
        residence=10**6,
    )
    naive: dict[tuple[str, str, str], list[int]] = {}
    for slot, region, start, end in events:
        key = ("abaa"[slot], made.regions[region].name, "instant" if start == end else "range")
        naive.setdefault(key, []).append(end - start)
    table = stats(made)
    assert {(r.launch, r.region, r.kind): r.count for r in table} == {
        key: len(durations) for key, durations in naive.items()
    }
    for row in (row for row in table if row.kind == "range"):
        durations = naive[row.launch, row.region, row.kind]
        assert row.total_ns == sum(durations)
        assert (row.min_ns, row.max_ns) == (min(durations), max(durations))
        assert row.mean_ns == pytest.approx(np.mean(durations))
        assert row.p50_ns == pytest.approx(np.percentile(durations, 50))
        assert row.p95_ns == pytest.approx(np.percentile(durations, 95))
        assert row.p99_ns == pytest.approx(np.percentile(durations, 99))
        assert row.p95_cycles == pytest.approx(2 * np.percentile(durations, 95))
        assert row.share == pytest.approx(sum(durations) / (3e6 if row.launch == "a" else 1e6))


def test_a_million_ranges_are_all_counted():
    count, slots = 1_000_000, 8192
    rng = np.random.default_rng(1)
    made = trace([], slots=[(0, i) for i in range(slots)])
    start = START + np.arange(count)
    events = make_columns(
        type(made.events),
        slot=np.sort(rng.integers(0, slots, count)),
        region=rng.integers(0, 3, count),
        kind=np.full(count, Kind.RANGE),
        start_ns=start,
        end_ns=start + rng.integers(1, 100_000, count),
        ticks=start,
        payload_type=np.zeros(count),
        payload=np.zeros(count),
    )
    made = replace(made, events=events)
    table = stats(made)
    assert sum(row.count for row in table) == count


def test_json_and_csv_hold_raw_nanoseconds():
    table = stats(trace(EVENTS))
    (loaded,) = json.loads(table.to_json())["tables"]
    assert loaded == {"files": [], **json.loads(json.dumps(table.to_dict()))}
    assert loaded["rows"][0]["p99_ns"] == 298.0
    assert loaded["rows"][2]["total_ns"] is None
    assert loaded["evidence"][0]["residual_sd_ns"] == 12.0
    read = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert read[0]["total_ns"] == "600"
    assert (read[2]["kind"], read[2]["total_ns"]) == ("instant", "")


def test_the_plain_table_is_aligned_and_in_readable_units():
    text = str(stats(trace([(0, 0, 0, 512), (0, 1, 0, 12_345), (0, 2, 0, 3_400_000)])))
    lines = text.splitlines()
    titles = " ".join(column.title for column in COLUMNS if column.title != "group")
    assert " ".join(lines[0].split()) == titles
    assert lines[2].startswith("gemm: 1.00 us, 4 blocks of 1 warp, 2.00 GHz, 4.00 us of warp time")
    assert "3.40 ms" in lines[3] and "12.35 us" in lines[4] and "512 ns" in lines[5]
    assert len({line.index(" 1 ") for line in lines[3:6]}) == 1


@pytest.mark.parametrize("wide", [40, 80, 200])
def test_rich_shows_the_same_lines(wide):
    table = stats(trace(EVENTS))
    console = Console(width=wide, file=io.StringIO())
    console.print(table)
    shown = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert shown == as_text(table, wide).splitlines()


LONG = "tl.load @chunk_gated_delta_rule_forward.py:417 in the loop of line 391"


@pytest.mark.parametrize("wide", [60, 80, 100, 200])
@pytest.mark.parametrize("by", [None, "block"])
def test_names_are_whole_and_lines_fit_whatever_the_width(wide, by):
    made = trace([(0, 0, 0, 512), (1, 1, 0, 12_345), (0, 2, 0, 70)], regions=("load", LONG, "測量"))
    lines = as_text(made.stats(by), wide).splitlines()
    for name in ("load", LONG, "測量", "gemm"):
        assert any(name in line for line in lines)
    assert max(width(line) for line in lines if LONG not in line) <= wide
    for always in ("count", "share", "self", "p50"):
        assert always in lines[0]
    dropped = [one for one in ("min", "max", "total") if one not in lines[0].split()]
    assert dropped == ([] if wide == 200 else ["min", "max", "total"])
    (numbers,) = [line for line in lines if "3,086" in line or "12.35 us" in line]
    assert "12.35 us" in numbers


def test_control_characters_and_endless_names_do_not_reach_the_reader():
    made = trace(
        [(0, 0, 0, 10), (0, 1, 0, 20)],
        regions=("\x1b[2Jload\n", "x" * 1_000_000),
        launches=(launch("\x1b]0;title\x07\u202e", notes=("note \x1b[31m.",)),),
    )
    for text in (as_text(made.stats(), 80), made.stats()._repr_html_()):
        assert "\x1b" not in text and "\x07" not in text and "\u202e" not in text
        assert "\\x1b[2Jload\\n" in text and "\\x1b]0;title\\x07\\u202e" in text
        assert "note \\x1b[31m." in text
        assert "... (1,000,000 characters)" in text and len(text) < 10_000
    assert "\x1b" not in str(made.stats()) and "x" * 1_000_000 in str(made.stats())
    assert json.loads(made.stats().to_json())["tables"][0]["rows"][1]["region"] == "\x1b[2Jload\n"


def test_the_line_of_a_label_says_what_its_launches_were():
    made = trace(
        [(0, 0, 0, 100), (2, 0, 0, 250), (3, 0, 0, 500)],
        launches=(launch("a"), launch("a", grid=(3, 1, 1)), launch("b", attempted=2, kept=1)),
        slots=[(0, 0), (0, 1), (1, 0), (2, 0)],
    )
    late = made.slots.end_ns + np.array([0, 500, 1000, 0])
    table = replace(made, slots=replace(made.slots, end_ns=late)).stats()
    first = table.evidence[0]
    assert (first.duration_ns, first.duration_min_ns, first.duration_max_ns) == (1750, 1500, 2000)
    lines = str(table).splitlines()
    assert lines[3] == (
        "a: 2 launches of 1.75 us (1.50 us to 2.00 us), 3 to 4 blocks of 1 warp, 2.00 GHz, 4.50 us "
        "of warp time (3 of 7 warps recorded), 92.2 % of it in no range"
    )
    assert lines[0].startswith("b: 50.0 % of the records were lost")
    assert lines[5].startswith("b: 1.00 us, 4 blocks") and "at most 50.0 % of it" in lines[5]


def test_where_ticks_are_no_cycles_there_are_none():
    host = launch(clock=ClockFit("host", 1.0, "exact"))
    table = stats(trace(EVENTS, launches=(host,)))
    assert table["dot"].p50_cycles is None and table.evidence[0].ghz is None
    assert "cycles" not in str(table) and "GHz" not in str(table)
    mixed = (launch("a"), launch("a", clock=ClockFit("globaltimer", 1.0, "exact")))
    table = stats(trace([(0, 0, 0, 9), (1, 0, 0, 9)], launches=mixed, slots=[(0, 0), (1, 0)]))
    assert table["load"].total_cycles is None


def test_time_in_no_range_is_known_for_each_group():
    table = trace([(0, 0, 0, 100), (0, 1, 50, 80), (1, 0, 0, 300)]).stats(by="block")
    found = {one.group: one.in_no_range_ns for one in table.residence}
    assert found == {"block 0": 900, "block 1": 700, "block 2": 1000, "block 3": 1000}
    assert "block 1  70.0 % in no range" in str(table)


def test_time_in_no_range_is_not_known_just_where_a_warp_has_totals():
    launches = (launch("a"), launch("a", mode="totals"))
    made = trace([(0, 0, 0, 100)], launches=launches, slots=[(0, 0), (0, 1), (1, 1)])
    found = {one.group: one.in_no_range_ns for one in made.stats(by="block").residence}
    assert found == {"block 0": 900, "block 1": None}
    alone = trace([(0, 0, 0, 100)], launches=launches, slots=[(0, 0)])
    assert [one.in_no_range_ns for one in alone.stats().residence] == [900]


def test_the_largest_rows_and_how_many_there_were():
    made = trace([(0, 0, 0, 10), (1, 1, 0, 30), (2, 2, 0, 20)])
    assert [row.region for row in made.stats().top(2)] == ["dot", "tile done"]
    assert "2 of 3 rows shown: the largest by total." in str(made.stats().top(2))
    assert made.stats().top(3) == made.stats()
    with pytest.raises(UsageError, match="at least one row"):
        made.stats().top(0)


def test_markup_in_a_name_is_shown_as_it_is():
    table = stats(trace([(0, 0, 0, 10)], regions=("[bold]load[/]",)))
    console = Console(width=200, file=io.StringIO())
    console.print(table)
    assert "[bold]load[/]" in console.file.getvalue()


def test_the_evidence_tells_losses_in_words():
    told = (
        "5 records dropped (the latest of each full slot); prof.buffer(...) would have held all",
        "2 warps never reached finish: their counts are read from the records",
        "1 warp never reached finish: their counts are read from the records",
        "1 earlier launches wrote to this buffer; only the last is kept",
    )
    figures = {"attempted": 10, "kept": 5, "unfinished": 2, "relaunches": 1, "needed_bytes": 4096}
    lossy = launch(**figures, notes=(*told, "a note"))
    text = str(stats(trace(EVENTS, launches=(lossy,))))
    assert not any(note in text for note in told), "each is told once"
    assert "5 of 10 records dropped" in text
    assert "keep 16 records here and one attempted 3" in text
    assert "kept ones. prof.buffer('gemm', size=4096) would have held all." in text
    assert "2 warps never reached finish" in text
    assert "records of 1 earlier launch in the same buffer were overwritten" in text
    assert "residual 12 ns sd, 30 ns max" in text
    assert text.endswith("gemm: a note.")


def test_an_exact_clock_has_no_residual_to_tell():
    host = launch(clock=ClockFit("host", 1.0, "exact"), attempted=5, kept=5)
    text = str(stats(trace(EVENTS, launches=(host,))))
    assert "clock host (exact)." in text and "residual" not in text


def test_a_residual_that_nothing_measured_is_unknown_not_zero():
    fitted = ClockFit("cycles", 0.5, "fitted", anchors=2)
    known = replace(fitted, anchors=20, residual_sd_ns=3.0, residual_max_ns=9.0)
    for clocks in ((fitted,), (known, fitted)):
        launches = tuple(launch(clock=clock, attempted=5, kept=5) for clock in clocks)
        text = str(stats(trace(EVENTS, launches=launches)))
        assert "clock cycles (fitted), residual unknown: no spare anchors." in text


def test_select_by_region_and_launch():
    table = stats(trace(EVENTS))
    assert [row.region for row in table.select(region=["lo*", "*done"])] == ["load", "tile done"]
    assert [row.kind for row in table.select(kind="instant")] == ["instant"]
    assert table.select(launch="g?mm").rows == table.rows
    assert table.select(region="dot")["dot"] == table["dot"]  # as it was among all
    for choice, message in (
        ({"region": "x"}, "no region matches 'x'; there are: 'dot', 'load'"),
        ({"region": "lo"}, "no region matches 'lo'"),
        ({"launch": "x"}, "no launch matches 'x'; there are: 'gemm'"),
        ({"kind": "x"}, "kind='x' is unknown"),
    ):
        with pytest.raises(UsageError, match=message):
            table.select(**choice)


@pytest.mark.parametrize(
    ("key", "order"),
    [
        ("total", ["load", "dot", "tile done"]),
        ("mean", ["dot", "load", "tile done"]),
        ("p99", ["dot", "load", "tile done"]),
        ("count", ["load", "dot", "tile done"]),
    ],
)
def test_sort(key, order):
    assert [row.region for row in stats(trace(EVENTS)).sorted_by(key)] == order


def test_sort_by_something_else_is_refused():
    with pytest.raises(UsageError, match="use one of total, self, mean, count, p50, p95, p99"):
        stats(trace(EVENTS)).sorted_by("name")


def test_the_only_row_of_a_name_is_found_and_doubt_is_an_error():
    table = stats(
        trace(
            [(0, 0, 0, 10), (1, 0, 0, 30)],
            launches=(launch("a"), launch("b")),
            slots=[(0, 0), (1, 0)],
        )
    )
    with pytest.raises(KeyError, match="2 rows"):
        table["load"]
    assert table.select(launch="b")["load"].total_ns == 30


def test_statistics_by_unit_are_those_of_its_slots() -> None:
    made = trace(
        [(0, 0, 0, 100), (1, 0, 0, 300), (2, 0, 0, 500), (2, 2, 600, 600)],
        slots=[(0, 0), (0, 1), (0, 1)],
        residence=1000,
    )
    by_block = made.stats(by="block")
    found = {(row.group, row.kind): (row.count, row.total_ns, row.share) for row in by_block}
    assert found == {
        ("block 0", "range"): (1, 100, 0.1),
        ("block 1", "range"): (2, 800, 0.4),
        ("block 1", "instant"): (1, None, None),
    }
    assert next(iter(made.stats(by="sm"))).group == "SM 2"
    assert {row.group for row in made.stats(by="warp")} == {"warp 0"}
    assert {row.group for row in made.stats(by="rank")} == {"no rank"}
    assert {row.group for row in made.stats(by="role")} == {"no role"}
    assert "block 1" in str(by_block)
    assert "group" not in str(made.stats())
    assert sum(row.count for row in by_block) == sum(row.count for row in made.stats())


def test_statistics_by_something_else_are_refused() -> None:
    with pytest.raises(UsageError, match="no statistics by 'lane': use one of rank, sm, block"):
        trace([(0, 0, 0, 100)]).stats(by="lane")


def test_statistics_by_unit_of_an_empty_trace() -> None:
    assert len(trace([]).stats(by="warp")) == 0
