"""Ticks to nanoseconds: how far from the truth, and whether the fit says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from ikp.core.decoding import clock
from ikp.core.decoding.clock import Axes, Sms, fit_axes
from ikp.core.trace import ClockFit
from tests.segments import EPOCH

HZ = 1_980_000_000
STEP = 32
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Anchors:
    """Those of one launch."""

    sm: Ints
    ns: Ints
    ticks: Ints


class Axis:
    """The axis of one launch, whose SMs go by their numbers."""

    def __init__(self, axes: Axes, launch: int = 0) -> None:
        self._axes, self._launch = axes, launch
        self.fit: ClockFit = axes.fits[launch]
        self.torn = int(axes.torn[launch])

    def to_ns(self, sm: Ints, ticks: Ints) -> Ints:
        mine = np.flatnonzero(self._axes.sms.launch == self._launch)
        row = mine[np.searchsorted(self._axes.sms.sm[mine], sm)]
        return self._axes.lines(row).to_ns(ticks - self._axes.tick_zero[row])


def fit_together(launches: Sequence[Anchors], nominal_hz: float) -> list[Axis]:
    number = np.repeat(np.arange(len(launches)), [len(each.sm) for each in launches])
    sm, ns, ticks = (
        np.concatenate([getattr(each, name) for each in launches]) for name in ("sm", "ns", "ticks")
    )
    sms, row = Sms.of(number, sm, len(launches))
    anchors = clock.Anchors(row, ns, ticks)
    axes, _ = fit_axes(anchors, sms, np.full(len(launches), nominal_hz))
    return [Axis(axes, i) for i in range(len(launches))]


def fit_axis(anchors: Anchors, nominal_hz: float) -> Axis:
    return fit_together([anchors], nominal_hz)[0]


@dataclass(frozen=True)
class Gpu:
    """Cycle counters with origins of their own, at one rate that may change; a timer with steps."""

    sms: int = 8
    hz: int = HZ
    step: int = STEP
    slower: float = 0.0  # the part of the rate lost, linearly over the first 225 us
    seed: int = 1

    def ticks(self, sm: Ints, ns: Ints) -> Ints:
        origins = np.random.default_rng(self.seed).integers(0, 2**50, self.sms)
        falling = np.clip(ns, 0, 225_000).astype(float)
        lost = self.slower * (falling**2 / 450_000 + np.maximum(ns - 225_000, 0))
        return origins[sm] + np.floor((ns - lost) * self.hz / 1e9).astype(np.int64)

    def timer(self, ns: Ints) -> Ints:
        unix = EPOCH + ns
        return unix - unix % self.step

    def anchors(self, sm: Ints, ns: Ints) -> Anchors:
        return Anchors(sm, self.timer(ns), self.ticks(sm, ns))


def kernel(gpu: Gpu, blocks: int, residence: int, warps: int = 8) -> tuple[Ints, Ints]:
    """Return (SM, ns) of every anchor: blocks that follow each other, warps a few ns apart."""
    random = np.random.default_rng(gpu.seed + 1)
    sm, block, warp = np.mgrid[: gpu.sms, :blocks, :warps]
    begin = 50 * sm + block * int(1.1 * residence) + 7 * warp
    end = begin + residence + random.integers(-residence // 20, residence // 20 + 1, sm.shape)
    return np.tile(sm.reshape(-1), 2), np.concatenate([begin.reshape(-1), end.reshape(-1)])


def errors(gpu: Gpu, axis: Axis, until: int, ranges: int = 1000) -> tuple[Ints, Ints]:
    """Return how far times are off everywhere in a launch, and how far ranges of 1 us are."""
    at = np.linspace(0, until, 997).astype(np.int64)
    sm = np.repeat(np.arange(gpu.sms), len(at))
    at = np.tile(at, gpu.sms)
    start, end = (axis.to_ns(sm, gpu.ticks(sm, t)) for t in (at, at + ranges))
    return start - EPOCH - at, end - start - ranges


@pytest.mark.parametrize("warps", [1, 8])
@pytest.mark.parametrize(
    ("blocks", "residence"),
    [(1, 2_000), (1, 30_000), (1, 10_000_000), (5, 9_000), (60, 400), (500, 3_000)],
)
def test_every_sm_is_placed_to_the_step_of_the_timer(
    blocks: int, residence: int, warps: int
) -> None:
    gpu = Gpu()
    axis = fit_axis(gpu.anchors(*kernel(gpu, blocks, residence, warps)), nominal_hz=1e9)
    off, longer = errors(gpu, axis, blocks * residence)
    assert axis.fit.rate == "fitted"
    assert axis.fit.ns_per_tick == pytest.approx(1e9 / HZ, rel=0.02 if residence < 9000 else 2e-3)
    # A timer that steps is late by half a step on average, on every SM alike.
    assert np.abs(off + STEP / 2).max() <= STEP
    assert np.abs(longer).max() <= (20 if residence == 2_000 else 10)


@pytest.mark.parametrize("gpu", [Gpu(), Gpu(step=1), Gpu(step=1024), Gpu(sms=132), Gpu(sms=1)])
def test_the_residual_is_the_distance_of_the_anchors_from_the_fit(gpu: Gpu) -> None:
    sm, ns = kernel(gpu, 20, 10_000)
    anchors = gpu.anchors(sm, ns)
    axis = fit_axis(anchors, nominal_hz=HZ)
    fit = axis.fit
    distance = anchors.ns - axis.to_ns(sm, anchors.ticks)
    assert fit.anchors == len(sm)
    assert fit.residual_sd_ns == pytest.approx(distance.std(), abs=0.5)
    assert fit.residual_max_ns == pytest.approx(np.abs(distance).max(), abs=1)
    # Steps leave errors that are evenly distributed.
    assert fit.residual_sd_ns == pytest.approx(gpu.step / 12**0.5, rel=0.15, abs=0.5)
    assert fit.residual_max_ns < gpu.step + 1
    assert axis.torn == 0


def test_a_present_day_time_keeps_its_last_digit() -> None:
    gpu = Gpu(step=1, hz=10**9)
    sm, ns = kernel(gpu, 5, 100_000)
    anchors = gpu.anchors(sm, ns)
    axis = fit_axis(anchors, nominal_hz=1e9)
    assert np.abs(axis.to_ns(sm, anchors.ticks) - anchors.ns).max() <= 1
    assert axis.fit.ns_per_tick == pytest.approx(1, rel=1e-6)


def test_order_within_an_sm_is_kept_and_a_tick_never_goes_back() -> None:
    for gpu in (Gpu(sms=3), Gpu(sms=3, slower=0.2), Gpu(sms=3, step=1024)):
        sm, ns = kernel(gpu, 60, 3_000)
        assert_keeps_order(fit_axis(gpu.anchors(sm, ns), nominal_hz=HZ), gpu)


def assert_keeps_order(axis: Axis, gpu: Gpu) -> None:
    """Look at each tick of a launch, and less closely at a long time before and after."""
    for one in range(gpu.sms):
        near, far, launch = (
            gpu.ticks(np.array([one, one]), np.array(ends))
            for ends in ([-50_000, 300_000], [-(10**7), 10**7], [0, 230_000])
        )
        for ticks in (np.arange(*near, 3), np.linspace(*far, 100_001).astype(np.int64)):
            placed = axis.to_ns(np.full(len(ticks), one), ticks)
            assert (np.diff(placed) >= 0).all()
        # Before and after the anchors the axis is a straight line, whatever other SMs' axes do.
        line = (placed - EPOCH) - axis.fit.ns_per_tick * (ticks - ticks[0])
        assert np.ptp(line[ticks < launch[0]]) <= 2
        assert np.ptp(line[ticks > launch[1]]) <= 2


def test_torn_anchors_do_not_turn_time_back() -> None:
    gpu = Gpu(sms=3)
    sm, ns = kernel(gpu, 5, 30_000, warps=1)
    anchors = gpu.anchors(sm, ns)
    for torn in range(0, len(sm), 4):
        ticks = anchors.ticks.copy()
        ticks[torn] += 80_000  # 40 us: not so far that it must be torn
        axis = fit_axis(replace(anchors, ticks=ticks), nominal_hz=HZ)
        assert axis.torn == 0
        assert_keeps_order(axis, gpu)


def test_ticks_that_no_axis_reaches_stay_in_order() -> None:
    gpu = Gpu(sms=1, hz=500_000_000)
    axis = fit_axis(gpu.anchors(*kernel(gpu, 20, 3_000)), nominal_hz=HZ)
    placed = axis.to_ns(np.zeros(5, np.int64), np.array([-(2**62), 0, 2**40, 2**61, 2**62]))
    assert (np.diff(placed) >= 0).all()
    assert int(placed[-1]) - int(placed[0]) > 2**62


def test_a_clock_that_slows_down_is_followed() -> None:
    gpu = Gpu(hz=1_500_000_000, slower=0.13)
    straight = Gpu(hz=1_500_000_000)
    worst = {}
    for device in (gpu, straight):
        axis = fit_axis(device.anchors(*kernel(device, 100, 3_000)), nominal_hz=1.5e9)
        off, _ = errors(device, axis, 330_000)
        worst[device] = np.abs(off).max()
        assert axis.fit.rate_spread == pytest.approx(0.13 if device is gpu else 0, abs=0.04)
        assert axis.fit.residual_max_ns <= 1.2 * np.abs(off).max() + STEP
    # One straight line would be off by up to 13 % of 225 us over 8: 3.6 us.
    assert worst[gpu] < 400
    assert worst[straight] <= 2 * STEP


TORN = [
    ("ticks", 20_000_000),  # put aside for 10 ms between the two reads
    ("ticks", 2**60),
    ("ns", 10**12),
    ("ns", -(10**12)),
    ("ns", -EPOCH),
]


@pytest.mark.parametrize("place", [0, 5, 1000, -1])
@pytest.mark.parametrize(("field", "off"), TORN)
def test_one_anchor_that_is_far_off_moves_nothing(field: str, off: int, place: int) -> None:
    gpu = Gpu()
    sm, ns = kernel(gpu, 20, 3_000)
    anchors = gpu.anchors(sm, ns)
    values = getattr(anchors, field).copy()
    values[place] += off
    without, axis = (fit_axis(a, HZ) for a in (anchors, replace(anchors, **{field: values})))
    assert axis.torn == 1
    assert axis.fit.anchors == len(sm) - 1
    assert axis.fit.residual_max_ns < 2 * STEP
    for ours, theirs in zip(errors(gpu, axis, 66_000), errors(gpu, without, 66_000), strict=True):
        assert np.abs(ours - theirs).max() <= 5


@pytest.mark.parametrize("share", [0.01, 0.1])
def test_anchors_torn_a_little_move_little(share: float) -> None:
    gpu = Gpu()
    sm, ns = kernel(gpu, 20, 3_000)
    anchors = gpu.anchors(sm, ns)
    torn = np.random.default_rng(3).random(len(sm)) < share
    late = replace(anchors, ticks=anchors.ticks + 4_000 * torn)  # 2 us
    off, _ = errors(gpu, axis := fit_axis(late, HZ), 66_000)
    assert np.abs(off + STEP / 2).max() <= 2 * STEP
    assert axis.fit.residual_max_ns == pytest.approx(2_020, abs=2 * STEP)


def test_one_anchor_per_sm_takes_the_advertised_rate() -> None:
    gpu = Gpu()
    sm, ns = np.arange(8), 100 * np.arange(8)
    axis = fit_axis(gpu.anchors(sm, ns), nominal_hz=HZ)
    assert axis.fit.rate == "nominal"
    assert axis.fit.ns_per_tick == 1e9 / HZ
    assert axis.fit.residual_max_ns is axis.fit.residual_sd_ns is None
    off, longer = errors(gpu, axis, 100_000)
    assert np.abs(off).max() <= STEP
    assert np.abs(longer).max() <= 1


@pytest.mark.parametrize(("residence", "rate"), [(40, "nominal"), (3_000, "fitted")])
@pytest.mark.parametrize("seed", range(5))
def test_a_rate_is_called_fitted_only_where_the_timer_s_steps_allow_it(
    residence: int, rate: str, seed: int
) -> None:
    gpu = Gpu(sms=1, seed=seed)
    axis = fit_axis(gpu.anchors(*kernel(gpu, 1, residence, warps=2)), nominal_hz=HZ)
    assert axis.fit.rate == rate
    assert axis.fit.ns_per_tick == pytest.approx(1e9 / HZ, rel=0.02)


def test_a_rate_that_no_clock_has_is_not_fitted() -> None:
    zeros = np.zeros(40, np.int64)
    time = 10_000 * np.arange(40)
    for ticks in (time * 1000, time // 1000, -time, zeros):
        axis = fit_axis(Anchors(zeros, EPOCH + time, ticks), nominal_hz=HZ)
        assert axis.fit.rate == "nominal"
        assert axis.fit.ns_per_tick == 1e9 / HZ


def test_sms_without_a_warp_leave_no_gap() -> None:
    gpu = Gpu(sms=132)
    sm, ns = kernel(gpu, 5, 10_000)
    some = np.isin(sm, [3, 77, 131])
    axis = fit_axis(gpu.anchors(sm[some], ns[some]), nominal_hz=HZ)
    placed = axis.to_ns(sm[some], gpu.ticks(sm[some], ns[some]))
    assert np.abs(placed - EPOCH - ns[some] + STEP / 2).max() <= STEP


@pytest.mark.parametrize(("sms", "warps", "known"), [(8, 1, False), (1, 1, False), (8, 2, True)])
@pytest.mark.parametrize("residence", [5_000, 100_000])
def test_a_fit_through_as_many_anchors_as_unknowns_has_no_residual(
    sms: int, warps: int, known: bool, residence: int
) -> None:
    gpu = Gpu(sms=sms)
    axis = fit_axis(gpu.anchors(*kernel(gpu, 1, residence, warps)), nominal_hz=HZ)
    assert axis.fit.rate == "fitted"
    if residence < 20_000 and sms > 1:
        known = True  # one window holds both anchors of a warp, and all SMs share the rate
    assert (axis.fit.residual_sd_ns is not None) is known
    assert (axis.fit.residual_max_ns is not None) is known


def test_no_anchor_at_all() -> None:
    none = np.empty(0, np.int64)
    axis = fit_axis(Anchors(none, none, none), nominal_hz=HZ)
    assert (axis.fit.rate, axis.fit.anchors, axis.fit.residual_max_ns) == ("nominal", 0, None)
    assert len(axis.to_ns(none, none)) == 0


def test_launches_that_are_fitted_together_do_not_know_of_each_other() -> None:
    random = np.random.default_rng(5)
    launches = []
    for seed, residence in enumerate([40, 400, 3_000, 30_000, 500_000] * 4):
        gpu = Gpu(sms=1 + seed % 5, seed=seed, slower=0.1 * (seed % 3))
        anchors = gpu.anchors(*kernel(gpu, 1 + seed % 7, residence, warps=1 + seed % 3))
        ticks = anchors.ticks.copy()
        ticks[random.integers(len(ticks))] += [0, 3_000, 2**50][seed % 3]
        launches.append(replace(anchors, ticks=ticks))
    none = np.empty(0, np.int64)
    launches.insert(3, Anchors(none, none, none))
    for anchors, together in zip(launches, fit_together(launches, HZ), strict=True):
        alone = fit_axis(anchors, HZ)
        assert (alone.fit, alone.torn) == (together.fit, together.torn)
        for shift in (0, 500, -(10**7), 10**9):
            at = anchors.sm, anchors.ticks + shift
            assert np.array_equal(alone.to_ns(*at), together.to_ns(*at))
