"""Arrows as flow events: a line where each starts, and one where it ends."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ikp.exporters.text import Part, integers, lay, thousandths
from ikp.exporters.timeline.batches import ARROW, Arrows

Ints = NDArray[np.int64]
Lines = tuple[NDArray[np.intp], Part]
"""Lines, and the place of the event behind which each one stands."""


def flow_lines(
    arrows: Arrows, rows: NDArray[np.intp], heads: Part, start: Ints, end: Ints
) -> list[Lines]:
    """Return the lines for the arrows of the events in the given rows of the trace.

    ``heads`` is what lines of each event begin with, ``start`` and ``end`` count from the origin.
    A line that stands behind its event binds to it: to what is open on the thread at that time.
    """
    found = []
    for lists, phase, times in (
        (arrows.leaving, b'{"ph":"s",', start),
        (arrows.arriving, b'{"ph":"f","bp":"e",', start),
        (arrows.late, b'{"ph":"f","bp":"e",', end),
    ):
        event, number = lists.take(rows)
        place = lay(heads[event], b'"ts":', thousandths(times[event]))
        parts: list[bytes | Part] = [
            phase,
            place,
            b',"name":"flow","cat":"flow","id":',
            integers(number),
            b"},\n",
        ]
        if lists is arrows.late:
            parts = [b'{"ph":"i","s":"t",', place, b',"name":"%s"},\n' % ARROW, *parts]
        found.append((event, lay(*parts)))
    return found


def between(lines: Part, more: list[Lines]) -> bytes:
    """Return lines with further ones, each behind that for which it was made."""
    parts = [lines, *(part for _, part in more)]
    behind = np.concatenate([np.arange(len(lines)), *(event for event, _ in more)])
    place = np.empty(len(behind), np.intp)
    place[np.argsort(behind, kind="stable")] = np.arange(len(behind))
    out = np.zeros((len(behind), max(part.shape[1] for part in parts)), np.uint8)
    at = 0
    for part in parts:
        out[place[at : at + len(part)], : part.shape[1]] = part
        at += len(part)
    return out.tobytes().translate(None, b"\0")
