"""How much of the warps' time writing their records took, at most."""

from __future__ import annotations

from typing import Final

from ikp.core.trace import Launch

RECORD_CYCLES: Final = {32: 53, 64: 68}
"""The most that a range took in a full H200, by the bits of its clock (docs/benchmarks.md)."""


def recording_share(launch: Launch, attempted: int, resident_ns: float) -> float | None:
    """Return the share, at most; None where it is not known.

    Args:
        launch: whose clock it was.
        attempted: records, dropped ones included.
        resident_ns: how long all warps ran.
    """
    if launch.clock.kind != "cycles" or not resident_ns:
        return None
    spent = attempted * RECORD_CYCLES[launch.clock.bits] * launch.clock.ns_per_tick
    return min(1.0, spent / resident_ns)
