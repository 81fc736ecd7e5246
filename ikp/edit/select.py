"""``select`` and ``cut``: a trace with only some launches, blocks, warps, SMs, regions, or a window
of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ikp.core.rows import take_rows
from ikp.core.trace import AnyTrace, Column, RowTable, Trace, row_count, row_tables
from ikp.core.warps import first_start, joined_warps
from ikp.edit._parts import Bools, needs_timeline, noted, take_launches, take_slots
from ikp.errors import UsageError
from ikp.patterns import Names, choose

Numbers = int | Iterable[int]
"""A choice of numbers: one, or several (a ``range``, a list, ...)."""


def select(
    trace: AnyTrace,
    *,
    region: Names | None = None,
    launch: Names | Numbers | None = None,
    rank: Numbers | None = None,
    role: Names | None = None,
    block: Numbers | None = None,
    warp: Numbers | None = None,
    sm: Numbers | None = None,
    kind: str | None = None,
    window_ns: tuple[float | None, float | None] | None = None,
    where: NDArray[Any] | None = None,
) -> AnyTrace:
    """Return the part of a trace that meets every condition given.

    Launches and warps that are not chosen are left out. Chosen warps stay, though none of their
    events may be left: shares are of the time that they ran.

    Args:
        trace: the trace to choose from.
        region: names of regions: a name, a pattern as the shell has them (``*``, ``?``, ``[ab]``),
            several, or a function of a name. A name that is there exactly as written goes first.
        launch: labels of launches, or numbers, which count all launches of the trace from 0.
        rank: ranks of the processes that launched them.
        role: roles of warps, as ``ikp.role`` gave them; ``""`` for those without.
        block: linear block ids, ``x + grid_x * (y + grid_y * z)``.
        warp: warps in their block.
        sm: SMs.
        kind: ``"range"`` or ``"instant"``.
        window_ns: events that lie in this time, if only in part, counted from the first warp's
            start as viewers do: ``(begin, end)`` in nanoseconds, None for no bound.
        where: one bool per event.

    Raises:
        UsageError: a condition can't be read, nothing at all meets it, or ``window_ns`` or
            ``where`` is given and there is no timeline.
    """
    given = {**locals()}
    del given["trace"]
    asked = {name: value for name, value in given.items() if value is not None}
    if window_ns is not None or where is not None:
        needs_timeline(
            trace, "window_ns and where choose events", "Choose regions, warps, launches."
        )
    tables = row_tables(trace)
    chosen = [_rows(trace, rows, region, kind) for rows in tables]
    chosen[0] &= _events(trace, window_ns, first_start(trace), where)
    slots, others = _warps(trace, role, block, warp, sm)
    found = [one & slots[rows.slot] for one, rows in zip(chosen, tables, strict=True)]
    result = take_slots(take_rows(trace, found), slots, others)
    if launch is not None or rank is not None:
        result = take_launches(result, _launches(trace, launch, rank))
    before, after = (sum(map(len, row_tables(one))) for one in (trace, result))
    return noted(result, f"select({_text(asked)}) kept {after} of {before} {row_count(trace)[1]}s")


def _text(asked: Mapping[str, object]) -> str:
    def text(value: object) -> str:
        if isinstance(value, np.ndarray):
            return "..."
        return getattr(value, "__qualname__", None) or repr(value)

    return ", ".join(f"{name}={text(value)}" for name, value in asked.items())


def _rows(trace: Trace, rows: RowTable, region: Names | None, kind: str | None) -> Bools:
    """Return which rows of a table are of the regions and the kind."""
    found = np.ones(len(rows), bool)
    if region is not None:
        found &= _named([one.name for one in trace.regions], region, "region")[rows.region]
    if kind is not None:
        if kind not in _KINDS:
            raise UsageError(f"kind={kind!r} is unknown: use 'range' or 'instant'.")
        found &= rows.kind == _KINDS[kind]
    return found


def _events(
    trace: Trace,
    window_ns: tuple[float | None, float | None] | None,
    begin: int,
    where: Column | None,
) -> Bools:
    events = trace.events
    found = np.ones(len(events), bool)
    if window_ns is not None:
        low, high = _bounds(window_ns)
        found &= (events.end_ns - begin >= low) & (events.start_ns - begin <= high)
    if where is not None:
        found &= _mask(where, len(events))
    return found


_KINDS = {"range": 1, "instant": 2}


def _bounds(window_ns: tuple[float | None, float | None]) -> tuple[float, float]:
    try:
        begin, end = window_ns
        low, high = -np.inf if begin is None else begin, np.inf if end is None else end
        if low <= high:
            return low, high
    except (TypeError, ValueError):
        pass
    raise UsageError(
        f"window_ns={window_ns!r} is no window: give (begin, end) in nanoseconds from the start of "
        "the trace, None for no bound."
    )


def _mask(where: Column, count: int) -> Bools:
    mask = np.asarray(where)
    if mask.dtype != bool or mask.shape != (count,):
        raise UsageError(
            f"where has shape {mask.shape} and type {mask.dtype}: give one bool for each of the "
            f"{count} events."
        )
    return mask


def _warps(
    trace: Trace,
    role: Names | None,
    block: Numbers | None,
    warp: Numbers | None,
    sm: Numbers | None,
) -> tuple[Bools, Bools]:
    """Return which slots are chosen, and which of the warps without a slot."""
    slots = joined_warps([trace.slots, trace.others])
    chosen = np.ones(len(slots), bool)
    if role is not None:
        chosen &= _named(list(trace.roles), role, "role")[slots.role]
    for name, wanted in (("block", block), ("warp", warp), ("sm", sm)):
        if wanted is not None:
            column = getattr(slots, name)
            chosen &= np.isin(column, _numbers(name, wanted))
            if not chosen.any() and len(slots):
                some = ", ".join(map(str, np.unique(column)[:8].tolist()))
                raise UsageError(f"no warp has {name}={wanted!r}; the trace has {some}, ...")
    return chosen[: len(trace.slots)], chosen[len(trace.slots) :]


def _launches(trace: Trace, wanted: Names | Numbers | None, rank: Numbers | None) -> list[int]:
    chosen = np.ones(len(trace.launches), bool)
    if wanted is not None:
        chosen &= _wanted(trace, wanted)
    if rank is not None:
        ranks = [one.rank for one in trace.launches]
        found = np.isin([-1 if one is None else one for one in ranks], _numbers("rank", rank))
        if ranks and not found.any():
            some = ", ".join(map(str, dict.fromkeys(ranks)))
            raise UsageError(f"no launch has rank={rank!r}; the trace has {some}.")
        chosen &= found
    return np.flatnonzero(chosen).tolist()


def _wanted(trace: Trace, wanted: Names | Numbers) -> Bools:
    """Return which launches have a label or a number."""
    labels = [one.label for one in trace.launches]
    if isinstance(wanted, str) or callable(wanted):
        return _named(labels, wanted, "launch")
    several: list[Any] = list(wanted) if isinstance(wanted, Iterable) else [wanted]
    if any(isinstance(one, str) for one in several):
        return _named(labels, several, "launch")
    found = np.isin(np.arange(len(labels)), _numbers("launch", several))
    if not found.any():
        raise UsageError(f"no launch has number {wanted!r}; the trace has 0 to {len(labels) - 1}.")
    return found


def _numbers(name: str, wanted: Numbers) -> NDArray[np.int64]:
    try:
        values = [wanted] if isinstance(wanted, (int, np.integer)) else list(wanted)
        return np.array([value.__index__() for value in values], np.int64)
    except (TypeError, AttributeError) as error:
        raise UsageError(f"{name}={wanted!r} is neither an integer nor several.") from error


def _named(names: list[str], wanted: Names, what: str) -> Bools:
    return np.array(choose(names, wanted, what), bool)


def cut(trace: AnyTrace, begin_ns: float | None, end_ns: float | None) -> AnyTrace:
    """Return the launches, warps and events that ran in a window, if only in part.

    ``select(window_ns=...)`` keeps warps that ran at other times, since shares are of the time that
    warps ran; ``cut`` leaves them out, and launches with them. Events that reach across the
    window's ends stay whole. Times count from the first warp's start, as viewers show them.

    Args:
        trace: the trace.
        begin_ns: the window's begin in nanoseconds, None for the trace's.
        end_ns: its end.

    Raises:
        UsageError: nothing ran in the window, it ends before it begins, or there is no timeline.
    """
    return cut_read(trace, begin_ns, end_ns, len(trace.events))


def cut_read(
    trace: AnyTrace, begin_ns: float | None, end_ns: float | None, events: int
) -> AnyTrace:
    """Return the same of a trace of so many events, of which all are there that may be of it."""
    low = -np.inf if begin_ns is None else begin_ns
    high = np.inf if end_ns is None else end_ns
    left = select(trace, window_ns=(begin_ns, end_ns))
    if events != len(trace.events):
        what = f"select(window_ns={(begin_ns, end_ns)}) kept {len(left.events)} of {events} events"
        left = noted(replace(left, provenance=trace.provenance), what)
    warps, zero = joined_warps([left.slots, left.others]), first_start(left)
    there = (warps.end_ns - zero >= low) & (warps.start_ns - zero <= high)
    if not there.any():
        lasts = int(warps.end_ns.max()) - zero if len(warps) else 0
        raise UsageError(
            f"nothing ran from {low:,.0f} to {high:,.0f} ns: the trace lasts {lasts:,} ns."
        )
    left = take_slots(left, *np.split(there, [len(left.slots)]))
    return take_launches(left, np.unique(warps.launch[there]).tolist())
