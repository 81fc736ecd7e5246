"""Calls of the CUDA driver API through ctypes: modules, functions, contexts, memory and copies."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Final

from ikp.errors import PatchError

_SETTABLE: Final = (8, 9, 11, 12, 13, 14, 15)
"""Attributes that a program sets for a function: the most dynamic shared memory, its share of the
cache, a cluster's size in three dimensions, whether that may be larger than all chips have, and how
clusters are placed."""
_LATER: Final = range(16, 32)
"""Attributes that a newer driver may have."""


_NUM_REGS: Final = 4
_CARVE_OUT: Final = 9
_OF_CODE: Final = {
    0: "bounds of a block",
    1: "shared memory",
    2: "constants",
    3: "local memory",
    _NUM_REGS: "registers",
    6: "chips",
}
"""Attributes that come from the code, and can't be set."""
_NOT_FOUND: Final = 500
_NOT_READY: Final = 600
_RELAXED: Final = 2
"""The mode of capture that forbids nothing."""


_MPS_ENABLED: Final = 133
_ACTIVE: Final = 1
"""The status of a stream that is captured."""
_WRITE_64: Final = 5
_MEMORY_TYPE: Final = 2
_MANAGED, _ORDINAL, _BEGIN, _SIZE, _SIGNED = 8, 9, 11, 12, (1 << 32) - 1
_REACHABLE: Final = (1, 2)
"""The attribute of a pointer that is asked for, and its values where kernels can reach the memory:
the host's, the device's.
"""


