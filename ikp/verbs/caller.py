"""Where in a user's source a verb was called."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

_HERE = Path(__file__).parents[1]
_OURS = (str(_HERE / "backends"), str(_HERE / "verbs"))


def calling() -> FrameType | None:
    """Return the innermost frame that is no verb's and no adapter's."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return frame


def place() -> str:
    """Return where the verb that is running was called: ``file:line``."""
    frame = calling()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""
