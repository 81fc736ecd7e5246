"""Numbered ranges in torch.profiler's recording, right before launches, to find each one there.

A mark is a range of the host, in the launching thread, right before the call that launches. The
range has the launch's number in its name. A reader takes the next launch of that thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from typing import Final

from ikp.session.known_launch import revoke

Mark = Callable[[str], None]

NAMED: Final = "ikp launch "
"""The name of a mark, before the number."""
_NUMBER_BITS: Final = 31
_numbers = count(1)
marks: list[Mark] = []  # of the recording under way, if there is any


def begin(mark: Mark) -> None:
    """Have launches marked from now on, by a function of a mark's name that must not raise."""
    marks[:] = [mark]
    revoke()


def end() -> None:
    """Mark no more launches."""
    marks.clear()
    revoke()


def mark(number: int) -> int:
    """Mark a launch that follows in this thread, and return its number; 0 without a recording.

    Args:
        number: of an earlier launch into the same buffer, which this one takes over; 0 for none.
    """
    made = number
    for each in marks:
        made = number or new_number()
        each(f"{NAMED}{made}")
    return made


def new_number() -> int:
    """Return a number that no other launch has, of any process at one time."""
    return os.getpid() << _NUMBER_BITS | next(_numbers)
