"""What was lost, why, and what would have kept it, in words."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.abi import OverflowMode
from ikp.core.decoding._records import Kept
from ikp.core.decoding.launch_header import Layout, Source, remedy

_LOSSES = re.compile(
    r"\d+ (records|totals) dropped|\d+ warps never reached finish|\d+ earlier launches wrote"
)
"""How the notes below begin, of what the launch's own figures say, too."""


def tells_loss(note: str) -> bool:
    """Return whether a launch's figures tell what a note does: dropped, unfinished, relaunched."""
    return _LOSSES.match(note) is not None


def note_losses(
    notes: list[str],
    source: Source,
    layout: Layout,
    kept: Kept,
    finished: NDArray[np.bool_],
    needed: int,
) -> None:
    """Tell what a launch lost, and that a segment of ``needed`` bytes would have held all."""
    what = "totals" if layout.summed else "records"
    dropped = int((kept.reached - np.minimum(kept.reached, layout.capacity)).sum())
    if dropped:
        which = "the oldest" if layout.overflow is OverflowMode.WRAP else "the latest"
        notes.append(
            f"{dropped} {what} dropped ({which} of each full slot); {remedy(source, needed)} "
            "would have held all"
        )
    unfinished = int(np.count_nonzero(~finished))
    if layout.capacity and len(finished) and not (unfinished or layout.whole or kept.reached.any()):
        notes.append(
            f"no {what}: {_warps(len(finished))} ran from ikp.init to the end and closed no range "
            "there. Check that each ikp.start has its ikp.end, that the code of the ranges runs, "
            "and that where= is true somewhere"
        )
    if unfinished and layout.summed:
        notes.append(f"{unfinished} warps never reached finish: their totals are lost")
    elif unfinished:
        full = int(np.count_nonzero(~finished & (kept.kept >= layout.capacity)))
        notes.append(
            f"{unfinished} warps never reached finish: their counts are read from the records"
            + (f", and {full} of them are full, so more may be lost" if full else "")
        )
    if layout.relaunches:
        notes.append(
            f"{layout.relaunches} earlier launches wrote to this buffer; only the last is kept"
            + (
                ", though warps that never reached finish may show some of theirs"
                if unfinished and not layout.summed
                else ""
            )
        )


def _warps(count: int) -> str:
    return f"{count} {'warp' if count == 1 else 'warps'}"


def needed_bytes(layout: Layout, reached: NDArray[np.int64], finished: NDArray[np.bool_]) -> int:
    """Return the segment size that would have held all; twice the present one where unknown."""
    if layout.needed_bytes:
        return layout.needed_bytes
    need = int(reached.max(initial=0))
    if (~finished & (reached >= layout.capacity)).any():
        need = max(need, 2 * layout.capacity)
    if need <= layout.capacity:
        return 0
    return abi.segment_bytes(layout.slots, need, layout.overflow, layout.clock)
