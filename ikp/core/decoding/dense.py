"""Dense slot headers, which probes in machine code write, expanded to the full slot headers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.abi import ClockKind, Option, OverflowMode, Rows, SlotState

_TURN = 1 << 32
_HALF = 1 << 31
_NO_TIME = 1 << 62


def are_rows(header: np.void, slots: int) -> bool:
    """Return whether the rows that a dense segment's launch header claims are possible."""
    options = int(header["options"])
    if not options & Option.DENSE:
        return True
    together = int(header["together"])
    plain = int(header["clock"]) < ClockKind.CYCLES64
    plain &= int(header["overflow"]) == OverflowMode.STOP
    plain &= not options & Option.TOTALS
    return plain and together > 0 and slots % together == 0


_AT_ONCE = 1 << 12
"""Headers expanded together: both dense and full ones fit into a core's cache."""


def expanded(data: NDArray[np.uint8], count: int, grid_id: int) -> Rows:
    """Return ``count`` headers of a launch, which lie side by side from the start of ``data``.

    They hold the low halves of the times that ``init`` read; the high halves are those of
    ``finish``. Where that never ran, the time is the nearest to another warp's; for the SM clock,
    to that of a warp of the same SM.
    """
    rows = np.ascontiguousarray(data[: count * abi.DENSE_HEADER_BYTES]).view(abi.DENSE_HEADER)
    heads = np.zeros(count, abi.SLOT_HEADER)
    running = 0
    for low in range(0, count, _AT_ONCE):
        part = slice(low, low + _AT_ONCE)
        running += _expand(rows[part], heads[part], grid_id)
    if running:
        _place_running(rows, heads, grid_id)
    return heads


def _expand(rows: Rows, heads: Rows, grid_id: int) -> int:
    """Fill in some headers; return how many warps started and did not finish."""
    words = rows.view(np.uint64).reshape(len(rows), -1)
    came = (words[:, 0] | words[:, 1] | words[:, 2] | words[:, 3]) != 0
    finished = rows["finish_ns"] != 0
    for name in ("finish_ns", "finish_clock", "attempted", "sm"):
        heads[name] = rows[name]
    ours = rows["grid_id"] == grid_id & 0xFFFF
    heads["grid_id"] = np.where(came, np.where(ours, grid_id, ~np.uint32(grid_id)), 0)
    heads["state"] = np.where(finished, SlotState.FINISHED, SlotState.RUNNING) * came
    for name in ("ns", "clock"):
        low, known = rows[f"init_{name}"], rows[f"finish_{name}"]
        began = known - (known.astype(np.uint32) - low)  # modulo 2**32
        began[began > known] += np.uint64(_TURN)
        heads[f"init_{name}"] = np.where(came, began, 0)
    return int(np.count_nonzero(came & ~finished))


def _place_running(rows: Rows, heads: Rows, grid_id: int) -> None:
    """Place the warps that started and did not finish beside others in time."""
    running = np.flatnonzero(heads["state"] == SlotState.RUNNING)
    # Headers of an earlier launch, or with impossible times, say nothing of this launch's clocks.
    good = rows["grid_id"] == grid_id & 0xFFFF
    good &= (rows["finish_ns"] < _NO_TIME) & (rows["finish_clock"] < _NO_TIME)
    sm = rows["sm"].astype(np.int64)
    for name, group in (("ns", np.zeros_like(sm)), ("clock", sm)):
        low, last = rows[f"init_{name}"], rows[f"finish_{name}"]
        known = _latest(group, low * good, last * good)[running]
        since = known.astype(np.uint32) - low[running]  # modulo 2**32
        began = known - since
        later = since >= _HALF  # began after the latest known time
        began += np.where(later | (began > known), np.uint64(_TURN), np.uint64(0))
        heads[f"init_{name}"][running] = began


def _latest(
    group: NDArray[np.int64], low: NDArray[np.uint32], last: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """Return for each warp the latest finish in its group; without one, a time near its inits."""
    latest = np.zeros(int(group.max(initial=0)) + 1, np.uint64)
    some = latest.copy()
    some[group[low > 0]] = low[low > 0]
    np.maximum.at(latest, group, last)
    return np.where(latest > 0, latest, some + np.uint64(_TURN))[group]
