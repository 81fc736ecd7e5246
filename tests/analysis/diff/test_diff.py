"""What ``ikp.diff`` says of launches whose truth is known."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

import ikp
from ikp.analysis.diff._interval import BETWEEN_RUNS, quantile, tail
from ikp.core.abi import Kind
from ikp.core.code_facts import FACTS
from ikp.core.run_figures import ADDRESSES, FAR, PARAMETERS, TIMED, TRIED
from ikp.errors import UsageError
from tests.analysis.diff.noise import (
    alternating,
    as_totals,
    effects,
    of_one_role,
    of_process,
    run,
    separate,
)
from tests.analysis.example import launch, trace
from tests.documents import check_document
from tests.others import without_records
from tests.strategies import traces as any_traces

pytestmark = pytest.mark.any_pins


def with_a_rate(made):
    """Return the trace with clocks that run."""
    clocks = (
        replace(each.clock, ns_per_tick=each.clock.ns_per_tick or 1) for each in made.launches
    )
    pairs = zip(made.launches, clocks, strict=True)
    return replace(made, launches=tuple(replace(one, clock=clock) for one, clock in pairs))


def traces():
    return any_traces().map(with_a_rate)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def pair(*, planted=None, count=20, seed=0):
    return alternating(rng(seed), count, planted)


def region(found, name):
    (row,) = (row for row in found.kernels[0].rows if row.region == name)
    return row


# How often it is wrong, and how much it finds.


@pytest.mark.parametrize("make", [alternating, separate])
def test_at_most_one_of_twenty_pairs_of_equal_runs_raises_an_alarm(make):
    noise = rng(1)
    assert sum(bool(ikp.diff(*make(noise, 20)).moved) for _ in range(100)) <= 5


@pytest.mark.parametrize(("make", "planted"), [(alternating, 1.01), (separate, 1.03)])
def test_what_is_planted_in_one_region_is_found_in_nine_of_ten_pairs(make, planted):
    """In turn 1 %; of two runs 3 %, for equal ones differ by half a percent."""
    noise, found = rng(2), 0
    for _ in range(100):
        one, other = make(noise, 20, {"dot": planted})
        row = region(ikp.diff(of_one_role(one), of_one_role(other)), "dot")
        found += row.time.verdict == "longer" and row.time.low < row.time.difference
    assert found >= 90


def test_several_runs_of_each_show_what_two_runs_cannot():
    noise, alarms, found = rng(6), 0, 0
    for planted in [None, {"dot": 1.03}] * 20:
        sides = [
            [of_one_role(of_process(noise, 4, n, planted if n > 7 else None)) for n in part]
            for part in (range(8), range(8, 16))
        ]
        kernel = ikp.diff(*sides)
        alarms += planted is None and bool(kernel.moved)
        found += planted is not None and kernel.kernels[0].duration.verdict == "longer"
    assert alarms <= 2 and found >= 18


def test_of_two_runs_a_region_may_take_what_another_loses():
    """Launches that are all alike show no noise; between two runs there is some, still."""
    noise = rng(7)
    one, other = (
        of_one_role(run(noise, np.ones(20), start=each, scatter=0)) for each in (0, 10**9)
    )
    kernel = ikp.diff(one, other).kernels[0]
    reach = {row.region: (row.time.high - row.time.low) / 2 for row in kernel.rows}
    sure = quantile(0.025 / 7, 1e6)  # of five regions, the rest and the kernel
    part = BETWEEN_RUNS.kernel * kernel.residence.before
    assert reach["dot"] == pytest.approx(sure * part, rel=0.2)
    own = BETWEEN_RUNS.region * region(ikp.diff(one, other), "load").time.before
    assert own < part and reach["load"] == pytest.approx(sure * own, rel=0.2)


def test_bounds_hold_the_truth_together():
    """Not only of 0: of what was planted, in every region at once."""
    noise, missed = rng(3), 0
    planted = {"load": 1.05, "dot": 0.97}
    truth = {"load": 20 * 3, "dot": -270 * 3, "wait": 0, "store": 0, "sync": 0}
    for _ in range(100):
        found = ikp.diff(*(of_one_role(one) for one in alternating(noise, 20, planted)))
        rows = [region(found, name).time for name in truth]
        exact = zip(rows, truth.values(), strict=True)
        missed += any(not row.low <= moved <= row.high for row, moved in exact)
    assert missed <= 7


def test_what_moved_is_named_first_and_what_it_did_is_told():
    found = ikp.diff(*pair(planted={"wait": 1.1}))
    kernel = found.kernels[0]
    assert {row.region for row in kernel.rows[:2]} == {"wait"}
    assert [row.time.verdict for row in kernel.rows[:2]] == ["longer", "longer"]
    assert kernel.duration.verdict == kernel.residence.verdict == "longer"
    assert {row.time.verdict for row in kernel.rows if row.region == "dot"} == {"even"}
    assert "of that wait (" in str(found) and "kernel: " in str(found)


def test_the_other_way_round_it_says_the_opposite():
    one, other = pair(planted={"wait": 1.1})
    there, back = ikp.diff(one, other).kernels[0], ikp.diff(other, one).kernels[0]
    assert back.duration.verdict == "shorter"
    assert back.duration.low == pytest.approx(-there.duration.high)


def test_a_trace_is_even_with_itself():
    one, _ = pair()
    found = ikp.diff(one, one)
    assert not found.moved
    assert {row.time.verdict for row in found.kernels[0].rows} == {"even"}


# Where the numbers come from.


@given(traces())
def test_rows_add_up_to_the_time_of_a_warp(made):
    for kernel in ikp.diff(made, made).kernels:
        if all(one.mode == "timeline" for one in made.launches):
            inside = made.events.end_ns.max(initial=0) <= made.slots.end_ns.max(initial=0)
            total = sum(row.time.before for row in kernel.rows if row.time)
            assert not inside or total == pytest.approx(kernel.residence.before)


@given(traces())
def test_counts_and_medians_are_those_of_the_columns(made):
    found = {kernel.before: kernel for kernel in ikp.diff(made, made).kernels}
    labels = [one.label for one in made.launches]
    of_event = made.slots.launch[made.events.slot]
    for label, kernel in found.items():
        mine = [i for i, one in enumerate(labels) if one == label]
        ranks = {made.launches[i].rank for i in mine}
        shapes = {(made.launches[i].grid, made.launches[i].warps_per_block) for i in mine}
        if len(ranks) > 1 or len(shapes) > 1:
            continue
        ran = [i for i in mine if (made.slots.launch == i).any()]
        if kernel.launches[0] != len(ran):
            continue  # some are far out
        for row in (row for row in kernel.rows if row.kind == "range"):
            counts, medians = [], []
            for i in ran:
                chosen = (of_event == i) & (made.events.kind == Kind.RANGE)
                chosen &= [made.regions[r].name == row.region for r in made.events.region]
                roles = made.slots.role[made.events.slot]
                chosen &= [made.roles[r] == row.role for r in roles]
                counts.append(chosen.sum())
                took = (made.events.end_ns - made.events.start_ns)[chosen]
                medians += [np.median(took)] if len(took) else []
            assert row.count == (pytest.approx(np.mean(counts)),) * 2
            assert row.p50 == (pytest.approx(np.median(medians)),) * 2


def test_cycles_leave_the_clocks_rate_out():
    one, other = pair()
    clock = replace(one.launches[0].clock, ns_per_tick=0.55)
    slow = tuple(replace(each, clock=clock) for each in one.launches)
    ticks = (one.events.ticks / 1.1).astype(np.int64)
    slower = replace(one, launches=slow, events=replace(one.events, ticks=ticks))
    assert "2.00 and 1.82 GHz" in str(ikp.diff(other, slower))
    assert not ikp.diff(other, slower).moved
    assert ikp.diff(other, slower, unit="cycles").kernels[0].duration.verdict == "shorter"


@pytest.mark.parametrize(
    ("freedom", "upper", "value"),
    # Student's table, as printed in any textbook
    [(1, 0.025, 12.706), (2, 0.005, 9.925), (9, 0.025, 2.262), (30, 0.0005, 3.646)],
)
def test_students_quantiles_are_those_of_the_table(freedom, upper, value):
    assert quantile(upper, freedom) == pytest.approx(value, abs=5e-4)
    assert tail(quantile(upper, freedom), freedom) == pytest.approx(upper)


# What can't be known.


def test_one_launch_tells_nothing():
    found = ikp.diff(*pair(count=1, planted={"dot": 2.0}))
    kernel = found.kernels[0]
    assert kernel.duration.verdict == "unknown" and "2 launches" in kernel.duration.why
    assert {row.time.low for row in kernel.rows} == {None}
    assert not found.moved and str(found).count(f"can't tell: {kernel.duration.why}") == 1
    assert str(found).count("can't tell") == 1 + len(kernel.rows)
    assert "1 and 1 launches\n" in str(found)


@pytest.mark.parametrize("side", [0, 1])
def test_dropped_records_leave_regions_unknown_but_not_the_kernel(side):
    both = list(pair(planted={"dot": 1.2}))
    lossy = replace(both[side].launches[0], attempted=both[side].launches[0].kept + 7)
    both[side] = replace(both[side], launches=(lossy, *both[side].launches[1:]))
    found = ikp.diff(*both, fail_over=["dot.count=+0%", "duration=+3%"])
    assert found.kernels[0].duration.verdict == "longer"
    assert {row.time.why for row in found.kernels[0].rows} == {
        f"{('before', 'after')[side]}: 7 records were dropped"
    }
    assert [one.verdict for one in found.limits] == ["unknown", "unknown", "over"]


def test_the_hosts_clock_says_nothing_of_a_gpu():
    one, other = (
        replace(
            each,
            launches=tuple(
                replace(r, clock=replace(r.clock, kind="host", rate="exact", ns_per_tick=1.0))
                for r in each.launches
            ),
        )
        for each in pair(planted={"dot": 2.0})
    )
    found = ikp.diff(one, other)
    assert not found.moved and "the host's" in found.kernels[0].duration.why
    with pytest.raises(UsageError, match="counts no cycles"):
        ikp.diff(one, other, unit="cycles")


def test_a_region_on_one_side_only_is_named_and_not_compared():
    one, other = pair()
    other = replace(
        other, regions=tuple(replace(r, name=r.name.replace("dot", "mma")) for r in other.regions)
    )
    found = ikp.diff(of_one_role(one), of_one_role(other))
    assert region(found, "dot").only == "before" and region(found, "mma").only == "after"
    assert region(found, "dot").time is None
    (limit,) = ikp.diff(of_one_role(one), of_one_role(other), fail_over=["dot.p50=+1%"]).limits
    assert limit.verdict == "unknown"


def test_kernels_are_paired_by_full_name_then_label_then_bare_name():
    noise = rng()

    def of(*named):
        made = [run(noise, effects(noise, 5), label=label) for label, _ in named]
        full = (
            replace(one, launches=tuple(replace(each, kernel=kernel) for each in one.launches))
            for one, (_, kernel) in zip(made, named, strict=True)
        )
        return ikp.edit.concat(list(full))

    def pairs(before, after):
        found = ikp.diff(of(*before), of(*after))
        return [(one.before, one.after) for one in found.kernels], found.notes

    same, _ = pairs([("k", "k(int)"), ("k#1", "k(long)")], [("k", "k(long)"), ("k#1", "k(int)")])
    assert same == [("k", "k#1"), ("k#1", "k")]  # who came first got the better label
    same, _ = pairs([("k", "k<1>"), ("m", "m<1>")], [("k", "k<2>"), ("m", "m<2>")])
    assert same == [("k", "k"), ("m", "m")]  # tuned otherwise
    same, notes = pairs([("a::k", ""), ("m", "")], [("k<float>#a234567", "a::k<float>"), ("m", "")])
    assert ("a::k", "k<float>#a234567") in same and "other arguments" in notes[0]
    same, _ = pairs([("k", ""), ("m", "")], [("k<1>", "k<1>"), ("k<2>", "k<2>"), ("m", "")])
    assert same == [("m", "m")]  # which of the two is not known


def test_kernels_of_other_names_are_compared_only_if_there_is_one_of_each():
    noise = rng()
    old, new, third = (run(noise, effects(noise, 5), label=label) for label in ("a", "b", "c"))
    assert "different names" in ikp.diff(old, new).notes[0]
    found = ikp.diff(ikp.edit.concat([old, third]), new)
    assert found.kernels == () and found.only_before == ("a", "c") and found.only_after == ("b",)
    assert "can't tell" in found.notes[0]
    both = ikp.diff(ikp.edit.concat([old, third]), ikp.edit.concat([third, new]))
    assert [one.before for one in both.kernels] == ["c"]


@pytest.mark.parametrize("about", [PARAMETERS, FAR, FACTS, ADDRESSES, TIMED, TRIED])
def test_figures_of_launches_are_no_difference_of_the_recording(about):
    """Pointers differ in any two processes, and so do times."""
    sides = [
        replace(each, provenance={f"{about}gemm": text})
        for each, text in zip(pair(count=3), ('{"0": "00"}', '{"0": "01"}'), strict=True)
    ]
    assert [note for note in ikp.diff(*sides).notes if "differs" in note] == []


def test_what_else_differs_is_told_but_not_what_chose_the_launches():
    one, other = pair(count=3)
    old, new = (
        replace(each, provenance={"triton": v}) for each, v in ((one, "3.6"), (other, "3.9"))
    )
    assert "triton differs: 3.6 and 3.9." in ikp.diff(old, new).notes
    chosen = ikp.edit.rename_launches(ikp.edit.select(one, launch="gemm"), {"gemm": "a"})
    assert [note for note in ikp.diff(chosen, other).notes if "edited" in note] == []
    assert "edited differs" in " ".join(ikp.diff(ikp.edit.shift(one, 5), other).notes)


def test_of_one_label_with_several_grids_equal_grids_are_compared():
    noise = rng()
    one = run(noise, effects(noise, 6))
    wide = tuple(replace(each, grid=(8, 1, 1)) for each in one.launches[3:])
    mixed = replace(one, launches=(*one.launches[:3], *wide))
    found = ikp.diff(mixed, mixed)
    assert [kernel.launches for kernel in found.kernels] == [(3, 3), (3, 3)]
    assert found.kernels[0].notes == ()
    assert "the grid differs" in ikp.diff(one, replace(one, launches=wide * 2)).kernels[0].notes[0]


def test_of_a_sample_and_a_whole_recording_it_is_told_whose_ranges_they_are():
    one, other = pair(count=3)
    sampled = without_records(one, {(n, block) for n in range(3) for block in (1, 3)})
    (note,) = ikp.diff(sampled, other).kernels[0].notes
    assert note.startswith("ranges are of 50 % and 100 % of the warps")
    assert ikp.diff(sampled, sampled).kernels[0].notes == ()


def test_totals_are_compared_as_totals():
    one, other = pair(planted={"dot": 1.1})
    found = ikp.diff(as_totals(of_one_role(one)), as_totals(of_one_role(other)))
    assert region(found, "dot").time.verdict == "longer"
    assert region(found, "dot").p50 == (None, None)
    assert [row.kind for row in found.kernels[0].rows] == ["range"] * 5
    mixed = ikp.diff(of_one_role(one), as_totals(of_one_role(other)))
    assert region(mixed, "dot").time.verdict == "longer"
    assert "the mode differs" in " ".join(mixed.kernels[0].notes)


@given(traces(), traces())
def test_whatever_is_compared_it_answers(one, other):
    found = ikp.diff(one, other)
    assert str(found) or not found.kernels
    check_document(json.loads(found.to_json()), "diff")


def test_nothing_recorded_is_no_difference():
    empty = trace([], launches=(launch(),), slots=[(0, 0)])
    bare = replace(
        empty,
        slots=type(empty.slots)(*(getattr(empty.slots, n)[:0] for n in empty.slots.__slots__)),
    )
    assert ikp.diff(bare, bare).kernels == ()
    with pytest.raises(UsageError, match="no trace"):
        ikp.diff([], empty)
    for file in ("a.pftrace", Path("a.pftrace")):
        for side in (file, [file]):
            with pytest.raises(UsageError, match=r"a\.pftrace'\)? is no trace: ikp\.load\(path\)"):
                ikp.diff(side, empty)


# Which launch with which.


def test_launches_in_turn_are_compared_pair_by_pair():
    assert ikp.diff(*pair()).kernels[0].design == "alternating"
    assert ikp.diff(*separate(rng(), 20)).kernels[0].design == "in order"
    noise = rng()
    shorter = run(noise, effects(noise, 17))
    assert ikp.diff(pair()[0], shorter).kernels[0].design == "apart"


def test_what_depends_on_the_place_in_a_run_cancels():
    """Every other launch does twice the work, on both sides: the same difference is seen."""
    noise, work = rng(), np.tile([1.0, 2.0], 10)
    one = run(noise, effects(noise, 20) * work)
    other = run(noise, effects(noise, 20) * work, planted={"dot": 1.05})
    assert ikp.diff(one, other).kernels[0].duration.verdict == "longer"


def test_a_launch_far_out_is_left_out_and_told():
    noise = rng()
    factors = 1 + noise.normal(0, 0.002, 20)
    factors[7] = 1.6
    found = ikp.diff(run(noise, factors), run(noise, 1 + noise.normal(0, 0.002, 20)))
    assert found.kernels[0].left_out == (1, 1) and "2 far out left out" in str(found)
    assert found.kernels[0].duration.verdict == "even"


def test_runs_vary_as_runs_do():
    """Each run of 20 launches is sure of itself, but the runs differ by more than the sides."""
    noise = rng()

    def side(planted=None):
        return [
            run(noise, level * effects(noise, 20), planted=planted) for level in (0.97, 1.0, 1.03)
        ]

    found = ikp.diff(side(), side({"dot": 1.02})).kernels[0]
    assert found.design == "runs" and found.duration.verdict == "unknown"
    assert ikp.diff(side(), side({"dot": 1.9})).kernels[0].duration.verdict == "longer"


def test_ranks_of_a_step_are_one_launch():
    noise = rng()
    parts = [
        replace(one, launches=tuple(replace(each, rank=rank) for each in one.launches))
        for rank, one in enumerate(run(noise, effects(noise, 5)) for _ in range(4))
    ]
    together = ikp.edit.concat(parts)
    assert ikp.diff(together, together).kernels[0].launches == (5, 5)


# Limits.


def verdicts(*limits, planted=None):
    both = [of_one_role(one) for one in pair(planted=planted)]
    return [one.verdict for one in ikp.diff(*both, fail_over=limits).limits]


def test_limits_are_passed_kept_or_unknown():
    asked = ("dot.p50=+3%", "dot.mean=+3%", "dot.self=+3%", "dot.count=+0%", "duration=+1%")
    assert verdicts(*asked) == ["within"] * 5
    assert verdicts(*asked, planted={"dot": 1.1}) == ["over"] * 3 + ["within", "over"]
    assert verdicts("dot.p50=+10%", planted={"dot": 1.1}) == ["unknown"]
    assert verdicts("*.p95=+5%", planted={"dot": 1.1}) == ["within"] * 2 + ["over"] + ["within"] * 2


@pytest.mark.parametrize(
    "text", ["dot", "dot.p50", "dot.p50=3%", "dot.p50=-3%", "dot.size=+3%", "p50=+3%", ".p50=+3%"]
)
def test_a_limit_that_is_none_is_refused_with_its_form(text):
    with pytest.raises(UsageError, match=r"REGION\.FIGURE=\+N%"):
        verdicts(text)


def test_a_limit_on_no_region_is_refused_with_those_there_are():
    with pytest.raises(UsageError, match="'dot', 'load'"):
        verdicts("dott.p50=+3%")


# What machines read.


def test_the_json_is_what_the_page_lists():
    """docs/comparing.md shows an object with every key: a change here is a change of version."""
    from tests.repo.tree import ROOT

    page = (ROOT / "docs" / "comparing.md").read_text(encoding="utf-8")
    shown = json.loads(page.partition("```json\n")[2].partition("```")[0])
    found = ikp.diff(*pair(), fail_over=["dot.p50=+3%"]).to_dict()
    assert keys(shown) == keys(json.loads(json.dumps(found)))


def keys(value):
    if isinstance(value, dict):
        return {name: keys(inner) for name, inner in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [keys(value[0])]
    return None


@pytest.mark.parametrize("unit", ["days", ""])
def test_a_unit_that_is_none_is_refused(unit):
    one, other = pair(count=2)
    with pytest.raises(UsageError, match="ns, cycles"):
        ikp.diff(one, other, unit=unit)
