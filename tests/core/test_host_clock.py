"""A pair of simulated clocks: the bound that is stated for handshakes holds for all times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ikp.core.host_clock import Handshake, HostClock

pytestmark = pytest.mark.any_pins

BEGIN = 1_790_000_000_000_000_000
SECOND = 1_000_000_000


@dataclass(frozen=True)
class Clocks:
    """A GPU's timer and the host's two clocks; ``now`` is the host's time before any step, in ns.

    The timer's rate is off by ``drift``, and swings about that by at most ``swing``.
    """

    offset: int
    drift: float
    swing: float = 0.0
    period: float = 10.0 * SECOND
    steps: tuple[tuple[int, int], ...] = ()  # after how many ns, by how many
    tick: int = 32

    def gpu(self, now: int) -> int:
        turn = 2 * math.pi / self.period
        off = self.drift * now + self.swing / turn * math.sin(turn * now)
        return (BEGIN + now + self.offset - round(off)) // self.tick * self.tick

    def host(self, now: int) -> int:
        return BEGIN + now + sum(by for after, by in self.steps if now >= after)

    def handshake(self, now: int, before: int, after: int) -> Handshake:
        return Handshake(
            gpu_ns=self.gpu(now),
            before_ns=self.host(now - before),
            after_ns=self.host(now + after),
            monotonic_ns=now - before + 5_000_000,
            tick_ns=self.tick,
        )

    def misses(self, line: HostClock, times: Sequence[int]) -> np.ndarray:
        """Return by how many ns the line is wrong beyond its bound, at most 0 where it holds."""
        there = np.array([self.gpu(now) for now in times])
        truth = np.array([self.host(now) for now in times])
        return np.abs(there + line.offset(there) - truth) - line.bound(there)


jitter = st.one_of(st.integers(300, 1500), st.integers(300, 200_000))
rates = st.floats(-100e-6, 100e-6)
steps = st.lists(
    # One at most between two handshakes: what two opposite steps do between these is not seen.
    st.tuples(
        *(st.integers(0, 99), st.integers(0, SECOND // 10), st.integers(-50_000_000, 50_000_000))
    ),
    max_size=3,
    unique_by=lambda step: step[0],
)


@given(
    st.data(),
    st.integers(-3_000_000, 3_000_000),
    rates,
    st.floats(0.0, 1e-6),
    st.floats(0.01, 60.0),
    st.lists(st.tuples(st.integers(0, 10 * SECOND), jitter, jitter), min_size=1, max_size=40),
    st.sampled_from((1, 32, 1000)),
)
def test_the_bound_holds_at_all_times(
    data: st.DataObject,
    offset: int,
    drift: float,
    swing: float,
    period: float,
    when: list[tuple[int, int, int]],
    tick: int,
) -> None:
    clocks = Clocks(offset, drift, swing, period * SECOND, tick=tick)
    line = HostClock([clocks.handshake(*each) for each in when])
    times = data.draw(st.lists(st.integers(-SECOND, 11 * SECOND), min_size=1, max_size=20))
    times += [now for now, _, _ in when]
    assert clocks.misses(line, times).max() <= 0


@given(rates, steps, st.integers(0, 2**32))
@example(0.0, [(98, 1201, -521)], 1 << 32)  # less than counts as a step
def test_the_bound_holds_where_the_host_is_set(
    drift: float, steps: list[tuple[int, int, int]], seed: int
) -> None:
    random = np.random.default_rng(seed)
    jumps = tuple((gap * SECOND // 10 + into, by) for gap, into, by in steps)
    clocks = Clocks(-2_000_000, drift, steps=jumps)
    when = [
        (number * SECOND // 10, *map(int, random.integers(400, 1200, 2))) for number in range(101)
    ]
    made = [clocks.handshake(*each) for each in when]
    # A step between the two readings of one handshake is noticed by the one who reads.
    sound = [all(abs(after - now) > 1200 for after, _ in jumps) for now, _, _ in when]
    line = HostClock([each for each, kept in zip(made, sound, strict=True) if kept])
    known = [now for (now, _, _), kept in zip(when, sound, strict=True) if kept]
    assume(all(sum(a < at < b for at, _ in jumps) < 2 for a, b in pairwise(known)))
    times = random.integers(known[0], known[-1], 500).tolist()
    assert clocks.misses(line, times).max() <= 0


def test_a_step_is_told_and_nothing_else() -> None:
    clocks = Clocks(-2_000_000, 30e-6, steps=((5 * SECOND, 40_000_000),))
    line = HostClock([clocks.handshake(now * SECOND, 700, 800) for now in range(10)])
    assert [each.by_ns for each in line.steps] == [40_000_000]
    assert line.steps[0].after_ns == clocks.host(4 * SECOND - 700)
    assert line.drift_ppm == pytest.approx(30, abs=0.5)
    assert line.bound(np.array([clocks.gpu(9 * SECOND // 2)]))[0] > 40_000_000 / 2
    assert line.bound(np.array([clocks.gpu(17 * SECOND // 2)]))[0] < 2_000


def test_a_change_of_rate_widens_the_bound_where_it_is() -> None:
    clocks = Clocks(0, 20e-6, swing=30e-6, period=4 * SECOND)
    line = HostClock([clocks.handshake(now * SECOND // 10, 750, 750) for now in range(101)])
    times = list(range(0, 10 * SECOND, 7_654_321))
    assert clocks.misses(line, times).max() <= 0
    assert line.bound(np.array([clocks.gpu(now) for now in times])).max() < 1_500


def test_bounds_are_no_wider_than_the_handshakes_need() -> None:
    clocks = Clocks(2_480_000, 48e-6)
    line = HostClock([clocks.handshake(now * SECOND // 10, 750, 750) for now in range(101)])
    there = np.array([clocks.gpu(now) for now in range(0, 10 * SECOND, 12_345_678)])
    assert line.bound(there).max() < 750 + 32 + 100
    assert line.drift_ppm == pytest.approx(48, abs=0.2)
    assert line.count == 101
    assert not line.steps


def test_a_wide_handshake_among_narrow_ones_is_left_out() -> None:
    clocks = Clocks(0, 10e-6)
    made = [clocks.handshake(now * SECOND // 10, 700, 700) for now in range(9)]
    line = HostClock([*made, clocks.handshake(SECOND // 4, 90_000, 700)])
    assert line.count == 9
    assert line.bound(np.array([clocks.gpu(SECOND // 4)]))[0] < 1_000


@given(st.integers(1, 8), st.integers(2_000, 6_000), st.integers(0, 2**32))
def test_wide_handshakes_tighten_a_gap_that_has_no_others(count: int, wide: int, seed: int) -> None:
    """A host that compiles for 20 s makes wide ones alone meanwhile."""
    random = np.random.default_rng(seed)
    clocks = Clocks(-2_000_000, -6e-6)
    narrow = [clocks.handshake(now * SECOND // 2, 600, 600) for now in (*range(8), *range(50, 60))]
    when = sorted(int(each) for each in random.integers(4 * SECOND, 24 * SECOND, count))
    others = [clocks.handshake(now, wide, 700) for now in when]
    line = HostClock([*narrow, *others])
    there = np.array([clocks.gpu(now) for now in when])
    assert line.bound(there).max() < 2 * ((wide + 700) / 2 + 32) + 100
    assert clocks.misses(line, list(range(0, 30 * SECOND, 98_765_432))).max() <= 0


MISSED = 950
"""How much later the GPU sees a question that just missed a read of the host's word, in ns."""
missed_by_turns = st.lists(st.integers(0, 8), min_size=4, max_size=20)
"""Handshakes that missed, between each two that did not."""


