"""Names of kernels as people write them."""

from __future__ import annotations

import ctypes
import re
from functools import cache

_LONGEST = 80


@cache
def readable(name: str) -> str:
    """Return a kernel's name without what compilers add: ``at::native::softmax_warp_forward``."""
    text = _demangled(name) if name.startswith("_Z") else name
    text = text.replace("(anonymous namespace)::", "").removeprefix("void ")
    text = _without_arguments(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _without_arguments(text: str) -> str:
    """Cut template's and function's arguments off a name."""
    depth, made = 0, ""
    for each in text:
        if each == "(" and not depth:
            break
        depth -= each == ">"
        made += each if not depth and each not in "<>" else ""
        depth += each == "<"
    return re.sub(r"\s+", " ", made).strip() or text


@cache
def _library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libstdc++.so.6")
    except OSError:  # names stay as the compiler wrote them
        return None


def _demangled(name: str) -> str:
    library = _library()
    if library is None:
        return name
    demangle = getattr(library, "__cxa_demangle")
    demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    made = demangle(name.encode(), None, None, ctypes.byref(status))
    if not made:
        return name
    try:
        return ctypes.string_at(made).decode()
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(made))
