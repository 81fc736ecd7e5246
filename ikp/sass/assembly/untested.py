"""``untested_asked``: whether ``IKP_UNTESTED_CHIPS`` permits inserted code on untested chips."""

from __future__ import annotations

import os
from typing import Final

UNTESTED: Final = "IKP_UNTESTED_CHIPS"
"""Environment variable; not 0: insert code also for chips on which it was never run."""


def untested_asked() -> bool:
    """Return whether the environment asks for chips on which records were never run."""
    return os.environ.get(UNTESTED, "0") not in ("", "0")
