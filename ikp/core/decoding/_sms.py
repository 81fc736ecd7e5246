"""``Sms``: the SMs that launches ran on, and the row of each warp's SM among them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ikp.core.decoding._ragged import Ints

_SM_BITS = 20
_TABLE = 1 << 20
"""Most pairs of launch and SM for which a table is made."""


@dataclass(frozen=True, slots=True)
class Sms:
    """The SMs that launches ran on, one row per launch and SM, sorted."""

    launch: Ints
    sm: Ints
    launches: int

    @classmethod
    def of(cls, launch: Ints, sm: Ints, launches: int) -> tuple[Sms, Ints]:
        """Return the distinct pairs of launch and SM, and the row of each of the given pairs."""
        width = int(sm.max(initial=0)) + 1
        if launches * width <= _TABLE:  # much faster than sorting
            key = launch * width + sm if launches > 1 else sm
            there = np.zeros(launches * width, bool)
            there[key] = True
            place = np.cumsum(there) - 1
            known = np.flatnonzero(there)
            return cls(known // width, known % width, launches), place[key]
        key, row = np.unique(launch << _SM_BITS | sm, return_inverse=True)
        return cls(key >> _SM_BITS, key & ((1 << _SM_BITS) - 1), launches), row.reshape(-1)

    def __len__(self) -> int:
        return len(self.sm)
