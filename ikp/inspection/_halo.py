"""``halo``: what blocks load beside their own elements, which neighbouring blocks load, too."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.sass.dataflow.lane_state import LANES
from ikp.sass.dataflow.lane_values import LaneValues

_SECTOR: Final = 32
_KNOWN: Final = 0.6
"""Part of the loads whose addresses are known, from which on these speak for all."""
_ALIKE: Final = 0.5
"""Part of its sectors in common from which on a load brings the same to neighbouring blocks."""
_DIGITS: Final = 4


def halo(values: LaneValues, ours: Collection[int] = ()) -> float:
    """Return the part of the sectors loaded in no loop that neighbouring blocks load, too.

    Of all such loads together: what one block loads at its edge lies in another's middle. What a
    load brings to all of them alike (weights) does not count. 0 where most addresses are not known.

    Args:
        values: the kernel's registers, in some warps of many blocks.
        ours: the instructions of records.
    """
    flow, shape = values.flow, values.launch.shape
    every_load = {*flow.code.of("LDG", "LDGSTS")} - {*ours}
    loads = [at for at in sorted(every_load) if flow.loop_of(at) is None]
    known = [(at, bits) for at in loads if (bits := values.address(at).bits) is not None]
    if not known or len(known) < _KNOWN * len(loads):
        return 0.0
    threads = shape.warps * LANES
    sectors = np.stack([bits.reshape(-1, threads) // _SECTOR for _, bits in known], axis=1)
    on = np.stack([values.active(at).reshape(-1, threads) for at, _ in known], axis=1)
    every, last = range(len(shape.numbers)), shape.blocks + shape.spread
    rows = ([*every[: shape.blocks]], [0, *every[last:]])
    return max(_shared(sectors[blocks], on[blocks]) for blocks in rows)


def _shared(sectors: NDArray[np.int64], on: NDArray[np.bool_]) -> float:
    """Return the part of the sectors of some blocks that several of these load.

    Args:
        sectors: of each block, load and thread.
        on: which threads load.
    """

    def common(loads: Sequence[int]) -> float:
        own = [
            np.unique(block[[*loads]][mask[[*loads]]])
            for block, mask in zip(sectors, on, strict=True)
        ]
        whole = np.concatenate(own)
        return 1 - len(np.unique(whole)) / len(whole) if len(whole) else 0.0

    apart = [one for one in range(sectors.shape[1]) if common([one]) < _ALIKE]
    return round(common(apart), _DIGITS) if apart else 0.0
