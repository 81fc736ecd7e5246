"""Two traces on one axis: by clocks, or by launches, or refused with the reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.core.turns import IN_TURN
from ikp.edit import concat
from ikp.errors import UsageError
from ikp.host_traces.placing import place
from tests.analysis.example import START
from tests.host_traces.simulated import KERNELS, launches, records

BEGINS = np.cumsum(np.random.default_rng(7).integers(20_000, 90_000, 60)).tolist()
FAR = 2_123_456


def late(now: int) -> int:
    """Return what a clock shows that is 2 ms off and drifts by 40 us a second."""
    return now - FAR - round((now - START) * 40e-6)


def test_aligned_traces_stay_where_they_are() -> None:
    trace = launches(BEGINS)
    placed = place(trace, records(BEGINS))
    assert placed.way == "clocks"
    assert placed.trace.slots is trace.slots
    assert placed.record == {number: 2 * number + 1 for number in range(len(BEGINS))}
    assert "60 of 60 launches are within 1 us" in placed.report
    assert "all of them inside" in placed.report
    assert placed.trace.provenance["joined"] == placed.report


def test_without_handshakes_launches_are_matched() -> None:
    trace = launches(BEGINS, None, late)
    placed = place(trace, records(BEGINS))
    assert placed.way == "launches"
    off = placed.trace.slots.start_ns - START - np.array(BEGINS)
    assert np.abs(off).max() <= 2
    assert placed.record == {number: 2 * number + 1 for number in range(len(BEGINS))}


@given(st.integers(-(10**15), 10**15), st.floats(-100e-6, 100e-6), st.booleans())
def test_any_offset_and_drift_is_found(offset: int, drift: float, based: bool) -> None:
    trace = launches(BEGINS, None, lambda now: now + offset + round((now - START) * drift))
    host = records(BEGINS) if based else records(BEGINS, base_ns=None)
    placed = place(trace, host)
    assert len(placed.record) == len(BEGINS)
    assert placed.host.base_ns is not None
    first = placed.host.slices[placed.record[0]].start_ns + placed.host.base_ns
    assert abs(placed.trace.slots.start_ns[0] - first - 300) <= 20


def test_launches_recorded_in_turn_with_plain_ones_are_matched() -> None:
    """The rule: which launches a run records by itself is known, and they are not in a row."""
    chosen = np.array(IN_TURN) + 20
    trace = launches(np.array(BEGINS)[chosen].tolist(), None, late)
    same = tuple(replace(each, label="gemm") for each in trace.launches)
    placed = place(replace(trace, launches=same), records(BEGINS, ["gemm"] * len(BEGINS)))
    assert placed.way == "launches"
    assert placed.record == {at: 2 * number + 1 for at, number in enumerate(chosen.tolist())}


def test_records_that_the_trace_lacks_do_not_matter() -> None:
    trace = launches(BEGINS[12:48], None, late)
    placed = place(trace, records(BEGINS))
    assert placed.record == {number: 2 * (number + 12) + 1 for number in range(36)}


def test_launches_that_the_profiler_did_not_see_are_counted() -> None:
    placed = place(launches(BEGINS), records(BEGINS[:30]))
    assert len(placed.record) == 30
    assert "launches without a kernel record there: 30." in placed.report


def test_labels_of_the_users_own_are_matched_by_grid_and_block() -> None:
    placed = place(launches(BEGINS), records(BEGINS, ["void f<int>(int*)"] * len(BEGINS)))
    assert len(placed.record) == len(BEGINS)


def test_a_record_has_the_name_of_the_function_and_a_launch_its_modules_too() -> None:
    """A kernel's records are its own, where others of its grid are nearer, or of its label."""
    made = launches([0, 100_000, 200_000])
    module = "torch._inductor.runtime.compile_tasks.cs"
    full = [f"{module}{number}.{each.label}" for number, each in enumerate(made.launches)]
    both = zip(made.launches, full, (made.launches[0].label, *full[1:]), strict=True)
    named = tuple(replace(one, kernel=kernel, label=label) for one, kernel, label in both)
    host = records([0, 100_000, 200_000])
    other = replace(host.slices[3], name="other", correlation=None)
    near = [(-4000, -1000), (4000, 7000), (104_000, 107_000), (204_000, 207_000)]
    base = host.slices[1].start_ns + 300
    more = [replace(other, start_ns=base + a, end_ns=base + b) for a, b in near]
    placed = place(replace(made, launches=named), replace(host, slices=(*host.slices, *more)))
    assert placed.record == {0: 1, 1: 3, 2: 5}
    without = replace(host, slices=(*host.slices[:2], *host.slices[4:], *more))
    placed = place(replace(made, launches=named), without)
    assert placed.record == {0: 1, 2: 3}
    assert "launches without a kernel record there: 1." in placed.report