class _Write(ctypes.Structure):
    """One operation on memory in a stream: writing 64 bits."""

    _fields_ = (
        ("operation", ctypes.c_uint32),
        ("gap", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("alias", ctypes.c_uint64),
        ("rest", ctypes.c_uint64),
    )


_LIMITS: Final = (0, 1, 2)
"""Limits of a context: a thread's stack, the buffer of ``printf``, the heap of kernels."""


@cache
def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise PatchError(f"the CUDA driver can't be loaded: {error}") from error


@cache
def _at_once() -> ctypes.PyDLL:
    """Return the driver, for what it answers at once: Python's lock is kept meanwhile.

    A launching thread that releases the lock has to wait for the thread that takes it.
    """
    _driver()
    return ctypes.PyDLL("libcuda.so.1")


def load(cubin: bytes, name: str) -> tuple[int, int]:
    """Load machine code in the current context; return the handles of module and function.

    Raises:
        PatchError: the driver refuses it.
    """
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    checked(_driver().cuModuleLoadData(ctypes.byref(module), cubin), "load the patched code")
    checked(
        _driver().cuModuleGetFunction(ctypes.byref(function), module, name.encode()),
        f"find {name} in the patched code",
    )
    return module.value or 0, function.value or 0


def unload(module: int) -> None:
    """Unload a module of a context that still exists: with its context, a module is gone already.

    Raises:
        PatchError: the driver refuses.
    """
    checked(_driver().cuModuleUnload(ctypes.c_void_p(module)), "unload the patched code")


def function_of(kernel: int) -> int:
    """Return the function (``CUfunction``) of a library's kernel (``CUkernel``) in this context.

    Raises:
        PatchError: the driver refuses.
    """
    function = ctypes.c_void_p()
    code = _driver().cuKernelGetFunction(ctypes.byref(function), ctypes.c_void_p(kernel))
    checked(code, "find the function of a kernel")
    return function.value or 0


def like(function: int, plain: int, *, cache: int = -1) -> None:
    """Copy the settings of a program's function to the patched one, such as its shared memory.

    Most settings can be read from the driver. The preference of cache or shared memory and the
    width of banks can not: they are known where the hook library has seen a program set them.

    Args:
        function: the patched one.
        plain: the program's.
        cache: the preference that the program is known to set, where the hook library is not
            loaded; -1 for none.

    Raises:
        PatchError: the driver refuses.
    """
    changes = _count("ikp_changes")
    if changes is not None and _alike.get((function, plain)) == changes:
        return
    give_settings(function, settings(plain))
    _like_later(function, plain)
    banks = -1
    if changes is not None:
        cache, banks = _preferred(plain)
    for ask, value in (("cuFuncSetCacheConfig", cache), ("cuFuncSetSharedMemConfig", banks)):
        if value >= 0:
            code = getattr(_driver(), ask)(ctypes.c_void_p(function), value)
            checked(code, f"give the patched function the plain one's {ask}({value})")
    if changes is not None:
        _alike.clear() if len(_alike) >= _MOST_ALIKE else None
        _alike[function, plain] = _count("ikp_changes") or 0


_MOST_ALIKE: Final = 4096
_alike: dict[tuple[int, int], int] = {}
"""Patched and plain functions with equal settings -> how many changes of settings the hook library
had counted then.
"""


def _like_later(function: int, plain: int) -> None:
    """Copy the attributes that only newer drivers have, as far as they can be set."""
    for attribute in _LATER:
        wanted, had = ctypes.c_int(), ctypes.c_int()
        ask = _driver().cuFuncGetAttribute
        if ask(ctypes.byref(wanted), attribute, ctypes.c_void_p(plain)):
            return
        ask(ctypes.byref(had), attribute, ctypes.c_void_p(function))
        if wanted.value != had.value:
            _driver().cuFuncSetAttribute(ctypes.c_void_p(function), attribute, wanted)


def _preferred(plain: int) -> tuple[int, int]:
    """Return the cache preference and the width of banks that were set last; -1 for never set."""
    cache, banks = ctypes.c_int(-1), ctypes.c_int(-1)
    _driver().ikp_preferred(
        ctypes.c_void_p(plain), device(), ctypes.byref(cache), ctypes.byref(banks)
    )
    return cache.value, banks.value


def _count(name: str) -> int | None:
    """Return a number that the hook library keeps; None where that is not loaded."""
    ask = getattr(_at_once(), name, None)
    if ask is None:
        return None
    value = ctypes.c_uint64()
    ask(ctypes.byref(value))
    return value.value


def registers(function: int) -> int:
    """Return how many registers the driver gives each thread of a function.

    Raises:
        PatchError: the driver refuses.
    """
    return _attribute(function, _NUM_REGS)


def of_code(function: int) -> dict[str, int]:
    """Return the attributes of a function that come from its machine code alone, by name.

    Raises:
        PatchError: the driver refuses.
    """
    return {what: _attribute(function, each) for each, what in _OF_CODE.items()}


def carve_out(function: int) -> int:
    """Return the part of L1 that a program prefers as shared memory, in percent; -1 without.

    Raises:
        PatchError: the driver refuses.
    """
    return _attribute(function, _CARVE_OUT)


def shared_by_mps(ordinal: int) -> bool:
    """Whether a GPU's contexts are those of an MPS server, so that processes run kernels at once.

    False where the driver does not say, as one that is too old.
    """
    device, value = ctypes.c_int(), ctypes.c_int()
    try:
        call("cuDeviceGet", ctypes.byref(device), ordinal, to="find a device")
        which = ctypes.byref(value), _MPS_ENABLED, device
        call("cuDeviceGetAttribute", *which, to="ask for MPS")
    except PatchError:
        return False
    return bool(value.value)


def _attribute(function: int, attribute: int) -> int:
    value = ctypes.c_int()
    code = _driver().cuFuncGetAttribute(ctypes.byref(value), attribute, ctypes.c_void_p(function))
    checked(code, f"read attribute {attribute} of a function")
    return value.value


def use_primary_context(ordinal: int) -> int:
    """Make a device's primary context this thread's, for good; relax this thread's captures.

    Args:
        ordinal: the device's number, as the driver counts.

    Returns:
        The device's handle.

    Raises:
        PatchError: the driver refuses.
    """
    device, context, mode = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int(_RELAXED)
    call("cuDeviceGet", ctypes.byref(device), ordinal, to="find a device")
    # Kept for good, as torch keeps it.
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device, to="find a device's context")
    call("cuCtxSetCurrent", context, to="use a device's context")
    call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode), to="relax captures")
    return device.value


def context() -> int:
    """Return the current context; 0 where there is none.

    Raises:
        PatchError: the driver refuses.
    """
    found = ctypes.c_void_p()
    checked(_driver().cuCtxGetCurrent(ctypes.byref(found)), "return the current context")
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
    device, made, begin = ctypes.c_int(), ctypes.c_void_p(), "begin to use the device in a thread"
    call("cuDeviceGet", ctypes.byref(device), 0, to=begin)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(made), device, to=begin)
    use(made.value or 0)


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
            made = ctypes.c_void_p()
            begin = "begin to use the device in another process"
            call("cuDevicePrimaryCtxRetain", ctypes.byref(made), number, to=begin)
            use(made.value or 0)
            return number
    raise PatchError("the device is not found in another process.")


