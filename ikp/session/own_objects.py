"""``lie_apart``: has Python objects of ikp's threads allocated apart from those of the program.

CuPy passes cuFFT the text of a callback's name, frees it, and cuFFT reads it later, without
Python's lock. Python's threads share one allocator, which gives a freed block out again at once: so
an object of any other thread may lie there by then.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from ikp.compiling import CFile, CompileError

OWN: Final = CFile(Path(__file__).with_suffix(".c"), "libikp-own-objects.so")
_READ_FREED: Final = ("cupy",)
"""Packages with libraries that read what is freed. Without them, no allocation pays for it."""
_FUNCTIONS: Final = (
    *("_PyMem_GetCurrentAllocatorName", "PyMem_GetAllocator", "PyMem_SetAllocator"),
    *("PyMem_RawMalloc", "PyMem_RawCalloc"),
)
"""Functions of Python that the library calls. The first is not public: a version may lack it."""
_made: list[ctypes.PyDLL | None] = []


def lie_apart() -> None:
    """Have objects that this thread makes lie apart, in a program that needs it.

    It is for threads of ikp's own. Nothing is done where Python has another allocator than its
    default one (a debugger's, ``tracemalloc``'s, ``PYTHONMALLOC``'s), or the library can't be
    compiled.
    """
    if not any(name in sys.modules for name in _READ_FREED):
        return
    if not _made:
        _made.append(_begun())
    if _made[0] is not None:
        _made[0].ikp_own()


def _begun() -> ctypes.PyDLL | None:
    """Put the library before Python's allocator; return it, None where that can't be."""
    with suppress(OSError, CompileError):
        library = ctypes.PyDLL(str(OWN.library()))  # which keeps Python's lock
        found = [getattr(ctypes.pythonapi, name, None) for name in _FUNCTIONS]
        if library.ikp_begin(*(each and ctypes.cast(each, ctypes.c_void_p) for each in found)):
            return library
    return None
