"""What ikp asks of the CUDA driver, with no package in between: modules, functions and copies."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
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
_NOT_FOUND: Final = 500
_RELAXED: Final = 2
"""The mode of capture that forbids nothing."""


_WRITE_64: Final = 5
_MEMORY_TYPE: Final = 2
_DEVICE: Final = 2
"""What an address is asked for, and the answer where it is of a device's memory."""


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


@cache
def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise PatchError(f"the CUDA driver can't be loaded: {error}") from error


def call(name: str, what: str, *arguments: object) -> None:
    """Call a function of the driver, with arguments of ``ctypes``.

    Args:
        name: the function's, as the driver exports it.
        what: what it is to do, in words, for the text of an error.
        arguments: integers only where it takes an ``int``.

    Raises:
        PatchError: the driver refuses, or has no such function.
    """
    try:
        function = getattr(_driver(), name)
    except AttributeError as error:
        raise PatchError(f"the CUDA driver could not {what}: it has no {name}.") from error
    _checked(function(*arguments), what)


def load(cubin: bytes, name: str) -> tuple[int, int]:
    """Load machine code in the current context; return the handles of module and function.

    Raises:
        PatchError: the driver refuses it.
    """
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _checked(_driver().cuModuleLoadData(ctypes.byref(module), cubin), "load the patched code")
    _checked(
        _driver().cuModuleGetFunction(ctypes.byref(function), module, name.encode()),
        f"find {name} in the patched code",
    )
    return module.value or 0, function.value or 0


def unload(module: int) -> None:
    """Unload a module; what was of a context that has ended is gone with it, and is not for this.

    Raises:
        PatchError: the driver refuses.
    """
    _checked(_driver().cuModuleUnload(ctypes.c_void_p(module)), "unload the patched code")


def function_of(kernel: int) -> int:
    """Return the function of a kernel that belongs to no context, in the current one.

    Raises:
        PatchError: the driver refuses.
    """
    function = ctypes.c_void_p()
    code = _driver().cuKernelGetFunction(ctypes.byref(function), ctypes.c_void_p(kernel))
    _checked(code, "find the function of a kernel")
    return function.value or 0


def like(function: int, plain: int, *, cache: int = -1) -> None:
    """Give a function what a program has set for another, such as how much shared memory it takes.

    What can be read is read. The preference of cache or shared memory and the width of banks can
    not: they are known where the library before the driver has seen them being set.

    Args:
        function: the patched one.
        plain: the program's.
        cache: the preference that the program is known to set, where that library is not loaded;
            -1 for none.

    Raises:
        PatchError: the driver refuses.
    """
    changes = _count("ikp_changes")
    if changes is not None and _alike.get((function, plain)) == changes:
        return
    for attribute in _SETTABLE:
        wanted, had = _attribute(plain, attribute), _attribute(function, attribute)
        if wanted != had:
            code = _driver().cuFuncSetAttribute(ctypes.c_void_p(function), attribute, wanted)
            _checked(code, f"set attribute {attribute} of the patched function to {wanted}")
    _like_later(function, plain)
    banks = -1
    if changes is not None:
        cache, banks = _preferred(plain)
    for ask, value in (("cuFuncSetCacheConfig", cache), ("cuFuncSetSharedMemConfig", banks)):
        if value >= 0:
            code = getattr(_driver(), ask)(ctypes.c_void_p(function), value)
            _checked(code, f"give the patched function the plain one's {ask}({value})")
    if changes is not None:
        _alike.clear() if len(_alike) >= _MOST_ALIKE else None
        _alike[function, plain] = _count("ikp_changes") or 0


_MOST_ALIKE: Final = 4096
_alike: dict[tuple[int, int], int] = {}
"""Patched and plain functions that were made alike, and how often anything had changed by then."""


