"""Modules and functions of the CUDA driver: loading, symbols, and settings of functions."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Final

from ikp.driver import cuda
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


def load(cubin: bytes, name: str) -> tuple[int, int]:
    """Load machine code in the current context; return the handles of module and function.

    Raises:
        PatchError: the driver refuses it.
    """
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    cuda.checked(
        cuda.driver().cuModuleLoadData(ctypes.byref(module), cubin), "load the patched code"
    )
    cuda.checked(
        cuda.driver().cuModuleGetFunction(ctypes.byref(function), module, name.encode()),
        f"find {name} in the patched code",
    )
    return module.value or 0, function.value or 0


def unload(module: int) -> None:
    """Unload a module of a context that still exists: with its context, a module is gone already.

    Raises:
        PatchError: the driver refuses.
    """
    cuda.checked(cuda.driver().cuModuleUnload(ctypes.c_void_p(module)), "unload the patched code")


def function_of(kernel: int) -> int:
    """Return the function (``CUfunction``) of a library's kernel (``CUkernel``) in this context.

    Raises:
        PatchError: the driver refuses.
    """
    function = ctypes.c_void_p()
    code = cuda.driver().cuKernelGetFunction(ctypes.byref(function), ctypes.c_void_p(kernel))
    cuda.checked(code, "find the function of a kernel")
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
    changes = cuda.hook_count("ikp_changes")
    if changes is not None and _alike.get((function, plain)) == changes:
        return
    give_settings(function, settings(plain))
    _like_later(function, plain)
    banks = -1
    if changes is not None:
        cache, banks = _preferred(plain)
    for ask, value in (("cuFuncSetCacheConfig", cache), ("cuFuncSetSharedMemConfig", banks)):
        if value >= 0:
            code = getattr(cuda.driver(), ask)(ctypes.c_void_p(function), value)
            cuda.checked(code, f"give the patched function the plain one's {ask}({value})")
    if changes is not None:
        _alike.clear() if len(_alike) >= _MOST_ALIKE else None
        _alike[function, plain] = cuda.hook_count("ikp_changes") or 0


_MOST_ALIKE: Final = 4096
_alike: dict[tuple[int, int], int] = {}
"""Patched and plain functions with equal settings -> how many changes of settings the hook library
had counted then.
"""


def _like_later(function: int, plain: int) -> None:
    """Copy the attributes that only newer drivers have, as far as they can be set."""
    for attribute in _LATER:
        wanted, had = ctypes.c_int(), ctypes.c_int()
        ask = cuda.driver().cuFuncGetAttribute
        if ask(ctypes.byref(wanted), attribute, ctypes.c_void_p(plain)):
            return
        ask(ctypes.byref(had), attribute, ctypes.c_void_p(function))
        if wanted.value != had.value:
            cuda.driver().cuFuncSetAttribute(ctypes.c_void_p(function), attribute, wanted)


def _preferred(plain: int) -> tuple[int, int]:
    """Return the cache preference and the width of banks that were set last; -1 for never set."""
    cache, banks = ctypes.c_int(-1), ctypes.c_int(-1)
    cuda.driver().ikp_preferred(
        ctypes.c_void_p(plain), cuda.device(), ctypes.byref(cache), ctypes.byref(banks)
    )
    return cache.value, banks.value


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


def _attribute(function: int, attribute: int) -> int:
    value = ctypes.c_int()
    code = cuda.driver().cuFuncGetAttribute(
        ctypes.byref(value), attribute, ctypes.c_void_p(function)
    )
    cuda.checked(code, f"read attribute {attribute} of a function")
    return value.value


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


def find(holder: int, symbol: str, *, library: bool = False) -> int | None:
    """Return the device address of a symbol of a module or library; None where it has none.

    Raises:
        PatchError: the driver refuses.
    """
    ask = cuda.driver().cuLibraryGetGlobal if library else cuda.driver().cuModuleGetGlobal_v2
    address, size = ctypes.c_uint64(), ctypes.c_size_t()
    code = ask(ctypes.byref(address), ctypes.byref(size), ctypes.c_void_p(holder), symbol.encode())
    if code == _NOT_FOUND:
        return None
    cuda.checked(code, f"find {symbol}")
    return address.value


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
            code = cuda.driver().cuFuncSetAttribute(ctypes.c_void_p(function), attribute, value)
            cuda.checked(code, f"set attribute {attribute} of the patched function to {value}")
