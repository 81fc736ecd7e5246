"""Times of recorded and of plain launches of one kernel and grid; kept in provenance as JSON.

A text under ``TIMED`` + the launch's label: ``ikp run`` writes a line for each grid.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

TIMED: Final = "timed "
"""Before a label: times of its launches, a line of JSON for each grid."""


@dataclass(frozen=True, slots=True)
class TimedLaunches:
    """Medians of recorded and of plain launches, and how far their difference may be off."""

    grid: tuple[int, int, int]
    recorded_us: float
    plain_us: float
    error_us: float
    launches: tuple[int, int]  # recorded, plain

    def text(self) -> str:
        """Return the line of JSON that a trace's provenance holds."""
        return json.dumps(asdict(self))


def read_timed(provenance: Mapping[str, str], label: str) -> tuple[TimedLaunches, ...]:
    """Return the times of a label's launches; lines that can't be read are left out."""
    found = (_parsed(line) for line in provenance.get(f"{TIMED}{label}", "").splitlines())
    return tuple(each for each in found if each is not None)


def _parsed(line: str) -> TimedLaunches | None:
    try:
        said: dict[str, Any] = json.loads(line)
        x, y, z = map(int, said["grid"])
        recorded, plain = map(int, said["launches"])
        return TimedLaunches(
            (x, y, z),
            float(said["recorded_us"]),
            float(said["plain_us"]),
            float(said["error_us"]),
            (recorded, plain),
        )
    except (ValueError, TypeError, KeyError, OverflowError):
        return None
