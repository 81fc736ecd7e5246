"""Handshakes of sessions, and traces placed by them."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import ikp
from ikp.core.host_clock import Handshake, HostClock
from ikp.core.trace import ClockFit
from ikp.errors import PatchError
from ikp.session import clocks
from ikp.session.clocks import GpuClock, aligned
from ikp.session.service import Here, Worker
from ikp.session.storage import HostStorage
from ikp.trace import Trace
from tests.analysis.example import START, launch, trace
from tests.trace_processor import check_trace

LATE = -2_000_000
DRIFT = 40e-6


def timer(now: int) -> int:
    """Return what a simulated GPU's timer shows at a Unix time."""
    return now + LATE - round(DRIFT * (now - START))


def handshake(now: int) -> Handshake:
    return Handshake(timer(now), now - 700, now + 700, now - 700 - START, 1)


class Kernel:
    """A kernel of handshakes that starts after a while, or never."""

    later: ClassVar[int] = 0  # looks before it has started
    refusal: ClassVar[str] = ""
    launched: ClassVar[int] = 0

    def __init__(self, ordinal: int) -> None:
        assert ordinal == 3
        self.looks = 0

    def begin(self) -> bool:
        if self.refusal:
            raise PatchError(self.refusal)
        type(self).launched += 1
        self.looks = 0
        return True

    @property
    def started(self) -> bool:
        self.looks += 1
        return self.looks > self.later

    def exchange(self) -> Handshake:
        return handshake(START + time.monotonic_ns())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuClock]:
    monkeypatch.setattr(clocks, "Dialogue", Kernel)
    monkeypatch.setattr(clocks, "service_of", lambda _: Here(HostStorage()))
    for name, value in (("later", 0), ("refusal", ""), ("launched", 0)):
        monkeypatch.setattr(Kernel, name, value)
    return GpuClock(SimpleNamespace(index=3))


def test_launches_ask_for_one_handshake_in_a_while(clock: GpuClock) -> None:
    for _ in range(100):
        clock.launching(3600.0)
    assert (len(clock.handshakes), Kernel.launched) == (1, 1)
    clock.launching(0.0)
    assert len(clock.handshakes) == 2


def test_a_handshake_waits_until_its_kernel_runs(clock: GpuClock) -> None:
    Kernel.later = 5
    clock.meet()
    assert len(clock.handshakes) == 1


def test_a_gpu_that_is_full_is_not_waited_for(clock: GpuClock) -> None:
    Kernel.later = 1 << 60
    began = time.monotonic()
    clock.meet()
    assert time.monotonic() - began < 5
    assert clock.line(0) is None
    Kernel.later = 0
    clock.meet()
    assert clock.line(0) is not None


def test_a_driver_that_refuses_is_asked_once(clock: GpuClock) -> None:
    Kernel.refusal = "no"
    clock.launching()
    clock.meet()
    assert clock.refused == "no"
    Kernel.refusal = ""
    clock.launching(0.0)
    assert clock.line(0) is None


def test_only_handshakes_since_a_time_are_used(clock: GpuClock) -> None:
    clock.meet()
    since = time.monotonic_ns()
    assert clock.line(since) is None
    clock.meet()
    line = clock.line(since)
    assert line is not None and line.count == 1


class Owner:
    """A session."""


