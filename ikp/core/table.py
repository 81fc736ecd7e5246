"""A trace as one table of named columns: a row per event, or per total where it has totals.

DataFrames, CSV and Parquet files are made from this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import Kind
from ikp.core.args import ArgColumn
from ikp.core.rows import shares
from ikp.errors import UsageError

if TYPE_CHECKING:
    from ikp.core.trace import Column, Trace


@dataclass(frozen=True, slots=True, eq=False)
class Categories:
    """A column of names: row i is ``names[codes[i]]``. No name occurs twice in ``names``."""

    codes: NDArray[np.int32]
    names: list[str]


_WARP_COLUMNS = (
    "launch",  # index into Trace.launches
    "label",  # of the launch
    "rank",  # of the process that launched it, missing where it has none
    "block",  # linear
    "block_x",
    "block_y",
    "block_z",
    "warp",  # in its block
    "sm",
    "role",  # of the warp, "" where it has none
)
"""The columns that say which warp a row is of."""
COLUMNS = (
    *_WARP_COLUMNS,
    "region",
    "kind",  # "range" | "instant"
    "start_ns",  # Unix time
    "end_ns",
    "dur_ns",
    "ticks",  # end - start in ticks of the launch's clock, whose unit "clock" says
    "clock",  # "cycles" (of the SM), "globaltimer" or "host" (both ns)
    "payload",  # float64, NaN where there is none
)
"""The columns of every timeline; its arguments follow."""
TOTAL_COLUMNS = (
    *_WARP_COLUMNS,
    "region",
    "kind",  # "range" | "instant": of the summed records
    "count",
    "ticks",  # of the launch's clock; 0 of instants
    "clock",  # "cycles" (of the SM), "globaltimer" or "host" (both ns): the unit of ticks
    "total_ns",
    "share",  # float64, of the time that the warp ran; NaN where there is none
)
"""The columns of a trace of totals."""

Table = dict[str, "Column | Categories | ArgColumn"]


def trace_table(trace: Trace) -> Table:
    """Return the rows of a trace: its events, or its totals.

    Raises:
        UsageError: it has both.
    """
    if len(trace.totals) and len(trace.events):
        raise UsageError(
            "the trace holds events and totals, which have no columns in common: one table can't "
            "hold both. Take the launches of one mode, with ikp.edit.select(trace, launch=...)."
        )
    summed = bool(trace.launches) and all(launch.mode == "totals" for launch in trace.launches)
    return _total_table(trace) if len(trace.totals) or summed else _event_table(trace)


def _event_table(trace: Trace) -> Table:
    """Return ``COLUMNS`` and the trace's arguments, one row per event, in the trace's order."""
    events = trace.events
    columns = (
        *_warp_columns(trace, events.slot),
        categories(events.region, [each.name for each in trace.regions]),
        _kinds(events.kind),
        events.start_ns,
        events.end_ns,
        events.end_ns - events.start_ns,
        events.ticks,
        _clocks(trace, events.slot),
        trace.payload,
    )
    return {**dict(zip(COLUMNS, columns, strict=True)), **trace.args}


def _total_table(trace: Trace) -> Table:
    """Return ``TOTAL_COLUMNS``, one row per total, in the trace's order."""
    totals = trace.totals
    columns = (
        *_warp_columns(trace, totals.slot),
        categories(totals.region, [each.name for each in trace.regions]),
        _kinds(totals.kind),
        totals.count,
        totals.ticks,
        _clocks(trace, totals.slot),
        totals.total_ns,
        shares(trace),
    )
    return dict(zip(TOTAL_COLUMNS, columns, strict=True))


def _warp_columns(trace: Trace, slot: Column) -> tuple[Column | Categories | ArgColumn, ...]:
    slots = trace.slots
    launch, block = slots.launch[slot], slots.block[slot]
    x, y, z = _block_index(trace, launch, block)
    return (
        launch,
        categories(launch, [each.label for each in trace.launches]),
        _ranks(trace).take(launch),
        block,
        x,
        y,
        z,
        slots.warp[slot],
        slots.sm[slot],
        categories(slots.role[slot], list(trace.roles)),
    )


def categories(index: Column, names: list[str]) -> Categories:
    """Return the names at the given indices; equal names at several indices become one."""
    distinct = {name: code for code, name in enumerate(dict.fromkeys(names))}
    code = np.array([distinct[name] for name in names], np.int32)
    return Categories(code[index], list(distinct))


def _ranks(trace: Trace) -> ArgColumn:
    """Return each launch's rank, as int32 whether or not any has one."""
    ranks = [each.rank for each in trace.launches]
    values = np.array([rank or 0 for rank in ranks], np.int32)
    return ArgColumn(values, np.array([rank is not None for rank in ranks], bool))


def _clocks(trace: Trace, slot: Column) -> Categories:
    """Return the clock of each row's ticks."""
    return categories(trace.slots.launch[slot], [each.clock.kind for each in trace.launches])


def _kinds(kind: Column) -> Categories:
    known = [Kind.RANGE, Kind.INSTANT]
    code = np.zeros(max(known) + 1, np.int32)
    code[known] = np.arange(len(known))
    return Categories(code[kind], [each.name.lower() for each in known])


def _block_index(trace: Trace, launch: Column, block: Column) -> tuple[Column, Column, Column]:
    """Split linear block ids by the grid of each one's launch."""
    grids = np.array([each.grid for each in trace.launches], np.int32).reshape(-1, 3)
    width, height = grids[launch, 0], grids[launch, 1]
    return block % width, block // width % height, block // (width * height)
