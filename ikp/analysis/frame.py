"""A trace as a pandas DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import Kind
from ikp.errors import UsageError

if TYPE_CHECKING:
    import pandas

    from ikp.core.trace import Trace


def to_pandas(trace: Trace) -> pandas.DataFrame:
    """Return one row per event, in the trace's order.

    Columns: ``launch`` (index into ``trace.launches``), ``label``, ``block`` (linear), ``block_x``,
    ``block_y``, ``block_z``, ``warp`` (in its block), ``sm``, ``role``, ``region``, ``kind``
    (``"range"`` or ``"instant"``), ``start_ns``, ``end_ns`` and ``dur_ns`` (Unix nanoseconds),
    ``ticks`` (of the launch's clock) and ``payload`` (float64, NaN where there is none). Names are
    categorical.

    Raises:
        UsageError: pandas is not installed.
    """
    pd = _import_pandas()
    slots, events = trace.slots, trace.events
    launch, block = slots.launch[events.slot], slots.block[events.slot]
    x, y, z = _block_index(trace, launch, block)
    return pd.DataFrame(
        {
            "launch": launch,
            "label": _categorical(pd, launch, [each.label for each in trace.launches]),
            "block": block,
            "block_x": x,
            "block_y": y,
            "block_z": z,
            "warp": slots.warp[events.slot],
            "sm": slots.sm[events.slot],
            "role": _categorical(pd, slots.role[events.slot], list(trace.roles)),
            "region": _categorical(pd, events.region, [each.name for each in trace.regions]),
            "kind": _kinds(pd, events.kind),
            "start_ns": events.start_ns,
            "end_ns": events.end_ns,
            "dur_ns": events.end_ns - events.start_ns,
            "ticks": events.ticks,
            "payload": trace.payload,
        }
    )


def _import_pandas() -> Any:
    try:
        import pandas
    except ModuleNotFoundError as error:
        if error.name != "pandas":
            raise
        raise UsageError(
            "to_pandas() needs pandas, which is not installed. Do: pip install 'ikp[pandas]'"
        ) from error
    return pandas


def _block_index(
    trace: Trace, launch: NDArray[Any], block: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Split linear block ids by the grid of each one's launch."""
    grids = np.array([each.grid for each in trace.launches], np.int32).reshape(-1, 3)
    width, height = grids[launch, 0], grids[launch, 1]
    return block % width, block // width % height, block // (width * height)


def _categorical(pd: Any, index: NDArray[Any], names: list[str]) -> Any:
    """Return a categorical column; equal names at several indices are one category."""
    categories = list(dict.fromkeys(names))
    code = np.array([categories.index(name) for name in names], np.int32)
    return pd.Categorical.from_codes(code[index], categories)


def _kinds(pd: Any, kind: NDArray[Any]) -> Any:
    known = [Kind.RANGE, Kind.INSTANT]
    code = np.zeros(max(known) + 1, np.int8)
    code[known] = np.arange(len(known))
    return pd.Categorical.from_codes(code[kind], [each.name.lower() for each in known])
