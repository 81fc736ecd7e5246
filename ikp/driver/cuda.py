"""Calls of the CUDA driver through ctypes: errors, contexts, devices, streams and events."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from ikp.errors import PatchError

_NOT_READY: Final = 600
_RELAXED: Final = 2
"""The mode of capture that forbids nothing."""
_WITHOUT_TIME: Final = 2
"""The flag of an event that keeps no time."""
_ACTIVE: Final = 1
"""The status of a stream that is captured."""


class MissingFunctionError(PatchError, AttributeError):
    """The driver has no function of that name: it is older than the CUDA that brought it."""


class DriverLibrary(ctypes.CDLL):
    """The driver's library, whose functions ctypes finds by name.

    One that the driver lacks is reported in a line, wherever it is asked for: one of CUDA 11 has
    no ``cuLibraryGetKernel``. ``getattr`` with a default is for those that ikp can do without.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError as error:
            raise MissingFunctionError(f"the CUDA driver has no {name}.") from error


@cache
def driver() -> ctypes.CDLL:
    """Return the driver's library.

    Raises:
        PatchError: there is none.
    """
    try:
        return DriverLibrary("libcuda.so.1")
    except OSError as error:
        raise PatchError(f"the CUDA driver can't be loaded: {error}") from error


@cache
def driver_at_once() -> ctypes.PyDLL:
    """Return the driver, for what it answers at once: Python's lock is kept meanwhile.

    A launching thread that releases the lock has to wait for the thread that takes it.
    """
    driver()
    return ctypes.PyDLL("libcuda.so.1")


def hook_count(name: str) -> int | None:
    """Return a number that the hook library keeps; None where that is not loaded."""
    ask = getattr(driver_at_once(), name, None)
    if ask is None:
        return None
    value = ctypes.c_uint64()
    ask(ctypes.byref(value))
    return value.value


def handle(ordinal: int) -> ctypes.c_int:
    """Return a device's handle, as the driver takes it.

    Args:
        ordinal: the device's number, as the driver counts.

    Raises:
        PatchError: the driver refuses.
    """
    device = ctypes.c_int()
    call("cuDeviceGet", ctypes.byref(device), ordinal, to="find a device")
    return device


def retain(device: ctypes.c_int, *, to: str) -> int:
    """Return a device's primary context, for ikp to use as long as the program does.

    The hook library counts the program's own uses apart: with the last of them, it has all that is
    recorded read, and gives ikp's back, so that the context ends as without ikp.

    Raises:
        PatchError: the driver refuses.
    """
    context = ctypes.c_void_p()
    ask = "ikp_retain" if hasattr(driver(), "ikp_retain") else "cuDevicePrimaryCtxRetain"
    call(ask, ctypes.byref(context), device, to=to)
    return context.value or 0


def give_back(device: ctypes.c_int) -> None:
    """Give a device's primary context back that ``retain`` has returned.

    Raises:
        PatchError: the driver refuses.
    """
    ask = "ikp_release" if hasattr(driver(), "ikp_release") else "cuDevicePrimaryCtxRelease_v2"
    call(ask, device, to="give a device's context back")


def use_primary_context(ordinal: int) -> int:
    """Make a device's primary context this thread's, for good; relax this thread's captures.

    Args:
        ordinal: the device's number, as the driver counts.

    Returns:
        The device's handle.

    Raises:
        PatchError: the driver refuses.
    """
    device, mode = handle(ordinal), ctypes.c_int(_RELAXED)
    use(retain(device, to="find a device's context"))
    call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode), to="relax captures")
    return device.value


def context() -> int:
    """Return the current context; 0 where there is none.

    Raises:
        PatchError: the driver refuses.
    """
    found = ctypes.c_void_p()
    checked(driver().cuCtxGetCurrent(ctypes.byref(found)), "return the current context")
    return found.value or 0


def use(context: int) -> None:
    """Make a context the current one of this thread.

    Raises:
        PatchError: the driver refuses.
    """
    call("cuCtxSetCurrent", ctypes.c_void_p(context), to="use a context")


def need_context() -> None:
    """Use the first device's primary context where this thread has none, as Triton's launcher does.

    Raises:
        PatchError: the driver refuses.
    """
    if context():
        return
    device, begin = ctypes.c_int(), "begin to use the device in a thread"
    call("cuDeviceGet", ctypes.byref(device), 0, to=begin)
    use(retain(device, to=begin))


