# ruff: noqa: N802 - names of the driver's
"""What the driver says of a device, and events of streams, on a driver of the tests' own."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from ikp.driver import cuda, devices
from ikp.driver.stream_event import StreamEvent
from ikp.errors import PatchError

pytestmark = pytest.mark.any_pins
ILLEGAL = 700


class Driver:
    """Answers, and keeps which context is current, how often each is held, and its events."""

    def __init__(self) -> None:
        self.stack, self.held, self.events = [0], 0, dict[int, bool]()
        self.failed = 0

    def cuInit(self, flags: int) -> int:
        return flags

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = 2
        return 0

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:
        device._obj.value = ordinal + 40
        return 0 if ordinal < 2 else 101

    def cuDeviceGetName(self, text: Any, size: int, device: Any) -> int:
        text.value = f"Model {device.value}".encode()
        return 0

    def cuDeviceGetAttribute(self, value: Any, which: int, device: Any) -> int:
        value._obj.value = {13: 1_980_000}[which]
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:
        self.held += 1
        context._obj.value = device.value
        return 0

    def cuDevicePrimaryCtxRelease_v2(self, device: Any) -> int:
        self.held -= 1
        return 0

    def cuCtxPushCurrent_v2(self, context: Any) -> int:
        self.stack.append(context.value)
        return 0

    def cuCtxPopCurrent_v2(self, context: Any) -> int:
        self.stack.pop()
        return 0

    def cuMemGetInfo_v2(self, free: Any, total: Any) -> int:
        assert self.stack[-1] == 41 and self.held
        free._obj.value = 5 << 30
        return self.failed

    def cuCtxSynchronize(self) -> int:
        assert self.stack[-1] == 41 and self.held
        return self.failed

    def cuGetErrorName(self, code: int, name: Any) -> int:
        name._obj.value = b"CUDA_ERROR_ILLEGAL_ADDRESS"
        return 0

    def cuGetErrorString(self, code: int, text: Any) -> int:
        text._obj.value = b"an illegal memory access was encountered"
        return 0

    def cuEventCreate(self, event: Any, flags: int) -> int:
        assert flags == 2, "keeps no time"
        event._obj.value = len(self.events) + 1
        self.events[event._obj.value] = False
        return 0

    def cuEventRecord(self, event: Any, stream: Any) -> int:
        assert event.value in self.events
        return self.failed

    def cuEventQuery(self, event: Any) -> int:
        return self.failed or (0 if self.events[event.value] else 600)

    def cuEventDestroy_v2(self, event: Any) -> int:
        del self.events[event.value]
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(cuda, "driver", lambda: made)
    return made


def test_a_device_is_asked_in_its_own_context_and_the_threads_is_as_before(driver: Driver) -> None:
    assert devices.count() == 2
    assert devices.name(1) == "Model 41"
    assert devices.clock_rate_hz(1) == 1.98e9
    assert devices.free_bytes(1) == 5 << 30
    assert devices.failure(1) == ""
    driver.failed = ILLEGAL
    assert devices.failure(1) == "CUDA error: an illegal memory access was encountered"
    with pytest.raises(PatchError, match="report free memory: CUDA_ERROR_ILLEGAL_ADDRESS"):
        devices.free_bytes(1)
    with pytest.raises(PatchError, match="find a device"):
        devices.failure(2)
    assert (driver.stack, driver.held) == ([0], 0)


def test_without_a_driver_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "driver", SimpleNamespace)
    assert devices.count() == 0


def test_an_event_ends_once_its_stream_has_come_to_it_or_nobody_asks(driver: Driver) -> None:
    """At once: a reset of the GPU destroys all events, and none may be destroyed after that."""
    event, other = StreamEvent(7), StreamEvent(ctypes.c_void_p().value or 0)
    assert not event.query()
    driver.events[1] = True
    assert event.query() and event.query()
    assert list(driver.events) == [2]
    del other
    assert not driver.events


def test_an_event_behind_a_failed_kernel_is_an_error(driver: Driver) -> None:
    event = StreamEvent(0)
    driver.failed = ILLEGAL
    with pytest.raises(PatchError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        event.query()
    with pytest.raises(PatchError, match="record an event"):
        StreamEvent(0)
    del event
    assert not driver.events
