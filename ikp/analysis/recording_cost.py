"""Upper bound on the share of the warps' time that writing their records took."""

from __future__ import annotations

from typing import Final

from ikp.core.trace import Launch

RECORD_CYCLES: Final = {32: 53, 64: 68}
"""The most cycles that a range cost on a full H200, by its clock's bits (docs/benchmarks.md)."""


def recording_share(launch: Launch, attempted: int, resident_ns: float) -> float | None:
    """Return the share, at most; None where it is not known.

    Args:
        launch: the launch, whose clock counts.
        attempted: records, dropped ones included.
        resident_ns: the sum of the time that its warps ran.
    """
    if launch.clock.kind != "cycles" or not resident_ns:
        return None
    spent = attempted * RECORD_CYCLES[launch.clock.bits] * launch.clock.ns_per_tick
    return min(1.0, spent / resident_ns)
