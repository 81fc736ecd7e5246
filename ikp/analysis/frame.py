"""A trace as a pandas DataFrame: a row per event, or per total."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ikp.core.args import TEXT, ArgColumn
from ikp.core.table import Categories, trace_table
from ikp.errors import UsageError

if TYPE_CHECKING:
    import pandas

    from ikp.core.trace import Trace


def to_pandas(trace: Trace) -> pandas.DataFrame:
    """Return one row per event, in the trace's order.

    Columns: ``launch`` (index into ``trace.launches``), ``label``, ``rank``
    (missing where there is none), ``block`` (linear), ``block_x``,
    ``block_y``, ``block_z``, ``warp`` (in its block), ``sm``, ``role``, ``region``, ``kind``
    (``"range"`` or ``"instant"``), ``start_ns``, ``end_ns`` (Unix nanoseconds where the
    launch is aligned), ``dur_ns`` (nanoseconds), ``ticks`` (how long it took, in the unit that
    ``clock`` says), ``clock`` (``"cycles"`` of the SM, or ``"globaltimer"`` or ``"host"``, which
    both count nanoseconds) and ``payload`` (float64, NaN where there is none), then the trace's
    arguments. Names are categorical.

    A trace of totals has one row per total instead. Columns: those that say which warp (``launch``
    to ``role``), ``region``, ``kind``, ``count``, ``ticks`` (the sum, in the unit that ``clock``
    says), ``clock``, ``total_ns`` (nanoseconds) and ``share`` (of the time that the warp ran, from
    0 to 1; NaN for instants).

    Raises:
        UsageError: pandas is not installed, or the trace has both events and totals.
    """
    pd = _import_pandas()
    table = trace_table(trace)
    return pd.DataFrame({name: _series(pd, column) for name, column in table.items()})


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


def _series(pd: Any, column: Any) -> Any:
    if isinstance(column, Categories):
        return pd.Categorical.from_codes(column.codes, column.names)
    if isinstance(column, ArgColumn):
        return _argument(pd, column)
    return column


def _argument(pd: Any, column: ArgColumn) -> Any:
    """Return an argument in a type of pandas that knows missing values."""
    values = column.values
    if values.dtype.kind == TEXT:
        texts = values.copy()
        texts[~column.given] = None
        return pd.array(texts, dtype="string")
    dtype = {"int32": "Int32", "int64": "Int64", "float64": "Float64", "bool": "boolean"}[
        str(values.dtype)
    ]
    made = pd.array(values, dtype=dtype)
    made[~column.given] = pd.NA
    return made