def context_number() -> int:
    """Return a number that only the current context ever has; handles are used again by the driver.

    Raises:
        PatchError: the driver refuses.
    """
    known = _count("ikp_context")
    if known is not None:
        return known
    number = ctypes.c_ulonglong()
    ask = getattr(_driver(), "cuCtxGetId", None)  # since CUDA 12
    if ask is None or ask(None, ctypes.byref(number)):
        return context()
    return number.value


def primary() -> int:
    """Return the context that the CUDA runtime, and so torch, uses on the current device; 0: none.

    Raises:
        PatchError: the driver refuses.
    """
    device, found = ctypes.c_int(), ctypes.c_void_p()
    flags, active = ctypes.c_uint(), ctypes.c_int()
    checked(_driver().cuCtxGetDevice(ctypes.byref(device)), "return the current device")
    code = _driver().cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
    checked(code, "report whether a device's context is in use")
    if not active.value:
        return 0  # to ask for it would make it
    checked(
        _driver().cuDevicePrimaryCtxRetain(ctypes.byref(found), device), "return a device's context"
    )
    checked(_driver().cuDevicePrimaryCtxRelease_v2(device), "give a device's context back")
    return found.value or 0


def device() -> int:
    """Return the number of the current device.

    Raises:
        PatchError: the driver refuses.
    """
    found = ctypes.c_int()
    code = _at_once().cuCtxGetDevice(ctypes.byref(found))
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
        code = _driver().cuDeviceGetAttribute(ctypes.byref(value), attribute, number)
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
    ask = getattr(_driver(), "ikp_time_next", None)
    if ask is None:
        return False
    ask(ctypes.c_void_p(before), ctypes.c_void_p(after))
    return True


def event() -> int:
    """Return a new event of the current context.

    Raises:
        PatchError: the driver refuses.
    """
    made = ctypes.c_void_p()
    call("cuEventCreate", ctypes.byref(made), 0, to="make an event")
    return made.value or 0


def destroy_event(event: int) -> None:
    """Give an event of :func:`event` back, which no launch records any more."""
    _driver().cuEventDestroy_v2(ctypes.c_void_p(event))


def elapsed_us(before: int, after: int) -> float | None:
    """Return the time between two recorded events; None where they have not happened."""
    took = ctypes.c_float()
    first, last = ctypes.c_void_p(before), ctypes.c_void_p(after)
    if _driver().cuEventElapsedTime(ctypes.byref(took), first, last):
        return None
    return took.value * 1000


def capturing(stream: int) -> bool:
    """Return whether a stream is being captured into a CUDA graph.

    Raises:
        PatchError: the driver refuses.
    """
    status = ctypes.c_int()
    code = _at_once().cuStreamIsCapturing(ctypes.c_void_p(stream), ctypes.byref(status))
    checked(code, "report whether a stream is captured")
    return status.value != 0


def capture_number(stream: int) -> int:
    """Return the number of the capture that a stream takes part in; 0 where there is none.

    Raises:
        PatchError: the driver refuses.
    """
    ask = getattr(_at_once(), "cuStreamGetCaptureInfo_v2", None)  # since CUDA 11.3
    if ask is None:
        return int(capturing(stream))
    status, number = ctypes.c_int(), ctypes.c_uint64()
    asked = (ctypes.byref(status), ctypes.byref(number), None, None, None)
    checked(ask(ctypes.c_void_p(stream), *asked), "identify a capture")
    return number.value if status.value == _ACTIVE else 0


def address_of(module: int, symbol: str) -> int:
    """Return the device address of a loaded module's global symbol.

    Args:
        module: the driver's handle.
        symbol: the symbol's name.

    Raises:
        PatchError: the module has no such symbol, or the driver refuses.
    """
    found = find(module, symbol)
    if found is None:
        raise PatchError(f"the CUDA driver finds no {symbol} in a module.")
    return found


@contextmanager
def relaxed() -> Iterator[None]:
    """Let this thread allocate and load while it captures a CUDA graph; the graph gets none of it.

    Raises:
        PatchError: the driver refuses.
    """
    mode = ctypes.c_int(_RELAXED)
    exchange = _driver().cuThreadExchangeStreamCaptureMode
    checked(exchange(ctypes.byref(mode)), "allocate beside the capture of a graph")
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


