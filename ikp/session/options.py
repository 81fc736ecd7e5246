"""The values of the options ``clock`` and ``overflow`` of a session and of the command line."""

from __future__ import annotations

from typing import Final

CLOCKS: Final = ("cycles", "globaltimer", "cycles64", "globaltimer64")
"""The clocks that a kernel can read: names of ``ikp.core.abi.ClockKind``."""
OVERFLOWS: Final = ("stop", "wrap", "stream")
"""Which records a full slot keeps: names of ``ikp.core.abi.OverflowMode``."""