def use_device(identity: bytes) -> int:
    """Make the primary context of a device, by its UUID, the current one; return its number.

    Raises:
        PatchError: the device is not found, or the driver refuses.
    """
    count, uuid = ctypes.c_int(), ctypes.create_string_buffer(len(identity))
    call("cuDeviceGetCount", ctypes.byref(count), to="count devices")
    for number in range(count.value):
        call("cuDeviceGetUuid_v2", uuid, number, to="identify a device")
        if uuid.raw == identity:
            begin = "begin to use the device in another process"
            use(retain(ctypes.c_int(number), to=begin))
            return number
    raise PatchError("the device is not found in another process.")


def context_number() -> int:
    """Return a number that only the current context ever has; handles are used again by the driver.

    Raises:
        PatchError: the driver refuses.
    """
    known = hook_count("ikp_context")
    if known is not None:
        return known
    number = ctypes.c_ulonglong()
    ask = getattr(driver(), "cuCtxGetId", None)  # since CUDA 12
    if ask is None or ask(None, ctypes.byref(number)):
        return context()
    return number.value


def primary() -> int:
    """Return the context that the CUDA runtime, and so torch, uses on the current device; 0: none.

    Raises:
        PatchError: the driver refuses.
    """
    device = ctypes.c_int()
    flags, active = ctypes.c_uint(), ctypes.c_int()
    checked(driver().cuCtxGetDevice(ctypes.byref(device)), "return the current device")
    code = driver().cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
    checked(code, "report whether a device's context is in use")
    if not active.value:
        return 0  # to ask for it would make it
    found = retain(device, to="return a device's context")
    give_back(device)
    return found


def device() -> int:
    """Return the number of the current device.

    Raises:
        PatchError: the driver refuses.
    """
    found = ctypes.c_int()
    code = driver_at_once().cuCtxGetDevice(ctypes.byref(found))
    checked(code, "return the current device")
    return found.value


def chip() -> tuple[int, int]:
    """Return the compute capability of the current device: ``(9, 0)``.

    Raises:
        PatchError: the driver refuses.
    """
    number, parts = device(), []
    for attribute in (75, 76):  # COMPUTE_CAPABILITY_MAJOR, _MINOR
        value = ctypes.c_int()
        code = driver().cuDeviceGetAttribute(ctypes.byref(value), attribute, number)
        checked(code, "report which chip the device has")
        parts.append(value.value)
    return parts[0], parts[1]


def identity() -> bytes:
    """Return the UUID of the current device, the same in every process.

    Raises:
        PatchError: the driver refuses.
    """
    device, uuid = ctypes.c_int(), ctypes.create_string_buffer(16)
    call("cuCtxGetDevice", ctypes.byref(device), to="return the current device")
    call("cuDeviceGetUuid_v2", uuid, device, to="identify a device")
    return uuid.raw


def time_next(before: int, after: int) -> bool:
    """Have events recorded right around this thread's next launch, in its stream; 0 for none.

    Where the GPU was idle and waited for the launch, the first event is recorded again, behind the
    second one: the time between both is not above zero.

    Returns:
        Whether the hook library is there, which does it.
    """
    ask = getattr(driver(), "ikp_time_next", None)
    if ask is None:
        return False
    ask(ctypes.c_void_p(before), ctypes.c_void_p(after))
    return True


def seen_number(handle: int) -> int:
    """Return the number of an object that the hook library saw made; 0 where it did not.

    The driver gives out handles again. No other object ever has the number.
    """
    ask = getattr(driver(), "ikp_about", None)
    about = (ctypes.c_uint64 * 16)()  # ``About`` of known.h, which begins with the number
    if ask is None or ask(ctypes.c_void_p(handle), ctypes.byref(about)):
        return 0
    return int(about[0])


def event(*, timed: bool = True) -> int:
    """Return a new event of the current context.

    Args:
        timed: whether it keeps the time: recording one that does not costs less.

    Raises:
        PatchError: the driver refuses.
    """
    made = ctypes.c_void_p()
    flags = 0 if timed else _WITHOUT_TIME
    call("cuEventCreate", ctypes.byref(made), flags, to="make an event")
    return made.value or 0