def find(holder: int, symbol: str, *, library: bool = False) -> int | None:
    """Return the device address of a symbol of a module or library; None where it has none.

    Raises:
        PatchError: the driver refuses.
    """
    ask = _driver().cuLibraryGetGlobal if library else _driver().cuModuleGetGlobal_v2
    address, size = ctypes.c_uint64(), ctypes.c_size_t()
    code = ask(ctypes.byref(address), ctypes.byref(size), ctypes.c_void_p(holder), symbol.encode())
    if code == _NOT_FOUND:
        return None
    checked(code, f"find {symbol}")
    return address.value


def copy_within(target: int, source: int, nbytes: int, stream: int) -> None:
    """Copy memory of the device, in the order of a stream.

    Raises:
        PatchError: the driver refuses.
    """
    code = _driver().cuMemcpyDtoDAsync_v2(
        ctypes.c_uint64(target),
        ctypes.c_uint64(source),
        ctypes.c_size_t(nbytes),
        ctypes.c_void_p(stream),
    )
    checked(code, "copy within the device")


def write(target: int, words: Sequence[int], stream: int) -> None:
    """Write words of 64 bits to the device's memory, in the order of a stream.

    The values go with the call: a CUDA graph that is captured writes them at each replay.

    Raises:
        PatchError: the driver refuses.
    """
    if capturing(stream):
        _write_each(target, words, stream)
        return
    # Copies of so few bytes go with the command itself: the host's are read before this returns.
    values = (ctypes.c_uint64 * len(words))(*words)
    code = _driver().cuMemcpyHtoDAsync_v2(
        ctypes.c_uint64(target),
        values,
        ctypes.c_size_t(ctypes.sizeof(values)),
        ctypes.c_void_p(stream),
    )
    checked(code, "write to the device in a stream's order")


def _write_each(target: int, words: Sequence[int], stream: int) -> None:
    """Write words by memory operations of the stream, for a capture.

    A graph keeps the values of such operations; of a copy, it would keep the host's address. Each
    waits until all earlier writes are seen, which takes 3 us.
    """
    operations = (_Write * len(words))(
        *(_Write(_WRITE_64, 0, target + 8 * at, word) for at, word in enumerate(words))
    )
    code = _driver().cuStreamBatchMemOp_v2(ctypes.c_void_p(stream), len(words), operations, 0)
    checked(code, "write to the device in a stream's order")


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
    _driver().cuGetErrorName(code, ctypes.byref(name))
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
        called = getattr(_driver(), function)
    except AttributeError as error:
        raise PatchError(f"the CUDA driver could not {to}: it has no {function}.") from error
    checked(called(*arguments), to)


def entry_point(function: str) -> int:
    """Return where a function of the driver is, for code that calls it without Python.

    Raises:
        PatchError: the driver has no such function.
    """
    try:
        found = getattr(_driver(), function)
    except AttributeError as error:
        raise PatchError(f"the CUDA driver has no {function}.") from error
    return ctypes.cast(found, ctypes.c_void_p).value or 0


def under_way(stream: int) -> bool:
    """Return whether work that was queued on a stream has not ended.

    Raises:
        PatchError: the work failed; the text is the error's name.
    """
    code = _driver().cuStreamQuery(ctypes.c_void_p(stream))
    if code in (0, _NOT_READY):
        return bool(code)
    raise PatchError(error_name(code))


def has_passed(event: int) -> bool:
    """Return whether a stream has come to an event that was recorded in it.

    Raises:
        PatchError: work before it failed; the text is the error's name.
    """
    code = _driver().cuEventQuery(ctypes.c_void_p(event))
    if code in (0, _NOT_READY):
        return not code
    raise PatchError(error_name(code))


def allocation(pointer: int) -> tuple[int, int]:
    """Return the base address and the bytes of the allocation that a device pointer points into.

    Raises:
        PatchError: it is no pointer to the device's memory.
    """
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    checked(
        _driver().cuMemGetAddressRange_v2(
            ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(pointer)
        ),
        f"find the memory around {pointer:#x}",
    )
    return base.value, size.value


def reachable(pointer: int) -> bool:
    """Return whether an address is in memory that kernels can reach, of a device or the host."""
    return _of_pointer(pointer, _MEMORY_TYPE) in _REACHABLE


