"""Which launches of a kernel ``ikp run`` records where none are chosen."""

from __future__ import annotations

from typing import Final

IN_TURN: Final = (0, 1, 2, 3, 6, 7, 9, 12)
"""Eight of the first 13, counted from 0.

Launch 4 is plain: the first one may load code. From 5 to 12, plain and recorded launches alternate
in the order of Thue and Morse. So what a launch's place in the program does to its time (clocks,
caches, every second layer) is in both kinds alike, and their difference is what recording took.
"""
FIRST: Final = range(len(IN_TURN))
"""As many launches in a row: where plain ones are not timed."""
