"""Names of kernels: a C++ symbol demangled, and shortened to a readable label."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from functools import cache

from ikp.backends.driver import _shortened as shortened

_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1")
_NAME = re.compile(r"(?<![0-9])(?<!L[a-z])(?<!S)(?<!T)([1-9]\d*)(?=[A-Za-z_])(?!_)")
"""The length before a name in a mangled symbol; no number in a literal or a substitution."""


@cache
def demangled(symbol: str) -> str:
    """Return a kernel's name with all its arguments; the symbol itself if it can't be demangled."""
    if not symbol.startswith("_Z"):
        return symbol
    return next(filter(None, (_demangled(each, symbol) for each in _LIBRARIES)), symbol)


@cache
def readable(symbol: str) -> str:
    """Return a kernel's name with as many template arguments as fit, by the symbol alone.

    Where some of them are left out, a hash is in their place.
    """
    name = demangled(symbol)
    if name.startswith("_Z"):
        path, arguments = _parts(name)
        return shortened.hashed(f"{path}<{', '.join(arguments)}>", name)
    return shortened.shortened(name)


def labels(symbol: str) -> list[str]:
    """Return candidates for a kernel's label, best first: two kernels may share the first ones."""
    label = readable(symbol)
    return [label, shortened.hashed(label, demangled(symbol)), shortened.hashed(label, symbol)]


@cache
def bare(symbol: str) -> str:
    """Return a kernel's name without arguments: ``at::native::softmax_warp_forward``."""
    name = demangled(symbol)
    return _parts(name)[0] if name.startswith("_Z") else shortened.bare(name)


@cache
def _library(name: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name)
    except OSError:  # names stay as the compiler wrote them
        return None


def _demangled(library: str, symbol: str) -> str:
    """Return a symbol as a C++ library demangles it; "" where it does not.

    GCC's library refuses names of more than 1,024 characters, as some of CUTLASS's kernels have.
    """
    if (loaded := _library(library)) is None:
        return ""
    demangle = getattr(loaded, "__cxa_demangle")
    demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    made = demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not made:
        return ""
    try:
        return ctypes.string_at(made).decode(errors="replace")
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(made))


def _parts(symbol: str) -> tuple[str, list[str]]:
    """Return the path that a mangled name begins with, and the names in its arguments, in order.

    Of a qualified name in the arguments, only the last part is returned, without namespaces.
    """
    named = list(_named(symbol))
    path = next((at for at, (_, last) in enumerate(named) if last), 0) + 1
    names = "::".join(name for name, _ in named[:path])
    return names or symbol, [name for name, last in named[path:] if last]


def _named(symbol: str) -> Iterator[tuple[str, bool]]:
    """Yield the names in a mangled name, and whether each is the last one of its path."""
    at = 0
    while found := _NAME.search(symbol, at):
        at = found.end() + int(found[1])
        name = symbol[found.end() : at]
        if not name.startswith("_GLOBAL__N_"):
            yield name, not symbol[at : at + 1].isdigit()
