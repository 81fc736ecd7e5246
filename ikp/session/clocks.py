"""Handshakes with a GPU in the service's thread, and traces placed in Unix time by them."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from weakref import WeakSet

import numpy as np

from ikp.core.host_clock import Handshake, HostClock
from ikp.core.trace import Launch, Trace
from ikp.core.warps import launch_bounds
from ikp.driver.handshake import Dialogue
from ikp.errors import PatchError
from ikp.session.device import Device, device_of
from ikp.session.service import Each, Service, service_of
from ikp.session.storage import drives_cuda

EVERY_S: Final = 0.5
"""The interval of handshakes while a session records on the GPU."""
_POLL_S: Final = 0.0001
_PATIENCE_S: Final = 0.05
"""The longest wait for the kernel of a handshake to start: the GPU may be full."""
_KEPT: Final = 1 << 16
"""Handshakes at most, 9 hours of them; of more, every second one is kept."""


class GpuClock:
    """Handshakes with one GPU. Any thread may ask for one; the service's thread makes it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._service: Service = service_of(device)
        self._dialogue: Dialogue | None = None
        self._handshakes: list[Handshake] = []
        self._lock = threading.Lock()
        self._owners = WeakSet[object]()  # sessions that record on the GPU
        self._busy = self._launched = self._tended = False
        self._last = -math.inf
        self._until = 0.0
        self.refused = ""  # why there are no handshakes

    @property
    def handshakes(self) -> tuple[Handshake, ...]:
        """All handshakes so far, in order."""
        return tuple(self._handshakes)

    def launching(self, every_s: float = EVERY_S) -> None:
        """Have a handshake made, if the one before is old: a launch is to come."""
        now = time.monotonic()
        if now < self._last + every_s or self._busy or self.refused:
            return
        self._last, self._busy = now, True
        self._service.post(self._begin)

    def tend(self, owner: object) -> None:
        """Have handshakes made every ``EVERY_S`` until the owner leaves, or is gone.

        Replays of CUDA graphs, and launches that are left to the driver, ask for none.
        """
        with self._lock:
            self._owners.add(owner)
            begins, self._tended = not self._tended, True
        if begins:
            self._service.post(self._tend)

    def leave(self, owner: object) -> None:
        """Make no further handshakes for an owner."""
        with self._lock:
            self._owners.discard(owner)

    def _tend(self) -> float | None:
        """Have a handshake made if one is due; return the seconds until the next look, or None."""
        with self._lock:
            self._tended = bool(self._owners) and not self.refused
            if not self._tended:
                return None
        self.launching()
        return EVERY_S

    def meet(self) -> None:
        """Make a handshake, and wait for it."""
        self._last = time.monotonic()
        self._service.call(self._met)

    def line(self, since_ns: int) -> HostClock | None:
        """Return the line through the handshakes since some time; None where there is none.

        Args:
            since_ns: a reading of ``CLOCK_MONOTONIC``.
        """
        made = [each for each in self.handshakes if each.monotonic_ns >= since_ns]
        return HostClock(made) if made else None

    def _met(self) -> None:
        self._busy = True
        again = self._begin()
        while again is not None:
            time.sleep(again)
            again = self._go_on()

    def _begin(self) -> float | None:
        """Launch the kernel of a handshake; return the seconds until the next look, or None."""
        if self.refused:
            self._busy = False
            return None
        try:
            if self._dialogue is None:
                self._dialogue = Dialogue(self._device.index or 0)
            self._launched = self._dialogue.begin()
        except PatchError as error:
            self.refused = str(error)
        self._until = time.monotonic() + _PATIENCE_S
        return self._go_on()

    def _go_on(self) -> float | None:
        """Exchange, once the kernel runs; return the seconds until the next look, or None."""
        if self._dialogue is not None and self._launched and not self.refused:
            if self._dialogue.started:
                if (made := self._dialogue.exchange()) is not None:
                    self._keep(made)
            elif time.monotonic() < self._until:
                return _POLL_S
        self._busy = False
        return None

    def _keep(self, made: Handshake) -> None:
        if len(self._handshakes) >= _KEPT:
            del self._handshakes[1::2]
        self._handshakes.append(made)


_clocks = Each(GpuClock)


def clock_of(named: Any) -> GpuClock | None:
    """Return the clock of a device, torch's or ikp's: one for all sessions; or None.

    The host's own clock needs none, and GPUs without CUDA have none.
    """
    device = device_of(named)
    if device.type != "cuda":
        return None
    return _clocks.of(device) if drives_cuda() else None


def aligned(trace: Trace, clocks: Mapping[str, HostClock]) -> Trace:
    """Return the trace with times as Unix times, as far as clocks are known.

    Args:
        trace: its launches on GPUs have times of the GPUs' timers.
        clocks: by the device's name in launches.
    """
    lines = [clocks.get(each.device) for each in trace.launches]
    if not any(lines):
        return trace
    which = {name: number for number, name in enumerate(clocks)}
    of_launch = np.array([which.get(each.device, -1) for each in trace.launches])
    slots = _moved(trace.slots, of_launch[trace.slots.launch], clocks)
    others = _moved(trace.others, of_launch[trace.others.launch], clocks)
    of_event = of_launch[trace.slots.launch[trace.events.slot]]
    events = _moved(trace.events, of_event, clocks)
    launches = _noted(trace, lines)
    known = dict(trace.provenance)
    if steps := [f"{name}: {_steps(clock)}" for name, clock in clocks.items() if clock.steps]:
        known["clock_steps"] = "; ".join(steps)
    return replace(
        *(trace,), launches=launches, slots=slots, others=others, events=events, provenance=known
    )


def _steps(clock: HostClock) -> str:
    """Return in words by how much the host's clock was set, and when."""
    return ", ".join(f"by {each.by_ns:+,} ns after {each.after_ns}" for each in clock.steps)


def _moved(table: Any, which: Any, clocks: Mapping[str, HostClock]) -> Any:
    """Return a table with its times as Unix times."""
    columns = {name: getattr(table, name) for name in ("start_ns", "end_ns")}
    for number, clock in enumerate(clocks.values()):
        rows = which == number
        if rows.all():
            columns = {name: times + clock.offset(times) for name, times in columns.items()}
        elif rows.any():
            for name, times in columns.items():
                moved = times.copy()
                moved[rows] += clock.offset(times[rows])
                columns[name] = moved
    return replace(table, **columns)


def _noted(trace: Trace, lines: Sequence[HostClock | None]) -> tuple[Launch, ...]:
    """Return the launches with offset, drift and bound of their times."""
    first, last = launch_bounds(trace)
    made = list(trace.launches)
    for line in {id(each): each for each in lines if each is not None}.values():
        rows = [i for i, each in enumerate(lines) if each is line and first[i] <= last[i]]
        offsets, bounds = line.offset(first[rows]), line.bound_within(first[rows], last[rows])
        for row, offset, bound in zip(rows, offsets.tolist(), bounds.tolist(), strict=True):
            clock = replace(
                made[row].clock,
                unix_offset_ns=float(offset),
                unix_bound_ns=bound,
                unix_drift_ppm=line.drift_ppm,
            )
            made[row] = replace(made[row], clock=clock)
    return tuple(made)
