"""``ExtraArgument``: ordinal, offset and size of the argument in which a launcher passes a buffer.

It imports nothing that reads cubins.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExtraArgument:
    """One more argument of a launch."""

    ordinal: int  # the number of arguments that the program itself passes
    offset: int  # bytes behind the first argument
    size: int
