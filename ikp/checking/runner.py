"""Runs a kernel's plain and other form, each within a time limit, to compare or to time both."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Final

from ikp.checking.comparison import (
    Buffer,
    CheckResult,
    FailedRunError,
    compare,
    copies,
    restore,
)
from ikp.checking.messages import (
    ATTRIBUTE_BYTES,
    KernelForm,
    LaunchConfiguration,
    Request,
    RunTimes,
)
from ikp.driver import cuda, cuda_functions, cuda_memory, devices
from ikp.errors import PatchError

PLAIN_S: Final = 10.0
"""Seconds that the plain kernel may take: one that waits for another launch never ends."""
TIMES: Final = 50
"""A kernel with records may take so many times as long as the plain one, and ``PLAIN_S``."""
_DELAY_BYTES: Final = 32 << 20
"""Memory that is cleared before a timed launch, so that the launch is queued by then."""
_CLEARS: Final = (4, 16, 64)
"""How often it is cleared: more often where the launch came too late, as on a busy host."""
_ENOUGH_S: Final = 2.0
_LEAST_ROUNDS: Final = 3
"""After so many seconds in all, no more rounds follow, if there were so many."""
_APART: Final = 1
"""The flag of a stream that waits for no other stream."""


Stage = Callable[[bool, float], object]


class _Config(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


class DeviceMemory:
    """The memory of the current device. After a kernel has failed, no memory is freed."""

    lasts = True

    def allocate(self, nbytes: int) -> int:
        """Return the address of new memory."""
        return cuda_memory.allocate(nbytes)

    def free(self, address: int) -> None:
        """Free memory."""
        if self.lasts:
            cuda_memory.free(address)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy on the device, and wait for it."""
        cuda_memory.copy_within(target, source, nbytes, 0)
        cuda.wait()

    def read(self, address: int, nbytes: int) -> bytes:
        """Return what the memory holds."""
        return cuda_memory.read(address, nbytes)


def run(request: Request, memory: DeviceMemory, stage: Stage) -> CheckResult:
    """Run a kernel plain and with records, on memory that is mapped already, and compare.

    Args:
        request: the launch.
        memory: of the device.
        stage: takes whether the form with records runs next, and how many seconds it may.

    Raises:
        PatchError: the driver refuses a call before a kernel runs.
        NoCopyRoomError: there is no memory for copies.
    """
    devices.give_limits(request.shape.limits)
    with ExitStack() as loaded:
        plain = _Loaded(loaded, request.name, request.plain, request.shape, memory)
        recorded = _Loaded(loaded, request.name, request.recorded, request.shape, memory)
        cuda.wait()  # for copies: kernels run on streams that don't wait for them

        def run_plain() -> None:
            stage(False, PLAIN_S)
            plain.run(PLAIN_S)

        def run_recorded() -> None:
            limit = PLAIN_S + TIMES * plain.seconds
            stage(True, limit)
            recorded.run(limit)

        return compare(request.buffers, run_plain, run_recorded, memory)


def time_in_turn(request: Request, memory: DeviceMemory, stage: Stage) -> CheckResult | RunTimes:
    """Time the plain kernel and its other form in turn, each time on the same memory.

    Args:
        request: the launch, with how many rounds.
        memory: of the device.
        stage: as for ``run``.

    Returns:
        The times; where a form fails, a verdict that says how.
    """
    devices.give_limits(request.shape.limits)
    with ExitStack() as loaded, copies(request.buffers, memory) as before:
        forms = [
            _Loaded(loaded, request.name, code, request.shape, memory)
            for code in (request.plain, request.recorded)
        ]
        delay = memory.allocate(_DELAY_BYTES)
        loaded.callback(memory.free, delay)
        cuda.wait()
        times: tuple[list[float], list[float]] = ([], [])
        for turn in range(1 + request.rounds):
            for form, each in zip(forms, times, strict=True):
                other = form is forms[1]
                limit = PLAIN_S + TIMES * forms[0].seconds * other
                prepare = partial(_prepare, before, memory, partial(stage, other, limit))
                try:
                    took = form.timed(limit, delay, prepare)
                except FailedRunError as error:
                    return CheckResult(
                        f"{'without it' if other else 'the plain kernel'} {error}", other
                    )
                each.extend([took] * (turn > 0))  # the first run of each loads its code
            if sum(map(sum, times)) > _ENOUGH_S and turn >= _LEAST_ROUNDS:
                break
    return RunTimes(tuple(times[0]), tuple(times[1]))


def _prepare(
    before: Mapping[Buffer, int], memory: DeviceMemory, begin: Callable[[], object]
) -> None:
    restore(before, memory)
    begin()


