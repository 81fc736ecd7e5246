"""Names of kernels as the driver has them, and as the source does."""

from __future__ import annotations

import ctypes
import re
from functools import cache

from ikp.backends.driver import _shortened as shortened

_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1")
_PART = re.compile(r"St|(\d+)")


@cache
def demangled(symbol: str) -> str:
    """Return a kernel's name with all its arguments; the symbol itself where nobody knows it."""
    if not symbol.startswith("_Z"):
        return symbol
    return next(filter(None, (_demangled(each, symbol) for each in _LIBRARIES)), symbol)


@cache
def readable(symbol: str) -> str:
    """Return a kernel's name with what fits of its template's arguments, by the symbol alone.

    Where something of them is left out, a hash stands for it.
    """
    name = demangled(symbol)
    if name.startswith("_Z"):
        return shortened.hashed(f"{_beginning(name)}<...>", name)
    return shortened.shortened(name)


def labels(symbol: str) -> list[str]:
    """Return what a kernel may be called, best first: another has the same arguments at times."""
    label = readable(symbol)
    return [label, shortened.hashed(label, demangled(symbol)), shortened.hashed(label, symbol)]


@cache
def bare(symbol: str) -> str:
    """Return a kernel's name without arguments: ``at::native::softmax_warp_forward``."""
    name = demangled(symbol)
    return _beginning(name) if name.startswith("_Z") else shortened.bare(name)


@cache
def _library(name: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name)
    except OSError:  # names stay as the compiler wrote them
        return None


def _demangled(library: str, symbol: str) -> str:
    """Return what a library of C++ makes of a symbol; "" for nothing.

    That of GCC refuses names of more than 1,024 characters, as some of CUTLASS's kernels have.
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


def _beginning(symbol: str) -> str:
    """Return the path that a mangled name begins with."""
    at, parts = len("_ZN") if symbol.startswith("_ZN") else len("_Z"), []
    while found := _PART.match(symbol, at):
        at = found.end()
        length = int(found[1] or 0)
        part = symbol[at : at + length] if length else "std"
        parts += [] if part.startswith("_GLOBAL__N_") else [part]
        at += length
    return "::".join(parts)[:60] or symbol[:60]
