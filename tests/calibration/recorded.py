"""A trace of the calibration's kernels, made of what each piece of a record takes."""

from __future__ import annotations

from dataclasses import replace

from ikp.calibration.calibrate import ALONE, INSTANTS, MANY, NESTED, PROGRAMS, MeasuredKernel
from ikp.core.abi import ClockKind
from ikp.core.decoding.decode import decode
from ikp.core.trace import Trace
from tests.segments import Device, Launch, Record, Segment, Sm, Warp, nbytes

EMPTY, AFTER = 11, 22
"""Cycles between the two clock reads of a range, and after it, where there is no work."""
HIDDEN, INSTANT = 3, 5
"""Cycles after a range, and of an instant, where work hides the rest."""
WORK = 100
"""Cycles of a piece of work."""
RANGES = 16
GHZ = Device({0: Sm(origin=10**10, hz=10**9)})


def recorded(noise: tuple[int, ...] = (0,), cold: int = 500, twice: bool = True) -> Trace:
    """Return the launches of all kernels, each twice: the first launch and first ranges are slow.

    ``noise`` is what each range "around" takes longer, in turn.
    """
    sources = []
    for attempt in range(1 + twice):
        for program in PROGRAMS:
            slow = 1000 if twice and not attempt else 0
            warp = _warp(program, noise, cold, slow)
            segment = Segment(nbytes(1, len(warp.records)), GHZ)
            segment.run(Launch({(0, 0): warp}, clock=ClockKind.CYCLES))
            sources.append(segment.source(program.label, device="GPU"))
    trace = decode(sources)
    names = {0: "around", 1: "inside"}
    regions = tuple(replace(each, name=names[each.id]) for each in trace.regions)
    return replace(trace, regions=regions)


def _warp(program: MeasuredKernel, noise: tuple[int, ...], cold: int, slow: int) -> Warp:
    now, records = 100, []
    for number in range(RANGES):
        start = now
        now += EMPTY + noise[number % len(noise)] + slow + (cold if number < RANGES // 4 else 0)
        now, inside = _inside(program, now)
        records += inside
        records.append(Record(start, now, 0))
        now += AFTER
    return Warp(records, init=0, finish=now + 10)


def _inside(program: MeasuredKernel, now: int) -> tuple[int, list[Record]]:
    made = []
    after, work = (AFTER, 0) if program.kind == ALONE else (HIDDEN, WORK)
    if program.kind == NESTED:
        starts = []
        for _ in range(program.count):
            starts.append(now)
            now += EMPTY + work
        for start in reversed(starts):
            made.append(Record(start, now, 1))
            now += after + work
    elif program.kind == INSTANTS:
        for _ in range(program.count):
            made.append(Record(now, None, 1))
            now += INSTANT + 2 * work
    else:
        for _ in range(program.count):
            made.append(Record(now, now + EMPTY + work, 1))
            now += EMPTY + work + after + work
    rest = MANY - program.count if work else 0
    return now + rest * 2 * work, made
