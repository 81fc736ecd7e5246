"""Times of a kernel without some of its instructions, measured; kept in provenance as JSON.

A text under ``TRIED`` + the launch's label: ``ikp run --try N`` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

TRIED: Final = "tried in "
"""Before a label: what was tried, as JSON."""
NOT_TRIED: Final = "not tried in "
"""Before a label: why nothing was."""
INVALID: Final = "results are not valid"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class TriedSuspect:
    """Instructions of one kind and line, taken out of a copy whose results are not valid.

    ``gain`` is the share of the plain kernel's time that the copy saves, the median of pairs that
    ran in turn; ``spread`` is half the distance of their quartiles. None where it was not timed.
    """

    kind: str  # "barrier", "load", "store", "atomic"
    line: str  # "kernels/matmul.py:93"; "" where not known
    instructions: int
    how: str = ""  # "removed" or "redirected to one line"
    refused: str = ""  # why it was not timed
    plain_ns: float | None = None  # the median
    tried_ns: float | None = None
    gain: float | None = None
    spread: float | None = None


@dataclass(frozen=True, slots=True)
class TriedSuspects:
    """What was tried in one kernel, in order; ``of`` is how many suspects it has."""

    of: int
    suspects: tuple[TriedSuspect, ...]

    def text(self) -> str:
        """Return the JSON that a trace's provenance holds."""
        said = asdict(self) | {"version": _VERSION, "note": INVALID}
        return json.dumps(said, separators=(",", ":"), ensure_ascii=False)


def read_tried(provenance: Mapping[str, str], label: str) -> TriedSuspects | None:
    """Return what was tried in a label's kernel; None where the trace has nothing readable."""
    try:
        said = json.loads(provenance.get(f"{TRIED}{label}", ""))
        if said["version"] != _VERSION:
            return None
        return TriedSuspects(int(said["of"]), tuple(map(_suspect, said["suspects"])))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None


def _suspect(said: dict[str, Any]) -> TriedSuspect:
    return TriedSuspect(
        *(str(said["kind"]), str(said["line"]), int(said["instructions"])),
        *(str(said["how"]), str(said["refused"])),
        *(_number(said[name]) for name in ("plain_ns", "tried_ns", "gain", "spread")),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
