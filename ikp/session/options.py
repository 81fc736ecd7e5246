"""What a session's options may be, as a user gives them; the command line knows them, too."""

from __future__ import annotations

from typing import Final

CLOCKS: Final = ("cycles", "globaltimer", "cycles64", "globaltimer64")
"""The clocks that a kernel can read: names of ``ikp.core.abi.ClockKind``."""
OVERFLOWS: Final = ("stop", "wrap")
"""What becomes of records when a slot is full: names of ``ikp.core.abi.OverflowMode``."""