def test_handshakes_go_on_without_launches_while_a_session_records(
    clock: GpuClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph that is replayed for a minute asks for none."""
    monkeypatch.setattr(clocks, "EVERY_S", 0.01)
    monkeypatch.setattr(GpuClock.launching, "__defaults__", (0.0,))
    vars(clock)["_service"] = Worker()
    first, second = Owner(), Owner()

    def more(than: int, within_s: float) -> bool:
        until = time.monotonic() + within_s
        while len(clock.handshakes) <= than and time.monotonic() < until:
            time.sleep(0.005)
        return len(clock.handshakes) > than

    clock.tend(first)
    clock.tend(second)
    assert more(5, 20)
    clock.leave(first)
    assert more(len(clock.handshakes) + 2, 20)
    del second  # a session that nobody closed
    gc.collect()
    time.sleep(0.05)
    assert not more(len(clock.handshakes), 0.2)
    clock.tend(first)
    assert more(len(clock.handshakes) + 2, 20)
    clock.leave(first)


def test_of_too_many_handshakes_the_first_ones_are_kept_too(
    clock: GpuClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clocks, "_KEPT", 8)
    clock.meet()
    (first,) = clock.handshakes
    for _ in range(100):
        clock.meet()
    made = clock.handshakes
    assert 4 < len(made) <= 8
    assert made[0] is first
    assert list(made) == sorted(made, key=lambda each: each.gpu_ns)


def recorded(*devices: str) -> Trace:
    """Return a trace of a launch on each device, with times of their timers."""
    launches = tuple(
        launch(f"k{at}", device=each, attempted=2, kept=2) for at, each in enumerate(devices)
    )
    slots = [(at, 0) for at in range(len(devices))]
    events = [event for at in range(len(devices)) for event in ((at, 0, 10, 90), (at, 1, 200, 700))]
    made = trace(events, launches=launches, slots=slots)
    return ikp.edit.shift(made, timer(START) - START)


def test_the_bound_holds_for_warps_without_ranges_too() -> None:
    line = HostClock([handshake(START - 50_000_000), handshake(START + 50_000_000)])
    device, late = "NVIDIA H200 (cuda:0)", 2_000_000_000
    made = recorded(device)
    others = replace(
        made.slots, start_ns=made.slots.start_ns + late, end_ns=made.slots.end_ns + late
    )
    (near,) = aligned(made, {device: line}).launches
    (far,) = aligned(replace(made, others=others), {device: line}).launches
    wanted = float(line.bound(others.end_ns).max())
    assert (near.clock.unix_bound_ns or 0) < wanted / 2
    assert far.clock.unix_bound_ns == pytest.approx(wanted)


def test_times_become_unix_times_within_the_bound(tmp_path: Path) -> None:
    line = HostClock([handshake(START - 50_000_000), handshake(START + 50_000_000)])
    made = aligned(recorded("NVIDIA H200 (cuda:0)", "other"), {"NVIDIA H200 (cuda:0)": line})
    first, second = made.launches
    assert first.clock.unix_bound_ns == pytest.approx(700, abs=100)
    assert first.clock.unix_offset_ns == pytest.approx(-LATE, abs=2)
    assert first.clock.unix_drift_ppm == pytest.approx(DRIFT * 1e6, rel=0.01)
    assert second.clock == ClockFit("cycles", 0.5, "fitted", 8, 12.0, 30.0)
    unix = made.slots.start_ns - START
    assert abs(unix[0]) <= first.clock.unix_bound_ns
    assert unix[1] == LATE, "what no handshake is known of stays as it was"
    assert np.abs(made.events.start_ns[:2] - START - [10, 200]).max() <= first.clock.unix_bound_ns
    assert (made.events.start_ns[2:] - START - LATE).tolist() == [10, 200]
    text = str(made.stats())
    assert "NVIDIA H200 (cuda:0): Unix time, at most 0.7" in text
    assert "the GPU's clock was 2,000.0 us behind, drift +40.0" in text
    assert "other: GPU clock, not aligned with the host's." in text
    made.save(tmp_path / "aligned.pftrace")
    assert ikp.load(tmp_path / "aligned.pftrace").launches == made.launches


@pytest.mark.tp
def test_an_aligned_trace_is_shown_where_it_is(tmp_path: Path) -> None:
    line = HostClock([handshake(START - 50_000_000), handshake(START + 50_000_000)])
    made = aligned(recorded("gpu"), {"gpu": line})
    made.save(tmp_path / "aligned.pftrace")
    check_trace(tmp_path / "aligned.pftrace", made)


def test_a_clock_that_was_set_is_told() -> None:
    set_by = 7_000_000
    late = handshake(START + 50_000_000)
    late = replace(late, before_ns=late.before_ns + set_by, after_ns=late.after_ns + set_by)
    made = aligned(recorded("gpu"), {"gpu": HostClock([handshake(START - 50_000_000), late])})
    assert "the host's clock was set while this was recorded: gpu: by +7,000,000 ns" in str(
        made.stats()
    )
    assert (made.launches[0].clock.unix_bound_ns or 0) > set_by / 2


def test_the_host_itself_needs_no_handshake() -> None:
    host: Any = SimpleNamespace(type="cpu")
    assert clocks.clock_of(host) is None
