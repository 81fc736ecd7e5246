"""A trace of the calibration's kernels, made of what each piece of a record takes."""

from __future__ import annotations

from dataclasses import replace

from ikp.calibration.figures import KINDS, label, programs
from ikp.core.abi import ClockKind
from ikp.core.decode import decode
from ikp.core.trace import Trace
from tests.segments import Device, Launch, Record, Segment, Sm, Warp, nbytes

EMPTY, AFTER, INSTANT = 11, 22, 20
"""Cycles between the two clock reads of a range, after it, and of an instant."""
RANGES = 16
GHZ = Device({0: Sm(origin=10**10, hz=10**9)})


def recorded(noise: tuple[int, ...] = (0,), cold: int = 500, twice: bool = True) -> Trace:
    """Return the launches of all kernels, each twice: the first launch and first ranges are slow.

    ``noise`` is what each range "around" takes longer, in turn.
    """
    sources = []
    for attempt in range(1 + twice):
        for kind, count in programs():
            slow = 1000 if twice and not attempt else 0
            warp = _warp(kind, count, noise, cold, slow)
            segment = Segment(nbytes(1, len(warp.records)), GHZ)
            segment.run(Launch({(0, 0): warp}, clock=ClockKind.CYCLES))
            sources.append(segment.source(label(kind, count), device="GPU"))
    trace = decode(sources)
    names = {0: "around", 1: "inside"}
    regions = tuple(replace(each, name=names[each.id]) for each in trace.regions)
    return replace(trace, regions=regions)


def _warp(kind: str, count: int, noise: tuple[int, ...], cold: int, slow: int) -> Warp:
    now, records = 100, []
    for number in range(RANGES):
        start = now
        now += EMPTY + noise[number % len(noise)] + slow + (cold if number < RANGES // 4 else 0)
        now, inside = _inside(kind, count, now)
        records += inside
        records.append(Record(start, now, 0))
        now += AFTER
    return Warp(records, init=0, finish=now + 10)


def _inside(kind: str, count: int, now: int) -> tuple[int, list[Record]]:
    made = []
    if kind == KINDS[1]:
        starts = range(now, now + count * EMPTY, EMPTY)
        now += count * EMPTY
        for start in reversed(starts):
            made.append(Record(start, now, 1))
            now += AFTER
        return now, made
    for _ in range(count):
        if kind == KINDS[0]:
            made.append(Record(now, now + EMPTY, 1))
            now += EMPTY + AFTER
        else:
            made.append(Record(now, None, 1))
            now += INSTANT
    return now, made
