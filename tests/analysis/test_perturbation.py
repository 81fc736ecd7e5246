"""What recording did to launches, of traces whose truth is known."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from ikp.analysis.perturbation import (
    DELAY_CYCLES,
    HEADER_CYCLES,
    _Loads,
    _measured,
    _spans,
    perturbations,
    worse,
)
from ikp.core.run_figures import TimedLaunches, read_timed
from ikp.core.trace import (
    ClockFit,
    Events,
    Launch,
    Region,
    Slots,
    Trace,
    make_columns,
    no_slots,
)

SMS, WARP_NS = 4, 10_000
CYCLES = ClockFit("cycles", 0.5, "fitted")


def launched(
    *,
    blocks: int = 400,
    at_once: int = 1,
    step: int = 7,
    slower: float = 1.0,
    records: int = 10,
    label: str = "k",
    clock: ClockFit = CYCLES,
) -> Trace:
    """Return a launch of one-warp blocks, of which one in ``step`` has ranges and takes longer."""
    lanes = SMS * at_once
    free, rows = np.zeros(lanes, np.int64), []
    for block in range(blocks):
        lane = int(free.argmin())
        took = WARP_NS if block % step else round(WARP_NS * slower)
        rows.append((block, lane % SMS, free[lane], free[lane] + took))
        free[lane] += took
    every = np.array(rows)
    chosen = every[:, 0] % step == 0

    def warps(table: np.ndarray) -> Slots:
        zero = np.zeros(len(table), np.int64)
        counted = zero + records
        return make_columns(
            Slots,
            launch=zero,
            block=table[:, 0],
            warp=zero,
            sm=table[:, 1],
            role=zero,
            start_ns=table[:, 2],
            end_ns=table[:, 3],
            attempted=counted,
            kept=counted,
            finished=zero == 0,
        )

    launch = Launch(
        label, (blocks, 1, 1), (32, 1, 1), 1, "GPU", "triton", clock,
        attempted=records * int(chosen.sum()), kept=records * int(chosen.sum()),
    )  # fmt: skip
    nothing = make_columns(Events, **dict.fromkeys(Events.__slots__, ()))
    others = warps(every[~chosen]) if step > 1 else no_slots()
    return Trace((launch,), (Region(1, "x"),), warps(every[chosen]), nothing, others=others)


HEADERS = 400 / SMS * HEADER_CYCLES / (400 / SMS * WARP_NS * 2)
"""What headers take of a launch of 400 blocks, one at a time on each SM."""


def test_a_launch_of_many_waves_takes_its_sample_s_part_longer() -> None:
    (one,) = perturbations(launched(slower=1.4)).values()
    assert one.way == "compared" and one.warp_ratio == pytest.approx(1.4, abs=0.001)
    truth = 1 + 0.4 / 7
    assert one.ratio == pytest.approx(truth / (1 - HEADERS), abs=0.006)


def test_a_launch_of_one_wave_takes_as_long_as_its_slowest_block() -> None:
    (one,) = perturbations(launched(at_once=100, slower=1.4)).values()
    assert one.ratio == pytest.approx(1.4 / (1 - 100 * HEADERS), abs=0.05)


def test_blocks_that_take_as_long_as_others_made_nothing_longer() -> None:
    (one,) = perturbations(launched(slower=1.0)).values()
    assert one.ratio == pytest.approx(1 + HEADERS, abs=1e-4)
    (one,) = perturbations(launched(slower=0.9)).values()
    assert one.ratio == pytest.approx(1 + HEADERS, abs=1e-4)


def test_where_all_blocks_have_ranges_it_is_an_estimate_by_records() -> None:
    (one,) = perturbations(launched(step=1, records=100)).values()
    hidden = 100 * DELAY_CYCLES / (2 * WARP_NS)
    assert one.way == "estimated" and one.warp_ratio is None
    assert one.hidden == pytest.approx(hidden)
    assert one.ratio == pytest.approx(1 / (1 - hidden - HEADERS))


def test_a_few_warps_are_not_compared() -> None:
    (one,) = perturbations(launched(blocks=20, slower=1.4)).values()
    assert one.way == "estimated"


def test_nothing_is_said_of_other_clocks() -> None:
    assert not perturbations(launched(clock=ClockFit("host", 1.0, "exact")))
    assert not perturbations(launched(clock=ClockFit("globaltimer", 1.0, "exact")))


def test_it_is_one_sentence() -> None:
    (one,) = perturbations(launched(slower=1.4, records=100)).values()
    assert one.sentence() == (
        "recording made it about 1.06 times as long (by comparing its blocks, +-0.24), and warps "
        "with ranges 1.40 times as long as others; records may hide waits of up to 9 % of the "
        "warps' time"
    )
    (one,) = perturbations(launched(step=1, records=1)).values()
    assert one.sentence().endswith("times as long (by an estimate, +-0.24)")


def test_of_two_the_worse_is_told() -> None:
    (one,), (two,) = (perturbations(launched(slower=s)).values() for s in (1.1, 1.4))
    assert worse(one, two) is two and worse(two, one) is two


def timed(recorded: float | None, plain: float, error: float, blocks: int = 400) -> str:
    made = {"grid": [blocks, 1, 1], "recorded_us": recorded, "plain_us": plain}
    return json.dumps({**made, "error_us": error, "launches": [8, 8]})


def with_facts(trace: Trace, *lines: str) -> Trace:
    return replace(trace, provenance={"timed k": "\n".join(lines), "timed other": "no JSON"})


def test_plain_launches_of_the_run_measure_it() -> None:
    """What an event takes is in both times: their difference counts, of what the trace shows."""
    (one,) = perturbations(with_facts(launched(), timed(1050.0, 950.0, 4.5))).values()
    span = 400 / SMS * WARP_NS / 1000
    assert one.way == "measured" and one.ratio == pytest.approx(span / (span - 100))
    assert one.error == pytest.approx(math.hypot(4.5, 0.5 / math.sqrt(8)) / (span - 100))
    assert "(measured against plain launches, +-0.01)" in one.sentence()


def test_where_the_gpu_waited_for_recorded_launches_their_own_time_counts() -> None:
    """The rule: no time of the host is laid to recording."""
    span = 400 / SMS * WARP_NS / 1000
    (one,) = perturbations(with_facts(launched(), timed(None, span + 5.0 - 50, 4.3))).values()
    assert one.way == "measured" and one.ratio == pytest.approx(span / (span - 50))
    assert one.error == pytest.approx(math.hypot(4.3, 0.7) / (span - 50))


def test_launches_that_differ_measure_as_surely_as_they_agree() -> None:
    """The rule: what is told has the smallest error found, and that holds how launches differ."""
    (found,) = perturbations(launched()).values()
    times = [TimedLaunches((400, 1, 1), 1050.0, 950.0, 4.5, (8, 8))]
    for differ in (0.0, 50.0):
        one = _measured(found, times, {(400, 1, 1): (1000.0, differ)})
        assert one.way == "measured" and one.error == pytest.approx(
            math.hypot(4.5, 0.5 / math.sqrt(8), differ) / 900
        )
    assert _measured(found, times, {(400, 1, 1): (1000.0, 500.0)}) == found
    assert found.way == "compared" and found.error > 55 / 900


def test_launches_in_turn_measure_though_launches_differ() -> None:
    """The rule: a change from launch to launch is in both kinds, and so no error."""
    (found,) = perturbations(launched()).values()
    in_turn = TimedLaunches((400, 1, 1), 1050.0, 950.0, 4.5, (4, 4), in_turn=True)
    one = _measured(found, [in_turn], {(400, 1, 1): (1000.0, 500.0)})
    assert one.way == "measured" and one.error == pytest.approx(math.hypot(4.5, 0.25) / 900)
    assert read_timed({"timed k": in_turn.text()}, "k") == (in_turn,)


def test_a_first_launch_that_takes_longer_tells_nothing_where_there_are_others() -> None:
    one, other = launched(), launched(slower=1.2)
    several = replace(one, launches=(other.launches[0], *one.launches * 2))
    spans = [_Loads.of(each).span_ns[0] for each in (other, one, one)]
    loads = replace(_Loads.of(one), span_ns=np.array(spans))
    assert spans[0] > spans[1]
    ((median, differ),) = _spans(several, loads, [0, 1, 2]).values()
    assert median == pytest.approx(spans[1] / 1000) and differ == 0
    turned = replace(loads, span_ns=np.array([spans[1], spans[0], spans[0]]))
    ((_, differ),) = _spans(several, turned, [0, 1, 2]).values()
    assert differ == pytest.approx((spans[0] - spans[1]) / 1000), "a shorter one does"
    ((median, differ),) = _spans(several, loads, [0]).values()
    assert median == pytest.approx(spans[0] / 1000) and differ == 0


@pytest.mark.parametrize(
    "line",
    ["no JSON", "[]", "7", "{}", '{"grid": [1, 2], "launches": []}', timed(1.0, 1.0, 1.0)[:-9]],
)
def test_damaged_times_measure_nothing(line: str) -> None:
    (one,) = perturbations(with_facts(launched(), line)).values()
    assert one.way == "compared"
    (two,) = perturbations(with_facts(launched(), line, timed(1050.0, 950.0, 4.5))).values()
    assert two.way == "measured"


def test_plain_launches_of_another_grid_measure_nothing() -> None:
    (one,) = perturbations(with_facts(launched(), timed(1050.0, 950.0, 5.0, blocks=8))).values()
    assert one.way == "compared"


def test_a_difference_as_long_as_the_launch_measures_nothing() -> None:
    (one,) = perturbations(with_facts(launched(), timed(9050.0, 950.0, 5.0))).values()
    assert one.way == "compared"
