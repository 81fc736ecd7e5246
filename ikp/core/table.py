"""A trace as one table, a row per event: what DataFrames, CSV and Parquet files have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import Kind
from ikp.core.args import ArgColumn, arg_column

if TYPE_CHECKING:
    from ikp.core.trace import Column, Trace


@dataclass(frozen=True, slots=True, eq=False)
class Categories:
    """A column of names: row i is ``names[codes[i]]``. No name stands there twice."""

    codes: NDArray[np.int32]
    names: list[str]


COLUMNS = (
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
    "region",
    "kind",  # "range" | "instant"
    "start_ns",  # Unix time
    "end_ns",
    "dur_ns",
    "ticks",  # of the launch's clock
    "payload",  # float64, NaN where there is none
)
"""The columns of every trace; its arguments follow."""


def event_table(trace: Trace) -> dict[str, Column | Categories | ArgColumn]:
    """Return ``COLUMNS`` and the trace's arguments, one row per event, in the trace's order."""
    slots, events = trace.slots, trace.events
    launch, block = slots.launch[events.slot], slots.block[events.slot]
    x, y, z = _block_index(trace, launch, block)
    columns = (
        launch,
        categories(launch, [each.label for each in trace.launches]),
        _ranks(trace).take(launch),
        block,
        x,
        y,
        z,
        slots.warp[events.slot],
        slots.sm[events.slot],
        categories(slots.role[events.slot], list(trace.roles)),
        categories(events.region, [each.name for each in trace.regions]),
        _kinds(events.kind),
        events.start_ns,
        events.end_ns,
        events.end_ns - events.start_ns,
        events.ticks,
        trace.payload,
    )
    return {**dict(zip(COLUMNS, columns, strict=True)), **trace.args}


def categories(index: Column, names: list[str]) -> Categories:
    """Return the names at the given indices; equal names at several indices become one."""
    distinct = {name: code for code, name in enumerate(dict.fromkeys(names))}
    code = np.array([distinct[name] for name in names], np.int32)
    return Categories(code[index], list(distinct))


def _ranks(trace: Trace) -> ArgColumn:
    return arg_column("rank", [each.rank for each in trace.launches], len(trace.launches))


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