def far_memory(pointer: int) -> tuple[str, int, int] | None:
    """Return whose memory a pointer is of, with its base and its bytes; None of this device's.

    "host", "managed" (the driver moves its pages) or "another GPU".
    """
    kind, managed = _of_pointer(pointer, _MEMORY_TYPE), _of_pointer(pointer, _MANAGED)
    device = ctypes.c_int()
    if kind is None or _driver().cuCtxGetDevice(ctypes.byref(device)):
        return None
    owner = _of_pointer(pointer, _ORDINAL) or 0
    whose = "managed" if managed else "host" if kind == 1 else ""
    if not whose and owner & _SIGNED != device.value:
        whose = "another GPU"
    begin, size = _of_pointer(pointer, _BEGIN), _of_pointer(pointer, _SIZE)
    return (whose, begin or pointer, size or 1) if whose else None


def _of_pointer(pointer: int, which: int) -> int | None:
    """Return an attribute of a pointer, of up to 64 bits; None where the driver says none."""
    found = ctypes.c_uint64()
    code = _driver().cuPointerGetAttribute(ctypes.byref(found), which, ctypes.c_uint64(pointer))
    return None if code else found.value


def allocate(nbytes: int) -> int:
    """Return the address of new memory on the device.

    Raises:
        PatchError: there is not so much.
    """
    address = ctypes.c_uint64()
    checked(
        _driver().cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes)),
        f"allocate {nbytes:,} bytes",
    )
    return address.value


def free(address: int) -> None:
    """Give memory back.

    Raises:
        PatchError: the driver refuses.
    """
    checked(_driver().cuMemFree_v2(ctypes.c_uint64(address)), "free memory")


def copy_to_host(target: int, source: int, nbytes: int) -> None:
    """Copy from the device to the host, and wait for it.

    Raises:
        PatchError: the driver refuses.
    """
    checked(
        _driver().cuMemcpyDtoH_v2(
            ctypes.c_void_p(target), ctypes.c_uint64(source), ctypes.c_size_t(nbytes)
        ),
        "copy to the host",
    )


def read(source: int, nbytes: int) -> bytes:
    """Return what the device's memory holds; wait for it.

    Raises:
        PatchError: the driver refuses.
    """
    made = ctypes.create_string_buffer(nbytes)
    copy_to_host(ctypes.addressof(made), source, nbytes)
    return made.raw


def copy_from_host(target: int, source: int, nbytes: int) -> None:
    """Copy from the host to the device, and wait for it.

    Raises:
        PatchError: the driver refuses.
    """
    call(
        "cuMemcpyHtoD_v2",
        *(ctypes.c_uint64(target), ctypes.c_void_p(source), ctypes.c_size_t(nbytes)),
        to="copy to the device",
    )


def wait() -> None:
    """Wait for all work of the current context.

    Raises:
        PatchError: some of the work failed.
    """
    checked(_driver().cuCtxSynchronize(), "finish what was launched")


def settings(function: int) -> tuple[tuple[int, int], ...]:
    """Return the attributes that a program may set for a function: their numbers and values.

    Raises:
        PatchError: the driver refuses.
    """
    return tuple((each, _attribute(function, each)) for each in _SETTABLE)


def give_settings(function: int, wanted: Iterable[tuple[int, int]]) -> None:
    """Set those attributes of a function whose values differ from the wanted ones.

    Raises:
        PatchError: the driver refuses.
    """
    for attribute, value in wanted:
        if value != _attribute(function, attribute):
            code = _driver().cuFuncSetAttribute(ctypes.c_void_p(function), attribute, value)
            checked(code, f"set attribute {attribute} of the patched function to {value}")


def limits() -> tuple[tuple[int, int], ...]:
    """Return limits of the current context: their numbers, and bytes.

    Raises:
        PatchError: the driver refuses.
    """
    made = []
    for each in _LIMITS:
        value = ctypes.c_size_t()
        call("cuCtxGetLimit", ctypes.byref(value), each, to="read a context's limit")
        made.append((each, value.value))
    return tuple(made)


def give_limits(wanted: Iterable[tuple[int, int]]) -> None:
    """Set those limits of the current context that differ from the wanted ones.

    Raises:
        PatchError: the driver refuses.
    """
    for (which, had), (_, value) in zip(limits(), wanted, strict=True):
        if had != value:
            call("cuCtxSetLimit", which, ctypes.c_size_t(value), to="set a context's limit")