def _like_later(function: int, plain: int) -> None:
    """Set what a newer driver lets programs set; what can't be set, no program has."""
    for attribute in _LATER:
        wanted, had = ctypes.c_int(), ctypes.c_int()
        ask = _driver().cuFuncGetAttribute
        if ask(ctypes.byref(wanted), attribute, ctypes.c_void_p(plain)):
            return
        ask(ctypes.byref(had), attribute, ctypes.c_void_p(function))
        if wanted.value != had.value:
            _driver().cuFuncSetAttribute(ctypes.c_void_p(function), attribute, wanted)


def _preferred(plain: int) -> tuple[int, int]:
    """Return what was set last of a function's cache and banks; -1 where nothing was."""
    device, cache, banks = ctypes.c_int(), ctypes.c_int(-1), ctypes.c_int(-1)
    _checked(_driver().cuCtxGetDevice(ctypes.byref(device)), "tell the current device")
    _driver().ikp_preferred(
        ctypes.c_void_p(plain), device, ctypes.byref(cache), ctypes.byref(banks)
    )
    return cache.value, banks.value


def _count(name: str) -> int | None:
    """Return a number that the library before the driver keeps; None where it is not loaded."""
    ask = getattr(_driver(), name, None)
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


def _attribute(function: int, attribute: int) -> int:
    value = ctypes.c_int()
    code = _driver().cuFuncGetAttribute(ctypes.byref(value), attribute, ctypes.c_void_p(function))
    _checked(code, f"read attribute {attribute} of a function")
    return value.value


def context() -> int:
    """Return the current context; 0 where there is none.

    Raises:
        PatchError: the driver refuses.
    """
    found = ctypes.c_void_p()
    _checked(_driver().cuCtxGetCurrent(ctypes.byref(found)), "tell the current context")
    return found.value or 0


def context_number() -> int:
    """Return a number of the current context that no other has, while a handle is given out again.

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
    _checked(_driver().cuCtxGetDevice(ctypes.byref(device)), "tell the current device")
    code = _driver().cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
    _checked(code, "tell whether a device's context is in use")
    if not active.value:
        return 0  # to ask for it would make it
    _checked(
        _driver().cuDevicePrimaryCtxRetain(ctypes.byref(found), device), "tell a device's context"
    )
    _checked(_driver().cuDevicePrimaryCtxRelease_v2(device), "give a device's context back")
    return found.value or 0


def chip() -> tuple[int, int]:
    """Return the compute capability of the current device: ``(9, 0)``.

    Raises:
        PatchError: the driver refuses.
    """
    device, parts = ctypes.c_int(), []
    _checked(_driver().cuCtxGetDevice(ctypes.byref(device)), "tell the current device")
    for attribute in (75, 76):  # COMPUTE_CAPABILITY_MAJOR, _MINOR
        value = ctypes.c_int()
        code = _driver().cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        _checked(code, "tell what chip the device has")
        parts.append(value.value)
    return parts[0], parts[1]


def capturing(stream: int) -> bool:
    """Return whether what is queued on a stream becomes a part of a CUDA graph.

    Raises:
        PatchError: the driver refuses.
    """
    status = ctypes.c_int()
    code = _driver().cuStreamIsCapturing(ctypes.c_void_p(stream), ctypes.byref(status))
    _checked(code, "tell whether a stream is captured")
    return status.value != 0


def address_of(module: int, symbol: str) -> int:
    """Return where a loaded module's global symbol lies in the device's memory.

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
    """Let this thread allocate and load while it captures a CUDA graph, in which none of that is.

    Raises:
        PatchError: the driver refuses.
    """
    mode = ctypes.c_int(_RELAXED)
    exchange = _driver().cuThreadExchangeStreamCaptureMode
    _checked(exchange(ctypes.byref(mode)), "allocate beside the capture of a graph")
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


