"""Results of the trace processor's SQL as numpy columns: one row at a time would take minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from perfetto.trace_processor import TraceProcessor

Column = np.ndarray[Any, np.dtype[Any]]

NULL, INTEGER, REAL, TEXT = 1, 2, 3, 4
"""Types of the cells in Perfetto's QueryResult."""


def columns(processor: TraceProcessor, sql: str) -> dict[str, Column]:
    """Return each column as int64, float64 or objects (text; also whatever holds NULLs)."""
    result = processor.http.execute_query(sql)
    assert not result.error, f"{result.error}\n{sql}"
    names = list(result.column_names)
    types = np.concatenate([[], *(np.array(batch.cells, int) for batch in result.batch)])
    cells = np.empty(len(types), object)
    for kind, values in (
        (INTEGER, [one for batch in result.batch for one in batch.varint_cells]),
        (REAL, [one for batch in result.batch for one in batch.float64_cells]),
        (TEXT, [one for batch in result.batch for one in _texts(batch.string_cells)]),
    ):
        cells[types == kind] = values
    table, kinds = cells.reshape(-1, len(names)), types.reshape(-1, len(names))
    return {name: _narrow(table[:, i], kinds[:, i]) for i, name in enumerate(names)}


def _texts(joined: str | bytes) -> list[str]:
    text = joined.decode() if isinstance(joined, bytes) else joined
    return text.split("\0")[:-1]


def _narrow(cells: Column, kinds: Column) -> Column:
    if np.all(kinds == INTEGER):
        return cells.astype(np.int64)
    if np.all(kinds == REAL):
        return cells.astype(np.float64)
    return cells