def with_missed(clocks: Clocks, turns: Sequence[int], *, late_answers: bool = False) -> HostClock:
    """Return the line of handshakes every 0.5 s; the first and the last did not miss."""
    kinds = [False, *(kind for count in turns for kind in (*[True] * count, False))]
    made = []
    for at, missed in enumerate(kinds):
        legs = (600, 600 + missed * MISSED) if late_answers else (600 + missed * MISSED, 600)
        made.append(clocks.handshake(at * SECOND // 2, *legs))
    return HostClock(made)


@given(missed_by_turns, rates, st.floats(-1.0, 1.0), st.booleans())
@example([8], 0.0, 0.0, False)
def test_handshakes_that_waited_do_not_bend_the_line(
    turns: list[int], drift: float, swing: float, late_answers: bool
) -> None:
    """A handshake that waits does so in one direction: its middle is off by half of the wait."""
    clocks = Clocks(-2_000_000, drift, swing * 1e-8, 30.0 * SECOND)
    line = with_missed(clocks, turns, late_answers=late_answers)
    lasts = (len(turns) + sum(turns)) * SECOND // 2
    times = range(0, lasts, 87_654_321)
    there = np.array([clocks.gpu(now) for now in times])
    off = there + line.offset(there) - np.array([clocks.host(now) for now in times])
    assert np.abs(off).max() < 100
    assert clocks.misses(line, times).max() <= 0
    assert line.bound(there).max() < (1200 + MISSED) + 2 * clocks.tick + 100


def test_the_line_goes_on_where_all_further_handshakes_waited() -> None:
    """Narrow ones know the rate far better than their widths bound it."""
    clocks = Clocks(0, 10e-6)
    narrow = [clocks.handshake(at * 5 * SECOND // 2, 600, 600) for at in range(4)]
    waited = [clocks.handshake((16 + at) * SECOND // 2, 600 + MISSED, 600) for at in range(12)]
    line = HostClock([*narrow, *waited])
    times = range(0, 13 * SECOND, 87_654_321)
    there = np.array([clocks.gpu(now) for now in times])
    off = there + line.offset(there) - np.array([clocks.host(now) for now in times])
    assert np.abs(off).max() < 100
    assert clocks.misses(line, times).max() <= 0


def test_errors_in_reading_the_hosts_two_clocks_are_no_steps() -> None:
    """They are read one after the other."""
    clocks, random = Clocks(0, 10e-6), np.random.default_rng(1)
    made = [
        clocks.handshake(at * SECOND // 2, 600 + MISSED * (at % 16 > 0), 600) for at in range(65)
    ]
    read = [
        replace(one, monotonic_ns=one.monotonic_ns + int(random.integers(-100, 101)))
        for one in made
    ]
    assert HostClock(read).count == HostClock(made).count == 5


@given(missed_by_turns, missed_by_turns, rates, rates)
def test_no_message_between_two_gpus_arrives_before_it_was_sent(
    turns: list[int], others: list[int], drift: float, other: float
) -> None:
    """The shortest flight between two GPUs took 480 ns."""
    gpus = Clocks(-2_000_000, drift), Clocks(3_000_000, other)
    lines = [with_missed(*each) for each in zip(gpus, (turns, others), strict=True)]
    lasts = min(len(each) + sum(each) for each in (turns, others)) * SECOND // 2

    def seen(which: int, now: int) -> int:
        there = np.array([gpus[which].gpu(now)])
        return int((there + lines[which].offset(there))[0])

    for sender, receiver in ((0, 1), (1, 0)):
        for now in range(0, lasts, 123_456_789):
            assert seen(receiver, now + 480) > seen(sender, now)


@given(missed_by_turns, rates, st.integers(0, 2**32))
def test_handshakes_that_are_held_back_agree_with_the_line(
    turns: list[int], drift: float, seed: int
) -> None:
    clocks, random = Clocks(0, drift), np.random.default_rng(seed)
    line = with_missed(clocks, turns)
    lasts = (len(turns) + sum(turns)) * SECOND // 2
    for now in random.integers(0, lasts, 50).tolist():
        before, after = (int(each) for each in random.exponential(1000, 2) + 550)
        held = clocks.handshake(now, before, after)
        there = np.array([held.gpu_ns])
        at, most = int((there + line.offset(there))[0]), line.bound(there)[0]
        assert held.before_ns - most <= at <= held.after_ns + clocks.tick + most


def test_the_line_follows_a_rate_that_changes_among_handshakes_that_waited() -> None:
    """Where it would leave what a wide handshake allows, the line goes through that one."""
    clocks = Clocks(0, 0.0, swing=2e-6, period=20 * SECOND)
    line = with_missed(clocks, [19])
    times = range(0, 10 * SECOND, 87_654_321)
    assert clocks.misses(line, times).max() <= 0
    there = np.array([clocks.gpu(now) for now in times])
    assert line.bound(there).max() < 3_000
    assert line.count > 2


def test_a_gap_with_a_step_is_as_short_as_handshakes_allow() -> None:
    """A handshake that waited tells on which side of it the host was set."""
    clocks = Clocks(0, 0.0, steps=((int(0.7 * SECOND), 40_000_000),))
    line = with_missed(clocks, [3])
    (step,) = line.steps
    assert step.after_ns == clocks.host(SECOND // 2 - 600 - MISSED)
    there = np.array([clocks.gpu(int(at * SECOND)) for at in (0.45, 1.2)])
    assert line.bound(there).max() < 3_000


@pytest.mark.parametrize("missed", [0, 2 * MISSED])
def test_within_a_launch_the_bound_is_the_greatest(missed: int) -> None:
    clocks = Clocks(0, 10e-6)
    made = [
        clocks.handshake(now * SECOND, 700 + missed * (now % 6 > 0), 700)
        for now in (0, 6, 7, 10, 11, 12)
    ]
    line = HostClock(made)
    first, last = (np.array([clocks.gpu(now * SECOND)]) for now in (1, 12))
    every = np.array([clocks.gpu(now * SECOND // 100) for now in range(100, 1200)])
    assert line.bound_within(first, last)[0] >= line.bound(every).max() - 1
    assert line.bound(every).max() > line.bound(first)[0]


def test_within_a_launch_around_a_wide_handshake_the_bound_is_the_greatest() -> None:
    clocks = Clocks(0, 10e-6)
    line = with_missed(clocks, [1, 1])
    first, amid, last = (np.array([clocks.gpu(now * SECOND // 100)]) for now in (49, 50, 51))
    assert line.bound_within(first, last)[0] == line.bound(amid)[0] > line.bound(first)[0]


def test_a_handshake_between_two_opposite_steps_says_where_it_is() -> None:
    """However wide it is, the narrow ones around it say less of the time between the steps."""
    back_and_forth = (7 * SECOND // 10, 5_000_000), (12 * SECOND // 10, -5_000_000)
    clocks = Clocks(0, 0.0, steps=back_and_forth)
    made = [clocks.handshake(now * SECOND // 2, 600 + 3000 * (now == 2), 600) for now in range(9)]
    line = HostClock(made)
    assert [each.by_ns for each in line.steps] == [5_000_000, -5_000_000]
    assert line.bound(np.array([clocks.gpu(SECOND)]))[0] < 4_000


@pytest.mark.parametrize("at", [0, 20])
def test_a_small_step_among_the_outermost_handshakes_is_within_the_bound(at: int) -> None:
    """Handshakes too wide to say anything of the offset say that the host's clock was set."""
    wide = {at: 30_000, abs(at - 1): 30_000}
    step = SECOND // 20 if at == 0 else 2 * SECOND - SECOND // 20
    clocks = Clocks(0, 0.0, steps=((step, 900),))
    made = [
        clocks.handshake(now * SECOND // 10, wide.get(now, 500), wide.get(now, 500))
        for now in range(21)
    ]
    assert clocks.misses(HostClock(made), [now * SECOND // 10 for now in range(21)]).max() <= 0


def test_a_wide_handshake_at_the_end_is_left_out_where_the_rate_is_known() -> None:
    clocks = Clocks(0, 10e-6)
    made = [clocks.handshake(now * SECOND // 2, 600, 600) for now in range(20)]
    line = HostClock([*made, clocks.handshake(10 * SECOND, 4_000, 600)])
    assert line.count == 20
    assert line.bound(np.array([clocks.gpu(10 * SECOND)]))[0] < 1_500


def test_narrow_handshakes_tighten_the_bound_at_wide_ones() -> None:
    """What is known half a second earlier is known but for what the rate can wander."""
    clocks = Clocks(0, 10e-6)
    line = with_missed(clocks, [1, 1, 1])
    there = np.array([clocks.gpu(now * SECOND // 8) for now in range(25)])
    assert line.bound(there).max() < 600 + 500 + 2 * clocks.tick


def test_the_timers_step_is_what_all_handshakes_show() -> None:
    clocks = Clocks(0, 0.0)
    made = [
        replace(clocks.handshake(now * SECOND // 10, 700, 700), tick_ns=tick)
        for now, tick in enumerate((32, 64, 2400, 0, 96))
    ]
    there = np.array([BEGIN + SECOND // 10])
    assert HostClock(made).bound(there)[0] == pytest.approx(700 + 32, abs=20)
    assert HostClock(made[3:4]).bound(there)[0] > 700 + 1000


def test_one_handshake_bounds_what_is_near() -> None:
    line = HostClock([Clocks(0, 0.0).handshake(0, 700, 700)])
    near, far = line.bound(np.array([BEGIN, BEGIN + SECOND]))
    assert 700 <= near < 800
    assert far > 100_000
    assert line.drift_ppm is None
