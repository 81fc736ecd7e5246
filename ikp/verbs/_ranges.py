"""What several verbs do with ranges: open them, close them, compare their regions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ikp.errors import KernelError
from ikp.verbs.dsl import (
    Dsl,
    OpenRange,
    Payload,
    Region,
    Unrecorded,
    find_place,
    find_region,
    stored_at,
)


def open_ranges(dsl: Dsl, ctx: Any, verb: str) -> tuple[OpenRange, ...]:
    """Return the open ranges of the context that a verb is given.

    Raises:
        KernelError: it is no context.
    """
    ranges = dsl.ranges(ctx)
    if ranges is None or any(each.opened is not None for each in ranges):
        raise KernelError(
            f"the first argument of ikp.{verb} is the context that ikp.init returned. For one line "
            f"with no context, use: with ikp.range(name): ..."
        )
    return ranges


def open_range(dsl: Dsl, region: Any, payload: Any, verb: str, *, never: bool = False) -> OpenRange:
    """Return a range that begins here; ``never`` says that it is not to be recorded.

    Raises:
        KernelError: an argument can't be used.
    """
    find_region(dsl, region, verb)  # refuse bad arguments where the range opens
    given = dsl.payload(payload, verb)
    if dsl.recording(verb) and not never:
        return dsl.open(region, payload, given)
    return dsl.unrecorded(region, payload, given)


def make_token(dsl: Dsl, ctx: Any, region: Any, payload: Any, verb: str) -> Any:
    """Return the token of a range that begins here, or of none where ``no_token`` asks.

    Raises:
        KernelError: an argument can't be used.
    """
    open_ranges(dsl, ctx, verb)
    find_region(dsl, region, verb)
    given = dsl.payload(payload, verb)
    if dsl.recording(verb):
        opened = dsl.token(region, payload, given, opened=verb == "start_async")
    else:
        opened = replace(dsl.unrecorded(region, payload, given), opened=Unrecorded("token"))
    return dsl.context((opened,))


def close_range(
    dsl: Dsl, opened: OpenRange, payload: Any, where_index: tuple[Any, Any], verb: str
) -> None:
    """Record a range that ends here.

    Raises:
        KernelError: an argument can't be used.
    """
    place = find_place(dsl, *where_index, verb)
    replaced = dsl.plain(payload) is not None
    given = dsl.payload(payload, verb) if replaced else None
    if not dsl.recording(verb):
        return
    kept: Payload = given or dsl.payload(opened.payload, verb)
    at = stored_at(dsl, place, opened.opened)
    dsl.store_range(dsl.region(opened.region, verb), opened.start, kept, at)


def opened_region(dsl: Dsl, opened: OpenRange, verb: str) -> Region:
    """Return the region of an open range, as far as it is known now."""
    if isinstance(opened.region, Unrecorded):
        return Region(None)
    return dsl.region(opened.region, verb)


def same_region(opened: Region, closed: Region) -> bool:
    """Return whether a range may end that was opened with one region and is closed with another."""
    known = opened.number is not None and closed.number is not None
    return opened.number == closed.number if known else True  # the rest is known only at run time


def shown(dsl: Dsl, region: Any) -> str:
    """Return a region as messages show it."""
    return repr(dsl.plain(region))