def destroy_event(event: int) -> None:
    """Give an event of :func:`event` back, which no launch records any more."""
    driver().cuEventDestroy_v2(ctypes.c_void_p(event))


def elapsed_us(before: int, after: int) -> float | None:
    """Return the time between two recorded events; None where they have not happened."""
    took = ctypes.c_float()
    first, last = ctypes.c_void_p(before), ctypes.c_void_p(after)
    if driver().cuEventElapsedTime(ctypes.byref(took), first, last):
        return None
    return took.value * 1000


def capturing(stream: int) -> bool:
    """Return whether a stream is being captured into a CUDA graph.

    Raises:
        PatchError: the driver refuses.
    """
    status = ctypes.c_int()
    code = driver_at_once().cuStreamIsCapturing(ctypes.c_void_p(stream), ctypes.byref(status))
    checked(code, "report whether a stream is captured")
    return status.value != 0


def capture_number(stream: int) -> int:
    """Return the number of the capture that a stream takes part in; 0 where there is none.

    Raises:
        PatchError: the driver refuses.
    """
    ask = getattr(driver_at_once(), "cuStreamGetCaptureInfo_v2", None)  # since CUDA 11.3
    if ask is None:
        return int(capturing(stream))
    status, number = ctypes.c_int(), ctypes.c_uint64()
    asked = (ctypes.byref(status), ctypes.byref(number), None, None, None)
    checked(ask(ctypes.c_void_p(stream), *asked), "identify a capture")
    return number.value if status.value == _ACTIVE else 0


@contextmanager
def relaxed() -> Iterator[None]:
    """Let this thread allocate and load while it captures a CUDA graph; the graph gets none of it.

    Raises:
        PatchError: the driver refuses.
    """
    mode = ctypes.c_int(_RELAXED)
    exchange = driver().cuThreadExchangeStreamCaptureMode
    checked(exchange(ctypes.byref(mode)), "allocate beside the capture of a graph")
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


def checked(code: int, what: str) -> None:
    """Refuse an error that the driver returned.

    Raises:
        PatchError: the code is not 0; ``what`` is a verb phrase for its text.
    """
    if code:
        raise PatchError(f"the CUDA driver could not {what}: {error_name(code)}.")


def error_name(code: int) -> str:
    """Return the driver's name of an error: ``CUDA_ERROR_ILLEGAL_ADDRESS``."""
    name = ctypes.c_char_p()
    driver().cuGetErrorName(code, ctypes.byref(name))
    return name.value.decode() if name.value else f"error {code}"


def call(function: str, *arguments: object, to: str) -> None:
    """Call a function of the driver, with arguments of ``ctypes``.

    Args:
        function: its name, as the driver exports it.
        arguments: integers only where it takes an ``int``.
        to: the purpose, a verb phrase for the error's text.

    Raises:
        PatchError: the driver refuses, or has no such function.
    """
    try:
        called = getattr(driver(), function)
    except AttributeError as error:
        raise PatchError(f"the CUDA driver could not {to}: it has no {function}.") from error
    checked(called(*arguments), to)


def entry_point(function: str) -> int:
    """Return where a function of the driver is, for code that calls it without Python.

    Raises:
        PatchError: the driver has no such function.
    """
    return ctypes.cast(getattr(driver(), function), ctypes.c_void_p).value or 0


def under_way(stream: int) -> bool:
    """Return whether work that was queued on a stream has not ended.

    Raises:
        PatchError: the work failed; the text is the error's name.
    """
    code = driver().cuStreamQuery(ctypes.c_void_p(stream))
    if code in (0, _NOT_READY):
        return bool(code)
    raise PatchError(error_name(code))


def has_passed(event: int) -> bool:
    """Return whether a stream has come to an event that was recorded in it.

    Raises:
        PatchError: work before it failed; the text is the error's name.
    """
    code = driver().cuEventQuery(ctypes.c_void_p(event))
    if code in (0, _NOT_READY):
        return not code
    raise PatchError(error_name(code))


def wait() -> None:
    """Wait for all work of the current context.

    Raises:
        PatchError: some of the work failed.
    """
    checked(driver().cuCtxSynchronize(), "finish what was launched")