def test_two_kernels_of_one_name_at_once_have_a_record_each() -> None:
    begins = [begin for one in BEGINS for begin in (one, one + 700)]
    names = [name for number in range(len(BEGINS)) for name in [("gemm", "norm")[number % 2]] * 2]
    trace = launches(begins)
    trace = replace(
        trace,
        launches=tuple(
            replace(each, label=name) for each, name in zip(trace.launches, names, strict=True)
        ),
    )
    placed = place(trace, records(begins, names))
    assert placed.record == {number: 2 * number + 1 for number in range(len(begins))}
    assert "ran twice at once" not in placed.report


def test_launches_that_two_records_hold_are_counted() -> None:
    begins = [begin for one in BEGINS for begin in (one, one + 100)]
    names = [KERNELS[number % 3] for number in range(len(begins))]
    trace = launches(begins)
    same = (replace(each, label="gemm") for each in trace.launches)
    alike = place(replace(trace, launches=tuple(same)), records(begins, ["gemm"] * len(begins)))
    assert "120 lie within two records: their kernel ran twice at once" in alike.report
    assert "at once" not in place(trace, records(begins, names)).report


@pytest.mark.parametrize(
    ("trace", "host", "way", "words"),
    [
        (launches(BEGINS), records(BEGINS, base_ns=None), "clocks", "does not say when it began"),
        (launches(BEGINS, None), records(BEGINS), "clocks", "recorded without handshakes"),
        (launches(BEGINS), records(BEGINS, late_ns=8 * 10**12), None, "different runs or boots"),
        (launches(BEGINS), records(BEGINS, late_ns=40_000), None, "60 of 60 launches are outside"),
        (launches(BEGINS), records([]), "launches", "the profiler did not see them"),
        (
            launches(range(0, 3_000_000, 50_000), None, late),
            records(range(0, 6_000_000, 50_000)),
            None,
            "come so regularly that several orders fit",
        ),
        (launches(BEGINS, None), records(BEGINS[:20]), None, "did not see them"),
    ],
)
def test_what_does_not_fit_is_refused(
    trace: object, host: object, way: str | None, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        place(trace, host, way)  # type: ignore[type-var, arg-type]


def test_one_launch_in_a_hundred_may_be_outside() -> None:
    many = [begin + 10_000_000 * turn for turn in range(2) for begin in BEGINS]
    off = [begin + (5_000 if number == 7 else 0) for number, begin in enumerate(many)]
    placed = place(launches(off), records(many))
    assert "119 of 120 launches are within 1 us" in placed.report
    assert "the worst 4.70 us outside" in placed.report
    off[8] += 5_000
    with pytest.raises(UsageError, match="2 of 120 launches are outside"):
        place(launches(off), records(many))


def test_each_rank_is_matched_with_its_own_file() -> None:
    """Kernels of ranks are alike and run at the same time: only the rank says whose they are."""
    later = [begin + 4_000 for begin in BEGINS]
    parts = [launches(BEGINS), launches(later)]
    ranked = [
        replace(part, launches=tuple(replace(each, rank=rank) for each in part.launches))
        for rank, part in enumerate(parts)
    ]
    trace = concat(ranked)
    for rank, begins in enumerate((BEGINS, later)):
        placed = place(trace, replace(records(begins), rank=rank))
        assert sorted(placed.record) == [60 * rank + number for number in range(60)]
        assert "60 of 60 launches" in placed.report
        assert "no kernel record" not in placed.report
        trace = placed.trace
    assert trace.provenance["joined"].count("60 of 60") == 2
    unranked = place(concat(ranked), records(later))
    assert sorted(unranked.record) == list(range(60, 120)), "no launch takes another's record"
    assert "launches without a kernel record there: 60." in unranked.report


def test_a_launch_without_a_record_takes_no_other_launchs() -> None:
    begins = list(range(0, 600_000, 10_000))
    seen = [begin for number, begin in enumerate(begins) if number != 7]
    placed = place(launches(begins), records(seen, ["f"] * len(seen)))
    assert 7 not in placed.record and len(placed.record) == 59
    assert "59 of 59 launches are within 1 us" in placed.report


def test_several_gpus_have_a_clock_each() -> None:
    trace = launches(BEGINS, None)
    first, *others = trace.launches
    trace = replace(trace, launches=(replace(first, device="other"), *others))
    with pytest.raises(UsageError, match="several GPUs"):
        place(trace, records(BEGINS))


def test_a_process_that_launched_nothing_is_placed_by_the_clocks() -> None:
    placed = place(replace(launches([]), launches=()), records(BEGINS))
    assert placed.record == {} and placed.way == "clocks"
    assert placed.report == "host.json: placed by the host's clock."
