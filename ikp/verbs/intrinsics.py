"""The functional verbs of kernels in every DSL: ``ikp.start``, ``ikp.end``, ``ikp.instant``, ...

One function per verb, for all languages; differences are in each language's ``Dsl``, which
``tracing`` finds.
"""

from __future__ import annotations

from typing import Any

from ikp.errors import KernelError
from ikp.verbs.off import Off
from ikp.verbs.ranges import (
    builtin,
    close_range,
    find_place,
    find_region,
    make_token,
    open_range,
    open_ranges,
    opened_region,
    same_region,
    shown,
    stored_at,
    tracing,
)


@builtin
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
    dsl = tracing(_semantic, "start")
    ranges = open_ranges(dsl, ctx, "start")
    dsl.check_source("start", ranges)
    return dsl.context((*ranges, open_range(dsl, region, payload, "start")))


@builtin
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
    dsl = tracing(_semantic, "end")
    ranges = open_ranges(dsl, ctx, "end")
    dsl.recording("end")
    dsl.check_source("end", ranges)
    closed = dsl.region(region, "end")
    if not ranges:
        raise KernelError(
            f"ikp.end({shown(dsl, region)}) has no open range. Write ctx = ikp.start(ctx, name) "
            f"before it, in the same loop iteration, and keep the context that each verb returns."
        )
    if not same_region(opened_region(dsl, ranges[-1], "end"), closed):
        raise KernelError(
            f"ikp.end({shown(dsl, region)}) meets the open range {shown(dsl, ranges[-1].region)}: "
            f"ranges close in reverse order. Use ikp.start_async and ikp.end_async for ranges that "
            f"overlap."
        )
    close_range(dsl, ranges[-1], payload, find_place(dsl, where, index, "end"), "end")
    return dsl.context(ranges[:-1])


@builtin
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
    dsl = tracing(_semantic, "instant")
    if isinstance(dsl, Off):
        return ctx
    if dsl.ranges(ctx) is None:
        args, ctx = (ctx, *args), None
    if not 1 <= len(args) <= 2:
        raise KernelError(
            f"ikp.instant takes a region and at most one payload, not {len(args)} values."
        )
    recording = dsl.recording("instant")
    payload = dsl.payload(args[1] if len(args) == 2 else None, "instant")
    region = find_region(dsl, args[0], "instant")
    place = find_place(dsl, where, index, "instant")
    if recording and place is not None:
        dsl.store_instant(region, payload, stored_at(dsl, place))
    return ctx


@builtin
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
    return make_token(tracing(_semantic, "start_async"), ctx, region, payload, "start_async")


@builtin
def no_token(ctx: Any, region: Any = None, payload: Any = None, _semantic: Any = None) -> Any:
    """Return the token of no range: a variable's first value, before a loop that opens ranges.

    ``end_async`` records nothing for it::

        token = ikp.no_token(ctx, "copy", 0)
        for k in range(n):
            ctx = ikp.end_async(ctx, token)
            token = ikp.start_async(ctx, "copy", k)

    Args:
        ctx: the current context.
        region: the region of the ranges that the variable is to hold.
        payload: a number of the type of their payload; left out where they have none.

    Returns:
        A token of the type of those that ``start_async`` returns for the same arguments.

    Raises:
        KernelError: no ``init`` came before, or an argument can't be used.
    """
    return make_token(tracing(_semantic, "no_token"), ctx, region, payload, "no_token")


@builtin
def end_async(
    ctx: Any,
    token: Any = None,
    payload: Any = None,
    where: Any = None,
    index: Any = None,
    _semantic: Any = None,
) -> Any:
    """Close the range of ``token`` and record it.

    Args:
        ctx: the current context.
        token: the result of ``start_async``.
        payload: replaces the payload given to ``start_async``.
        where: record only where this scalar is true; left out, always.
        index: where in the warp's slot to put the record; left out, after the last.

    Returns:
        The context, unchanged.

    Raises:
        KernelError: ``token`` is not a token.
    """
    dsl = tracing(_semantic, "end_async")
    if isinstance(dsl, Off):
        return ctx
    dsl.recording("end_async")
    opened = dsl.ranges(token)
    if opened is None or len(opened) != 1 or opened[0].opened is None:
        raise KernelError(
            "ikp.end_async takes (ctx, token): the token that ikp.start_async returned."
        )
    open_ranges(dsl, ctx, "end_async")
    place = find_place(dsl, where, index, "end_async")
    close_range(dsl, opened[0], payload, place, "end_async")
    return ctx


@builtin
def role(name: Any, _semantic: Any = None) -> None:
    """Name this warp's role, such as ``"producer"``: its track and its numbers carry the name.

    Args:
        name: known at compile time. Call it once per warp, in the code that only the warps of this
            role run; a later call replaces the name.

    Raises:
        KernelError: no ``init`` came before, or the name is not a string.
    """
    dsl = tracing(_semantic, "role")
    if not isinstance(dsl.plain(name), str):
        raise KernelError(
            f"ikp.role needs a name, a string known when the kernel is compiled, not {name!r}."
        )
    recording, region = dsl.recording("role"), dsl.region(name, "role")
    if recording:
        dsl.store_role(region)


@builtin
def finish(ctx: Any = None, _semantic: Any = None) -> Any:
    """Write exact counts and a second clock anchor; call last.

    Triton and Gluon kernels need not call it: ``ikp`` inserts the same code at every exit of the
    compiled kernel. A CuTe kernel without it can't report how many records a full slot dropped, and
    neither can a Triton kernel where a warning said that ikp's passes don't run.

    Args:
        ctx: may be left out; if it is given, ranges that it holds open are an error.

    Returns:
        The context, unchanged.

    Raises:
        KernelError: no ``init`` came before, or a range of the context is still open.
    """
    dsl = tracing(_semantic, "finish")
    if isinstance(dsl, Off):
        return ctx
    recording = dsl.recording("finish")
    if dsl.plain(ctx) is not None and (ranges := open_ranges(dsl, ctx, "finish")):
        names = ", ".join(shown(dsl, each.region) for each in ranges)
        raise KernelError(
            f"ikp.finish ends the kernel, and {names} is still open: a range that is not closed is "
            "not recorded. Write ctx = ikp.end(ctx, name) before it."
        )
    if recording:
        dsl.finish()
    return ctx
