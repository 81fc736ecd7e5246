"""Slot headers as they are in machine code, made into those that all other kernels write."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.abi import ClockKind, Option, OverflowMode, Rows, SlotState

_TURN = 1 << 32
_HALF = 1 << 31
_NO_TIME = 1 << 62


def are_rows(header: np.void, slots: int) -> bool:
    """Tell whether a launch header, if of a dense segment, tells of rows that there can be."""
    options = int(header["options"])
    if not options & Option.DENSE:
        return True
    together = int(header["together"])
    plain = int(header["clock"]) < ClockKind.CYCLES64
    plain &= int(header["overflow"]) == OverflowMode.STOP
    plain &= not options & Option.TOTALS
    return plain and together > 0 and slots % together == 0


def expanded(data: NDArray[np.uint8], slots: int, grid_id: int) -> Rows:
    """Return the headers of a launch's slots, which stand side by side from the start of ``data``.

    Of what ``init`` read they hold the low halves: the rest is that of ``finish``. Where that never
    ran, it is as near as can be to what another warp read, of the clock one of the same SM.
    """
    rows = np.ascontiguousarray(data[: slots * abi.DENSE_HEADER_BYTES]).view(abi.DENSE_HEADER)
    heads = np.zeros(slots, abi.SLOT_HEADER)
    came = rows.view(np.uint8).reshape(slots, abi.DENSE_HEADER_BYTES).any(1)
    finished = rows["finish_ns"] != 0
    for name in ("finish_ns", "finish_clock", "attempted", "sm"):
        heads[name] = rows[name]
    ours = rows["grid_id"] == grid_id & 0xFFFF
    heads["grid_id"] = np.where(came, np.where(ours, grid_id, ~np.uint32(grid_id)), 0)
    heads["state"] = np.where(finished, SlotState.FINISHED, SlotState.RUNNING) * came
    # What an earlier launch left, or what is no time at all, says nothing of this launch's clocks.
    good = ours & (rows["finish_ns"] < _NO_TIME) & (rows["finish_clock"] < _NO_TIME)
    for name, group in (("ns", np.zeros(slots, np.int64)), ("clock", rows["sm"].astype(np.int64))):
        low, last = rows[f"init_{name}"], rows[f"finish_{name}"]
        known = np.where(finished, last, _latest(group, low * good, last * good))
        since = known.astype(np.uint32) - low  # modulo 2**32
        began = known - since
        later = ~finished & (since >= _HALF)  # began behind the latest that is known
        began += np.where(later | (began > known), np.uint64(_TURN), np.uint64(0))
        heads[f"init_{name}"] = np.where(came, began, 0)
    return heads


def _latest(
    group: NDArray[np.int64], low: NDArray[np.uint32], last: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """Return for each warp the latest time that one of its group left at, or any near its own."""
    latest = np.zeros(int(group.max(initial=0)) + 1, np.uint64)
    some = latest.copy()
    some[group[low > 0]] = low[low > 0]
    np.maximum.at(latest, group, last)
    return np.where(latest > 0, latest, some + np.uint64(_TURN))[group]
