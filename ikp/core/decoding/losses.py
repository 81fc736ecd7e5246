"""Notes on a launch's recording: lost or corrupt records, doubtful clocks, and the remedy."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ikp.core import abi
from ikp.core.abi import ClockKind, OverflowMode
from ikp.core.decoding.launch_header import FIRST_RECORDS, SegmentLayout, SegmentSource
from ikp.core.trace import ClockFit

_LOSSES = re.compile(
    r"\d+ (records|totals) dropped|\d+ warps? never reached finish|\d+ earlier launches wrote"
)
"""The first words of notes that repeat a launch's figures: dropped, unfinished, relaunched."""


def tells_loss(note: str) -> bool:
    """Return whether a note repeats a launch's figures: dropped, unfinished, relaunched."""
    return _LOSSES.match(note) is not None


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts of one launch's records, warps and slots: kept, dropped, corrupt, absent."""

    attempted: int
    kept: int
    most: int  # of the busiest warp
    warps: int  # that ran init
    unfinished: int  # of these
    open_others: int  # warps without records that never reached finish
    full: int  # of the unfinished, those that keep as many records as they can
    open: int  # of the unfinished, those that attempted at least as many as they can keep
    dropped: int
    corrupt: int
    more: int  # warps with a record behind the end of their count
    absent: int  # warps that never ran init
    corrupt_slots: int
    tail: bool  # the memory behind the last slot is not zero


def launch_notes(
    figures: Figures, source: SegmentSource, layout: SegmentLayout, needed: int
) -> tuple[str, ...]:
    """Return the notes on a launch's layout, damage and losses.

    Args:
        figures: of the launch.
        source: its segment.
        layout: of the segment.
        needed: size of the segment that would have held all; 0 if this one did.
    """
    short = filter(None, [_shortage(source, layout)])
    damage, losses = _damage(figures), _losses(figures, source, layout, needed)
    return (*layout.notes, *short, *damage, *losses)


def _shortage(source: SegmentSource, layout: SegmentLayout) -> str:
    """Return why no warp of a launch had room for a record; "" if they had."""
    if layout.slots:
        return ""
    if not layout.needed_bytes:
        return "nothing recorded: none of the warps and blocks chosen to record exist"
    return (
        f"nothing recorded: {source.nbytes} bytes are too small for {_warps(layout.chosen_slots)}; "
        f"{_remedy(source, layout.needed_bytes)} holds {FIRST_RECORDS} records per warp"
    )


def _damage(known: Figures) -> list[str]:
    """Return notes on contents of a segment that its kernel can't have written."""
    notes = []
    if known.tail:
        notes.append(
            "there is something behind the last slot: the grid in the launch header is not the "
            "kernel's, or something else wrote to the segment"
        )
    if known.corrupt_slots:
        notes.append(
            f"{known.corrupt_slots} slots skipped: their headers are corrupt or of an earlier "
            "launch"
        )
    if known.absent:
        notes.append(
            f"{_warps(known.absent)} never reached init (the kernel hung, failed, or exited early)"
        )
    if known.open_others:
        notes.append(
            f"{_warps(known.open_others)} of blocks that were not chosen never reached finish: how "
            "long they ran is not known"
        )
    if known.more:
        notes.append(
            f"{_warps(known.more)} left records behind where their count ends, not taken: "
            "something else wrote to the segment, or they recorded after ikp.finish"
        )
    if known.corrupt:
        notes.append(
            f"{known.corrupt} corrupt records skipped: something else wrote to the segment"
        )
    return notes


def _losses(known: Figures, source: SegmentSource, layout: SegmentLayout, needed: int) -> list[str]:
    """Return notes on lost records, and that a segment of ``needed`` bytes would have held all."""
    notes = []
    what = "totals" if layout.summed else "records"
    if known.dropped:
        notes.append(
            f"{known.dropped} {what} dropped ({_DROPPED[layout.overflow]}); "
            f"{_remedy(source, needed)} would have held all"
        )
    ran = known.warps > 0 and not known.unfinished
    if layout.capacity and ran and not (layout.whole or known.most):
        notes.append(
            f"no {what}: {_warps(known.warps)} ran from ikp.init to the end and closed no range "
            "there. Check that each ikp.start has its ikp.end, that the code of the ranges runs, "
            "and that where= is true somewhere"
        )
    if known.unfinished:
        notes.append(f"{_warps(known.unfinished)} never reached finish{_counts(known, layout)}")
    if layout.relaunches:
        mixed = bool(known.unfinished) and not layout.summed
        notes.append(
            f"{layout.relaunches} earlier launches wrote to this buffer; only the last is kept"
            + ", though warps that never reached finish may show some of theirs" * mixed
        )
    return notes


