"""The verbs that marking writes into a kernel's source: ranges of calls inside expressions, of
iterations, of functions, and of the whole kernel.

A range around a call opens when the call's last argument is evaluated and closes when the call has
returned, so the range holds the call and not the arithmetic of its arguments::

    x = tl.load(p, mask=m)      becomes      x = closed(tl.load(opened(p, "tl.load"), mask=m))

Calls nest, so the open ranges are a stack. A kernel is traced, or interpreted, by one thread.
"""

from __future__ import annotations

import threading

from ikp.backends.triton.gpu_targets import NVIDIA
from ikp.errors import KernelError
from ikp.probing import Untyped
from ikp.verbs.dsl import DslValue
from ikp.verbs.ranges import init, range

__all__ = [
    "by_hand",
    "closed",
    "init",
    "iteration",
    "leave",
    "opened",
    "passed",
    "range",
    "whole",
]


class _Open(threading.local):
    """The ranges that are open in the code being traced."""

    def __init__(self) -> None:
        self.calls: list[range] = []
        self.functions: dict[str, range] = {}


_open = _Open()


def opened(value: DslValue, name: object, _semantic: Untyped = None) -> DslValue:
    """Open the range of the enclosing call, and return ``value``."""
    opening = range(name, _semantic=_semantic)
    opening.__enter__()
    _open.calls.append(opening)
    return value


def closed(*values: DslValue, _semantic: Untyped = None) -> DslValue:
    """Close the range that was opened last, and return the last of ``values``."""
    _open.calls.pop().__exit__(None, None, None)
    return values[-1]


def whole(name: object, _semantic: Untyped = None) -> None:
    """Open the range of the kernel. In a compiled kernel, ``finish`` ends and records it."""
    if _semantic is None:  # interpreted
        opening = range(name)
        opening.__enter__()
        _open.functions[_text(name)] = opening
        return
    from ikp.backends.triton.adapter import ForTarget, compiling

    dsl = compiling(_semantic)
    _open.functions.pop(_text(name), None)
    if isinstance(dsl, ForTarget) and dsl.recording("range"):
        dsl.store_whole(dsl.region(name, "range"))


def leave(name: object, _semantic: Untyped = None) -> None:
    """Close the range of a function, at one of its exits.

    A compiled kernel's range is not open here: ``whole`` has asked the kernel's finish for it.
    """
    if opening := _open.functions.get(_text(name)):
        opening.__exit__(None, None, None)


def passed(value: DslValue, name: object, _semantic: Untyped = None) -> DslValue:
    """Close the range of a function that returns ``value``, and return ``value``."""
    leave(name, _semantic)
    return value


def by_hand(file: object, _semantic: Untyped = None) -> None:
    """Ask for the IR in a file, by a comment in the kernel's IR that ``_by_hand`` finds."""
    import triton.language as tl

    if _semantic.builder.options.backend_name != NVIDIA:
        raise KernelError(
            "ttgir= places records in kernels for NVIDIA GPUs, and this one is compiled for "
            "others. Leave it out: the kernel's source is marked then."
        )
    code = f"// ikp.by_hand {_text(file)}\nmov.u32 $0, 0;"
    tl.inline_asm_elementwise(code, "=r", [], tl.int32, is_pure=False, pack=1, _semantic=_semantic)


class iteration(range):  # noqa: N801 - a verb, as `range` is
    """The range of one iteration; its payload is the loop's variable, if that fits in 32 bits."""

    def __init__(
        self, name: object, variable: DslValue = None, *, _semantic: Untyped = None
    ) -> None:
        super().__init__(name, _narrow(variable, _semantic), _semantic=_semantic)


for _verb in (opened, closed, whole, leave, passed, by_hand):
    setattr(_verb, "__triton_builtin__", True)  # noqa: B010 - functions have no such attribute


def _text(name: object) -> str:
    return str(getattr(name, "value", name))


def _narrow(value: DslValue, semantic: Untyped) -> DslValue:
    """Return an integer in 32 bits; None for other values, and for constants that do not fit."""
    constant = getattr(value, "value", value)
    if isinstance(constant, int):
        return constant if -(1 << 31) <= constant < 1 << 31 else None
    if semantic is None:  # interpreted: a tensor of one element
        return _narrow(int(value.handle.data.reshape(-1)[0]), None) if value is not None else None
    import triton.language as tl

    if isinstance(value, tl.tensor) and not value.type.is_block() and value.dtype.is_int():
        return semantic.cast(value, tl.int32) if value.dtype.primitive_bitwidth > 32 else value
    return None