class _Loaded:
    """A form of a kernel, plain or with records, that the driver has loaded."""

    def __init__(
        self,
        loaded: ExitStack,
        name: str,
        code: KernelForm,
        shape: LaunchConfiguration,
        memory: DeviceMemory,
    ) -> None:
        self._code, self._shape, self._memory = code, shape, memory
        self.seconds = 0.0  # that the last run took
        module, self._function = cuda_functions.load(code.cubin, name)
        loaded.callback(self._unload, module)
        cuda_functions.give_settings(self._function, shape.settings)
        for symbol, value in code.constants.items():
            held = ctypes.create_string_buffer(value, len(value))
            cuda_memory.copy_from_host(
                cuda_functions.address_of(module, symbol), ctypes.addressof(held), len(value)
            )
        stream = ctypes.c_void_p()
        cuda.call("cuStreamCreate", ctypes.byref(stream), _APART, to="create a stream")
        self._stream = stream.value or 0

    def _unload(self, module: int) -> None:
        if self._memory.lasts:
            stream = ctypes.c_void_p(self._stream)
            cuda.call("cuStreamDestroy_v2", stream, to="destroy a stream")
            cuda.call("cuModuleUnload", ctypes.c_void_p(module), to="unload a module")

    def run(self, limit: float) -> None:
        """Launch the kernel, and wait until it has ended.

        Args:
            limit: seconds.

        Raises:
            FailedRunError: it faulted, or has not ended.
        """
        began = time.monotonic()
        try:
            self._launch()
        except PatchError as error:
            raise FailedRunError(f"is not launched: {error}") from error
        self._wait(began, limit)

    def timed(self, limit: float, delay: int, prepare: Callable[[], object]) -> float:
        """Launch the kernel, wait until it has ended, and return its seconds on the device.

        Memory at ``delay`` is cleared before: meanwhile the launch is queued. Where it was queued
        too late, its time would hold some of the host's: then it is launched again, after more.

        Args:
            limit: seconds.
            delay: an address.
            prepare: is called before each launch.

        Raises:
            FailedRunError: as for ``run``.
        """
        *fewer, most = _CLEARS
        for clears in fewer:
            prepare()
            took, in_time = self._timed(limit, delay, clears)
            if in_time:
                return took
        prepare()
        return self._timed(limit, delay, most)[0]

    def _timed(self, limit: float, delay: int, clears: int) -> tuple[float, bool]:
        """Return seconds, and whether the launch was queued before its time began."""
        began, queue = time.monotonic(), "queue a launch"
        events = [ctypes.c_void_p(), ctypes.c_void_p()]
        stream, nbytes = ctypes.c_void_p(self._stream), ctypes.c_size_t(_DELAY_BYTES)
        for event in events:
            cuda.call("cuEventCreate", ctypes.byref(event), 0, to="create an event")
        try:
            for _ in range(clears):
                cuda.call("cuMemsetD8Async", ctypes.c_uint64(delay), 0, nbytes, stream, to=queue)
            cuda.call("cuEventRecord", events[0], stream, to=queue)
            self._launch()
            cuda.call("cuEventRecord", events[1], stream, to=queue)
            in_time = not cuda.has_passed(events[0].value or 0)
        except PatchError as error:
            raise FailedRunError(f"is not launched: {error}") from error
        self._wait(began, limit)
        took = ctypes.c_float()
        cuda.call("cuEventElapsedTime", ctypes.byref(took), *events, to="read a time")
        for event in events:
            cuda.call("cuEventDestroy_v2", event, to="destroy an event")
        return took.value * 1e-3, in_time

    def _wait(self, began: float, limit: float) -> None:
        """Wait until the launch has ended, and note how long that took.

        Raises:
            FailedRunError: it faulted, or has not ended.
        """
        pause = 1e-5
        try:
            while cuda.under_way(self._stream):
                if time.monotonic() - began > limit:
                    self._memory.lasts = False
                    raise FailedRunError(f"has not ended after {limit:.3g} s")
                time.sleep(pause)
                pause = min(2 * pause, 0.02)
        except PatchError as error:
            self._memory.lasts = False
            raise FailedRunError(f"ends in {error}") from error
        self.seconds = time.monotonic() - began

    def _launch(self) -> None:
        shape, three = self._shape, ctypes.c_uint * 3
        attributes = ctypes.create_string_buffer(shape.attributes, len(shape.attributes) + 1)
        config = _Config(
            *(three(*shape.grid), three(*shape.block), shape.shared, self._stream),
            *(ctypes.addressof(attributes), len(shape.attributes) // ATTRIBUTE_BYTES),
        )
        held = ctypes.create_string_buffer(self._code.parameters, len(self._code.parameters) + 1)
        begin, offsets = ctypes.addressof(held), self._code.offsets
        each = (ctypes.c_void_p * len(offsets))(*(begin + at for at in offsets))
        cuda.call(
            *("cuLaunchKernelEx", ctypes.byref(config), ctypes.c_void_p(self._function)),
            *(each if offsets else None, None),
            to="launch it",
        )
