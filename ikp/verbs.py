"""The verbs: what kernels of every DSL call as ``ikp.range``, ``ikp.start``, ...

One function per verb, for all languages; what differs is in each language's ``Dsl``. A verb finds
its language by how it is called, in this order (docs/decisions/0008):

1. Triton and Gluon hand ``_semantic`` to functions marked ``__triton_builtin__``.
2. CuTe runs the kernel's Python while its MLIR context is open.
3. Triton's interpreter runs the kernel's Python, and knows which program it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import TracebackType
from typing import Any, TypeVar

from ikp.backends.dsl import Dsl, OpenRange, Payload, Region, find_place, find_region
from ikp.errors import KernelError

_Verb = TypeVar("_Verb", bound=Callable[..., Any])


def _dsl(semantic: Any, verb: str) -> Dsl:
    """Return the adapter of the language whose code calls a verb."""
    if semantic is not None:
        compiled: Dsl = _adapter("ikp.backends.triton").compiling(semantic)
        return compiled
    if "cutlass" in sys.modules:
        cute = _adapter("ikp.backends.cute.traced")
        if cute.tracing():
            traced: Dsl = cute.Traced(verb)
            return traced
    if "triton" in sys.modules:
        triton = _adapter("ikp.backends.triton.interpreted")
        if triton.interpreting():
            interpreted: Dsl = triton.INTERPRETED
            return interpreted
    raise KernelError(
        f"ikp.{verb} is called outside a kernel. Call it in a function marked @triton.jit, "
        f"@gluon.jit or @cute.kernel, while that kernel is launched."
    )


def _adapter(module: str) -> Any:
    return import_module(module)  # waits where another thread is importing it: sys.modules does not


def _builtin(verb: _Verb) -> _Verb:
    verb.__triton_builtin__ = True  # type: ignore[attr-defined]
    return verb


@_builtin
def init(prof: Any, _semantic: Any = None) -> Any:
    """Start recording in this kernel: call once, at its top.

    Args:
        prof: what ``prof.buffer(label)`` returned; None compiles every verb to nothing.

    Returns:
        The context that the functional verbs take and return.

    Raises:
        KernelError: called twice, outside a kernel, or with something else.
    """
    dsl = _dsl(_semantic, "init")
    dsl.init(prof)
    return dsl.context(())


@_builtin
def start(ctx: Any, region: Any = None, payload: Any = None, _semantic: Any = None) -> Any:
    """Open a range; ranges opened this way close in reverse order.

    Args:
        ctx: the current context.
        region: name known at compile time, or a scalar integer named on the host.
        payload: one number of at most 32 bits, known now; shown with the range.

    Returns:
        The new context: assign it, ``ctx = ikp.start(ctx, "load")``.

    Raises:
        KernelError: no ``init`` came before, or an argument can't be used.
    """
    dsl = _dsl(_semantic, "start")
    ranges = _ranges(dsl, ctx, "start")
    if not dsl.recording("start"):
        return ctx
    return dsl.context((*ranges, _open(dsl, region, payload, "start")))


@_builtin
def end(
    ctx: Any,
    region: Any = None,
    payload: Any = None,
    where: Any = None,
    index: Any = None,
    _semantic: Any = None,
) -> Any:
    """Close the range opened last and record it.

    Args:
        ctx: the current context.
        region: the region that ``start`` was given.
        payload: replaces the payload given to ``start``.
        where: record only where this scalar is true; left out, always.
        index: where in the warp's slot to put the record; left out, after the last.

    Returns:
        The new context.

    Raises:
        KernelError: no range is open, or the one opened last is another.
    """
    dsl = _dsl(_semantic, "end")
    ranges = _ranges(dsl, ctx, "end")
    if not dsl.recording("end"):
        return ctx
    closed = dsl.region(region, "end")
    if not ranges:
        raise KernelError(
            f"ikp.end({_name(dsl, region)}) has no open range. Write ctx = ikp.start(ctx, name) "
            f"before it, in the same loop iteration, and keep the context that each verb returns."
        )
    if not _same(dsl.region(ranges[-1].region, "end"), closed):
        raise KernelError(
            f"ikp.end({_name(dsl, region)}) meets the open range {_name(dsl, ranges[-1].region)}: "
            f"ranges close in reverse order. Use ikp.start_async and ikp.end_async for ranges that "
            f"overlap."
        )
    _close(dsl, ranges[-1], payload, (where, index), "end")
    return dsl.context(ranges[:-1])


@_builtin
def instant(
    ctx: Any, *args: Any, where: Any = None, index: Any = None, _semantic: Any = None
) -> Any:
    """Record a point in time: ``ikp.instant(name, payload)``, or with ``ctx`` before the name.

    Args:
        ctx: may be left out.
        args: the region (name or scalar integer) and optionally one number of at most 32 bits.
        where: record only where this scalar is true; left out, always.
        index: where in the warp's slot to put the record; left out, after the last.

    Returns:
        The context, unchanged.

    Raises:
        KernelError: no ``init`` came before, or an argument can't be used.
    """
    dsl = _dsl(_semantic, "instant")
    if dsl.ranges(ctx) is None:
        args, ctx = (ctx, *args), None
    if not 1 <= len(args) <= 2:
        raise KernelError(
            f"ikp.instant takes a region and at most one payload, not {len(args)} values."
        )
    if dsl.recording("instant"):
        payload = dsl.payload(args[1] if len(args) == 2 else None, "instant")
        region = find_region(dsl, args[0], "instant")
        place = find_place(dsl, where, index, "instant")
        if place is not None:
            dsl.store_instant(region, payload, place)
    return ctx


@_builtin
def start_async(ctx: Any, region: Any = None, payload: Any = None, _semantic: Any = None) -> Any:
    """Open a range that may overlap others and close in a later iteration.

    Args:
        ctx: the current context.
        region: name known at compile time, or a scalar integer named on the host.
        payload: one number of at most 32 bits, known now; shown with the range.

    Returns:
        A token for ``end_async``. It can be carried through loops like any value.

    Raises:
        KernelError: no ``init`` came before, or an argument can't be used.
    """
    dsl = _dsl(_semantic, "start_async")
    _ranges(dsl, ctx, "start_async")
    if not dsl.recording("start_async"):
        return dsl.context(())
    return dsl.context((_open(dsl, region, payload, "start_async"),))


@_builtin
def end_async(
    ctx: Any,
    token: Any = None,
    payload: Any = None,
    where: Any = None,
    index: Any = None,
    _semantic: Any = None,
) -> Any:
    """Close the range that ``token`` stands for and record it.

    Args:
        ctx: the current context.
        token: what ``start_async`` returned.
        payload: replaces the payload given to ``start_async``.
        where: record only where this scalar is true; left out, always.
        index: where in the warp's slot to put the record; left out, after the last.

    Returns:
        The context, unchanged.

    Raises:
        KernelError: ``token`` is not a token.
    """
    dsl = _dsl(_semantic, "end_async")
    if not dsl.recording("end_async"):
        return ctx
    opened = dsl.ranges(token)
    if opened is None or len(opened) != 1:
        raise KernelError(
            "ikp.end_async takes (ctx, token): the token that ikp.start_async returned."
        )
    _close(dsl, opened[0], payload, (where, index), "end_async")
    return ctx


@_builtin
def role(name: Any, _semantic: Any = None) -> None:
    """Name what this warp does, such as ``"producer"``: its track and its numbers carry the name.

    Args:
        name: known at compile time. Call it once per warp, in the code that only the warps of this
            role run; a later call replaces the name.

    Raises:
        KernelError: no ``init`` came before, or the name is not a string.
    """
    dsl = _dsl(_semantic, "role")
    if not isinstance(dsl.plain(name), str):
        raise KernelError(
            f"ikp.role needs a name, a string known when the kernel is compiled, not {name!r}."
        )
    if dsl.recording("role"):
        dsl.store_role(dsl.region(name, "role"))


@_builtin
def finish(ctx: Any = None, _semantic: Any = None) -> Any:
    """Write exact counts and a second clock anchor; call last.

    Triton and Gluon kernels need not call it: ``ikp`` puts the same at every exit of the compiled
    kernel. A CuTe kernel without it can't tell how many records a full slot dropped, and neither
    can a Triton kernel where another tool holds Triton's compiler hook. Returns the context,
    unchanged.
    """
    dsl = _dsl(_semantic, "finish")
    if dsl.recording("finish"):
        dsl.finish()
    return ctx


class range:
    """A range as a context manager: ``with ikp.range("load", k): ...``.

    Args:
        region: name known at compile time, or a scalar integer named on the host.
        payload: one number of at most 32 bits, read when the range opens.
        where: record only where this scalar is true, such as ``k % 8 == 0``; left out, always.
        index: where in the warp's slot to put the record, as an integer; left out, after the last.
            Two records with one index overwrite each other.

    Raises:
        KernelError: no ``init`` came before, or an argument can't be used.
    """

    __triton_builtin__ = True

    def __init__(
        self,
        region: Any,
        payload: Any = None,
        *,
        where: Any = None,
        index: Any = None,
        _semantic: Any = None,
    ) -> None:
        self._dsl = _dsl(_semantic, "range")
        self._region, self._payload, self._place = region, payload, (where, index)
        self._opened: OpenRange | None = None

    def __enter__(self) -> None:
        if self._dsl.recording("range"):
            self._opened = _open(self._dsl, self._region, self._payload, "range")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._opened is not None:
            _close(self._dsl, self._opened, None, self._place, "range")


def _ranges(dsl: Dsl, ctx: Any, verb: str) -> tuple[OpenRange, ...]:
    ranges = dsl.ranges(ctx)
    if ranges is None:
        raise KernelError(
            f"the first argument of ikp.{verb} is the context that ikp.init returned. For one line "
            f"with no context, use: with ikp.range(name): ..."
        )
    return ranges


def _open(dsl: Dsl, region: Any, payload: Any, verb: str) -> OpenRange:
    find_region(dsl, region, verb)  # refuse bad arguments where the range opens
    return dsl.open(region, payload, dsl.payload(payload, verb))


def _close(
    dsl: Dsl, opened: OpenRange, payload: Any, where_index: tuple[Any, Any], verb: str
) -> None:
    place = find_place(dsl, *where_index, verb)
    if place is None:
        return
    given: Payload = dsl.payload(opened.payload if dsl.plain(payload) is None else payload, verb)
    dsl.store_range(dsl.region(opened.region, verb), opened.start, given, place)


def _same(opened: Region, closed: Region) -> bool:
    known = opened.number is not None and closed.number is not None
    return opened.number == closed.number if known else True  # the rest is known only at run time


def _name(dsl: Dsl, region: Any) -> str:
    return repr(dsl.plain(region))