def find(holder: int, symbol: str, *, library: bool = False) -> int | None:
    """Return where a module or library has a symbol on the current device; None where it has none.

    Raises:
        PatchError: the driver refuses.
    """
    ask = _driver().cuLibraryGetGlobal if library else _driver().cuModuleGetGlobal_v2
    address, size = ctypes.c_uint64(), ctypes.c_size_t()
    code = ask(ctypes.byref(address), ctypes.byref(size), ctypes.c_void_p(holder), symbol.encode())
    if code == _NOT_FOUND:
        return None
    _checked(code, f"find {symbol}")
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
    _checked(code, "copy within the device")


def write(target: int, words: Sequence[int], stream: int) -> None:
    """Write words of 64 bits to the device's memory, in the order of a stream.

    The values go with the call: a CUDA graph that is captured writes them at each replay.

    Raises:
        PatchError: the driver refuses.
    """
    if capturing(stream):
        _write_each(target, words, stream)
        return
    # So few bytes of the host's go with the command itself; they are read before this returns.
    values = (ctypes.c_uint64 * len(words))(*words)
    code = _driver().cuMemcpyHtoDAsync_v2(
        ctypes.c_uint64(target),
        values,
        ctypes.c_size_t(ctypes.sizeof(values)),
        ctypes.c_void_p(stream),
    )
    _checked(code, "write to the device in a stream's order")


def _write_each(target: int, words: Sequence[int], stream: int) -> None:
    """Write words by operations of the stream: a graph keeps the values, where a copy would keep
    where they lay. Each waits until all that was written before is seen, which takes 3 us.
    """
    operations = (_Write * len(words))(
        *(_Write(_WRITE_64, 0, target + 8 * at, word) for at, word in enumerate(words))
    )
    code = _driver().cuStreamBatchMemOp_v2(ctypes.c_void_p(stream), len(words), operations, 0)
    _checked(code, "write to the device in a stream's order")


def _checked(code: int, what: str) -> None:
    if code:
        name = ctypes.c_char_p()
        _driver().cuGetErrorName(code, ctypes.byref(name))
        told = name.value.decode() if name.value else f"error {code}"
        raise PatchError(f"the CUDA driver could not {what}: {told}.")


def allocation(pointer: int) -> tuple[int, int]:
    """Return where the allocation begins that a device pointer points into, and its bytes.

    Raises:
        PatchError: it is no pointer to the device's memory.
    """
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    _checked(
        _driver().cuMemGetAddressRange_v2(
            ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(pointer)
        ),
        f"find the memory around {pointer:#x}",
    )
    return base.value, size.value


def on_device(pointer: int) -> bool:
    """Return whether an address is of memory that a device has, and that this process allocated."""
    kind = ctypes.c_uint32()
    code = _driver().cuPointerGetAttribute(
        ctypes.byref(kind), _MEMORY_TYPE, ctypes.c_uint64(pointer)
    )
    return not code and kind.value == _DEVICE


def allocate(nbytes: int) -> int:
    """Return the address of new memory on the device.

    Raises:
        PatchError: there is not so much.
    """
    address = ctypes.c_uint64()
    _checked(
        _driver().cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes)),
        f"allocate {nbytes:,} bytes",
    )
    return address.value


def free(address: int) -> None:
    """Give memory back.

    Raises:
        PatchError: the driver refuses.
    """
    _checked(_driver().cuMemFree_v2(ctypes.c_uint64(address)), "free memory")


def copy_to_host(target: int, source: int, nbytes: int) -> None:
    """Copy from the device to the host, and wait for it.

    Raises:
        PatchError: the driver refuses.
    """
    _checked(
        _driver().cuMemcpyDtoH_v2(
            ctypes.c_void_p(target), ctypes.c_uint64(source), ctypes.c_size_t(nbytes)
        ),
        "copy to the host",
    )


def wait() -> None:
    """Wait for all that the device was asked for.

    Raises:
        PatchError: something of it failed.
    """
    _checked(_driver().cuCtxSynchronize(), "finish what was launched")
