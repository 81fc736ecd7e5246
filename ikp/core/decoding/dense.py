"""Slot headers as they are in machine code, made into those that all other kernels write."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.abi import Rows, SlotState

_TURN = 1 << 32
_HALF = 1 << 31


def expanded(data: NDArray[np.uint8], slots: int, grid_id: int) -> Rows:
    """Return the headers of a launch's slots, which stand side by side from the start of ``data``.

    Of what ``init`` read they hold the low halves: the rest is that of ``finish``. Where that never
    ran, it is what another warp read, of the clock one of the same SM.
    """
    rows = np.ascontiguousarray(data[: slots * abi.DENSE_HEADER_BYTES]).view(abi.DENSE_HEADER)
    heads = np.zeros(slots, abi.SLOT_HEADER)
    came = rows.view(np.uint8).reshape(slots, -1).any(1)
    finished = rows["finish_ns"] != 0
    for name in ("finish_ns", "finish_clock", "attempted", "sm"):
        heads[name] = rows[name]
    ours = rows["grid_id"] == grid_id & 0xFFFF
    heads["grid_id"] = np.where(came, np.where(ours, grid_id, ~np.uint32(grid_id)), 0)
    heads["state"] = np.where(finished, SlotState.FINISHED, SlotState.RUNNING) * came
    for name, latest in (("ns", rows["finish_ns"].max(initial=0)), ("clock", _by_sm(rows))):
        low = rows[f"init_{name}"]
        known = np.where(finished, rows[f"finish_{name}"], latest)
        since = known.astype(np.uint32) - low  # modulo 2**32
        began = known - since
        later = ~finished & (since >= _HALF)  # began behind the latest that is known
        began += np.where(later | (began > known), np.uint64(_TURN), np.uint64(0))
        heads[f"init_{name}"] = np.where(came, began, 0)
    return heads


def _by_sm(rows: Rows) -> NDArray[np.uint64]:
    """Return for each warp the latest clock that a warp on its SM read."""
    sm = rows["sm"].astype(np.int64)
    latest = np.zeros(int(sm.max(initial=0)) + 1, np.uint64)
    np.maximum.at(latest, sm, rows["finish_clock"])
    return latest[sm]
