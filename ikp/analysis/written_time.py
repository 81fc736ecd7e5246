"""Times parsed from text, as on the command line and in names of windows: ``10us``, ``.5 ms``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

UNITS: Final = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_FORM: Final = re.compile(r"(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>ns|us|ms|s)?")


@dataclass(frozen=True, slots=True)
class WrittenTime:
    """A parsed number and its unit; the unit is None where there is none."""

    text: str
    number: float
    unit: str | None

    def ns(self, usual: str | None = None) -> float | None:
        """Return the time in ns, in the ``usual`` unit if it has none; None without any unit.

        0 needs no unit.
        """
        unit = self.unit or usual or ("ns" if not self.number else None)
        return None if unit is None else self.number * UNITS[unit]


def written_time(text: str) -> WrittenTime | None:
    """Return the time that a text says, blanks around it aside; None if it is none."""
    found = _FORM.fullmatch(text.strip())
    return WrittenTime(found[0], float(found["number"]), found["unit"]) if found else None