def _counts(known: Figures, layout: SegmentLayout) -> str:
    """Return what the counts of warps that never finished are, as the end of a note."""
    if layout.summed:
        return ": their totals are lost"
    if layout.overflow is OverflowMode.STREAM:
        return ""
    full = f", and {known.full} of them are full, so more may be lost" if known.full else ""
    return f": their counts are read from the records{full}"


_DROPPED = {
    OverflowMode.STOP: "the latest of each full slot",
    OverflowMode.WRAP: "the oldest of each full slot",
    OverflowMode.STREAM: "overwritten before the host had read them",
}


def clock_notes(
    faults: tuple[int, ...],
    clock: ClockKind,
    fit: ClockFit,
    turn_s: float,
    warps: int,
    advertised: bool,
) -> list[str]:
    """Return notes on clocks: times that are not known, and a rate that is not fitted.

    Args:
        faults: the launch's counts in ``Faults``, in their order.
        clock: of its records.
        fit: of the clock to nanoseconds.
        turn_s: the time in which the low half of the clock wraps.
        warps: that ran init.
        advertised: whether the device names a rate.
    """
    backwards, outside, torn, long, lost, guessed = faults
    notes = []
    if backwards:
        notes.append(
            f"the clocks of {_warps(backwards)} ran backwards from init to finish: when these "
            "finished is not known"
        )
    if outside:
        notes.append(
            f"the last records of {_warps(outside)} ended before init or after finish: something "
            "else wrote to the segment, or they recorded after ikp.finish"
        )
    if torn:
        notes.append(
            f"{torn} clock anchors left out: no clock can go so far from the others (a warp was "
            "put aside between its two clock reads, or they were overwritten)"
        )
    if long:
        wide = "globaltimer64" if clock is ClockKind.GLOBALTIMER else "cycles64"
        notes.append(
            f"{_warps(long)} ran longer than the 32-bit clock's {turn_s:.2f} s: a single range or "
            "a gap between records longer than that is shown short by a multiple of it; "
            f"ikp.profile(clock={wide!r}) records all 64 bits"
        )
    if lost:
        notes.append(
            f"{_warps(lost)} ran longer than the {turn_s:.2f} s that the short headers of kernels "
            "recorded in machine code can hold: they are shown to begin, and their ranges to lie, "
            "later by a multiple of it"
        )
    if guessed and warps:
        notes.append(
            "too few clock anchors, or too close together, to fit the clock's rate: "
            f"{1 / fit.ns_per_tick:.2f} GHz is taken, "
            + ("as the device advertises" if advertised else "which is a guess")
        )
    return notes


def _remedy(source: SegmentSource, needed: int) -> str:
    """Return the call that makes a buffer of ``needed`` bytes."""
    if needed > abi.MAX_SEGMENT_BYTES:
        return f"only {needed} bytes, more than a buffer can have,"
    return f"prof.buffer({source.label!r}, size={needed})"


def _warps(count: int) -> str:
    return f"{count} {'warp' if count == 1 else 'warps'}"


def needed_bytes(layout: SegmentLayout, most: int, full: bool) -> int:
    """Return the segment size that would have held all; twice the present one where unknown.

    Args:
        layout: of the segment.
        most: records of the busiest warp.
        full: whether a warp that never finished has a full slot.
    """
    if layout.needed_bytes:
        return layout.needed_bytes
    need = max(most, 2 * layout.capacity) if full else most
    if need <= layout.capacity:
        return 0
    beside = layout.beside_bytes
    held = abi.segment_bytes(layout.slots, need, layout.overflow, layout.clock, beside)
    return held + layout.set_aside
