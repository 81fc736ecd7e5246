"""A finding's part of a page: its words, a picture of the warps that it names, its source lines.

With a second trace, the same warps of its launch are drawn on the same scale. Both begin at the
same range of the same warp, or else at the same time of the block, or of the launch.

A trace names source files; it may come from elsewhere. A file is read only if the trace was
recorded on this host, the file is of a source language, and nothing was written to it since. What
is not read is named with its reason.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from ikp.analysis.explain.screen import finding_lines
from ikp.analysis.page._picture import Picture, picture_of
from ikp.analysis.page._warp_lanes import Interval, panel_of, slot_of
from ikp.analysis.render import duration
from ikp.core.warps import first_start
from ikp.terminal import printable, shortened

if TYPE_CHECKING:
    from ikp.analysis.explain.prepared import Prepared
    from ikp.analysis.explain.verdict import Finding
    from ikp.core.trace import Trace


SUFFIXES: Final = frozenset(
    (".py", ".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".ptx", ".inl")
)
_AROUND: Final = 3
_LARGEST: Final = 4 << 20
_WIDEST: Final = 200
_SLACK_S: Final = 1.0
"""``recorded`` has whole seconds."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a file, and whether the finding names it."""

    number: int
    text: str
    named: bool


@dataclass(frozen=True, slots=True)
class SourceExcerpt:
    """Lines of one file around those that a finding names; or why there are none."""

    place: str  # "/src/matmul.py:93"
    lines: tuple[SourceLine, ...] = ()
    why_not: str = ""


def excerpts(places: Sequence[str], trace: Trace) -> list[SourceExcerpt]:
    """Return the lines around each place, ``"/src/matmul.py:93"``; near ones are one excerpt."""
    named: dict[str, list[int]] = {}
    for place in places:
        file, _, line = place.rpartition(":")
        if file and line.isdecimal():
            named.setdefault(file, []).append(int(line))
    return [
        _excerpt(file, near, trace)
        for file, numbers in named.items()
        for near in _neighbours(sorted(set(numbers)))
    ]


def _neighbours(numbers: list[int]) -> list[list[int]]:
    """Return line numbers in groups whose contexts meet."""
    groups = [[numbers[0]]]
    for one in numbers[1:]:
        if one - groups[-1][-1] <= 2 * _AROUND + 1:
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def _excerpt(file: str, numbers: list[int], trace: Trace) -> SourceExcerpt:
    place = f"{file}:{', '.join(map(str, numbers))}"
    path = Path(file)
    if why_not := _distrust(path, trace):
        return SourceExcerpt(place, why_not=why_not)
    try:
        text = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except (OSError, ValueError) as error:
        return SourceExcerpt(place, why_not=f"the file can't be read: {type(error).__name__}.")
    if numbers[0] < 1 or numbers[-1] > len(text):
        return SourceExcerpt(place, why_not=f"the file has {len(text):,} lines.")
    first, last = max(1, numbers[0] - _AROUND), min(len(text), numbers[-1] + _AROUND)
    lines = (SourceLine(i, text[i - 1][:_WIDEST], i in numbers) for i in range(first, last + 1))
    return SourceExcerpt(place, tuple(lines))


def _distrust(path: Path, trace: Trace) -> str:
    """Return why a file is not read, as a sentence; nothing if it is the one that was recorded."""
    began = _began(trace)
    if not path.is_absolute():
        return "the trace does not have the file's folder."
    if path.suffix not in SUFFIXES:
        return "its suffix is of no source language."
    if trace.provenance.get("host") not in (platform.platform(), platform.node()):
        return "the trace was recorded on another host."
    if began is None:
        return "the trace does not say when it was recorded."
    return _distrust_file(path, began)


def _distrust_file(path: Path, began: float) -> str:
    try:
        there = path.stat()
        ordinary = path.is_file()
    except (OSError, ValueError):
        return "the file is not on this host."
    if not ordinary or there.st_size > _LARGEST:
        return f"it is no file of at most {_LARGEST >> 20} MiB."
    if there.st_mtime > began + _SLACK_S:
        return "the file has changed since the recording."
    return ""


def _began(trace: Trace) -> float | None:
    """Return a Unix time, in s, at which the program ran; its first warp's where that is known."""
    try:
        recorded = datetime.fromisoformat(trace.provenance.get("recorded", "")).timestamp()
    except ValueError:
        return None
    clocks = [one.clock for one in trace.launches]
    if clocks and all(one.kind == "host" or one.unix_bound_ns is not None for one in clocks):
        return min(recorded, first_start(trace) / 1e9)
    return recorded


MOST_DRAWN: Final = 6
"""Findings that are drawn; those with less at stake are words."""
_MOST_BLOCKS: Final = 2


@dataclass(frozen=True, slots=True)
class Side:
    """A launch, and which of two traces it is of: ``"before"``, ``"after"``, or ``""``."""

    name: str
    launch: Prepared


@dataclass(frozen=True, slots=True)
class FindingPart:
    """A finding on the page."""

    title: str
    lines: list[str]
    rationale: str
    pictures: list[Picture]
    undrawn: str  # why there is no picture, or none of the other trace
    excerpts: list[SourceExcerpt]


@dataclass(frozen=True, slots=True)
class _View:
    """What to draw of a launch, and the range of a warp that the interval is placed by."""

    blocks: tuple[int, ...]
    warps: tuple[tuple[int, int], ...]
    regions: tuple[str, ...]
    interval: Interval
    mark: Interval | None
    what: str
    example: int | None = None  # a range


def finding_part(
    finding: Finding,
    side: Side,
    other: Side | None,
    *,
    was: Finding | None,
    draw: bool,
    sources: bool,
) -> FindingPart:
    """Return a finding of one launch, with the same warps of another, which had ``was``."""
    title, *lines = finding_lines(finding)
    if was is not None and other is not None:
        lines.append(f"{other.name}: {printable(was.title)}; {printable(was.what_if)}")
    view = _view_of(side.launch, finding) if draw else None
    pictures, undrawn = _drawn(side, other, view) if view else ([], "")
    if draw and view is None:
        undrawn = "It names no block: the SMs over time, below, show the launch whole."
    if not draw:
        undrawn = "It is not drawn, so that the page stays small."
    found = excerpts(finding.where.lines, side.launch.trace) if sources else []
    why = f"{finding.confidence}: {finding.rationale}"
    return FindingPart(title, lines, why, pictures, undrawn, found)


def median_block(side: Side, other: Side | None) -> tuple[list[Picture], str]:
    """Return the block of median duration, of those that recorded, and what is missing of it."""
    launch = side.launch
    block = _median_block(launch)
    view = _View((block,), (), (), _wide(_life(launch, block)), None, ", of median duration")
    return _drawn(side, other, view)


def _median_block(launch: Prepared) -> int:
    took = launch.block_end - launch.block_start
    return int(launch.block_ids[np.argsort(took, kind="stable")[(len(took) - 1) // 2]])


def _view_of(launch: Prepared, finding: Finding) -> _View | None:
    """Return what to draw of a finding; None where it names no block that recorded."""
    where = finding.where
    named = [one for one in dict.fromkeys(b for b, _ in where.warps) if one in launch.block_ids]
    if not named:
        return None
    if where.regions and where.window_ns is not None:
        return _of_ranges(launch, finding, named[0])
    usual = _median_block(launch)
    blocks = tuple(dict.fromkeys([*named[:_MOST_BLOCKS], usual]))
    what = "" if usual in named[:_MOST_BLOCKS] else f"; block {usual:,} is of median duration"
    return _View(blocks, where.warps, (), _wide((0, launch.duration)), where.window_ns, what)


def _of_ranges(launch: Prepared, finding: Finding, block: int) -> _View:
    """Return the view of a range of a finding, thrice as wide as its window, within the block."""
    where = finding.where
    low, high = where.window_ns or (0, 0)
    begin, end = _life(launch, block)
    interval = max(begin, 2 * low - high), min(end, 2 * high - low)
    if interval[1] <= interval[0]:
        interval = begin, end
    example = _example(launch, finding)
    mark = (low, high)
    if example is not None:
        mark = int(launch.opens[example]), int(launch.closes[example])
    return _View((block,), where.warps, where.regions, _wide(interval), mark, "", example)


def _example(launch: Prepared, finding: Finding) -> int | None:
    """Return the range that a finding's window is around, in the warp that it names first."""
    where = finding.where
    slot = slot_of(launch, *where.warps[0])
    if slot is None or where.window_ns is None:
        return None
    rows = launch.of_slot(slot)
    numbers = [i for i, name in enumerate(launch.names) if name in where.regions]
    rows = rows[np.isin(launch.region[rows], numbers)]
    margin = np.maximum(launch.took(rows), 1)
    low = np.maximum(launch.opens[rows] - margin, 0)
    high = np.minimum(launch.closes[rows] + margin, np.maximum(launch.duration, low))
    found = rows[(low == where.window_ns[0]) & (high == where.window_ns[1])]
    return int(found[0]) if len(found) else None


def _drawn(side: Side, other: Side | None, view: _View) -> tuple[list[Picture], str]:
    """Return the pictures of a launch, and of another on the same scale, the one before first."""
    if other is None:
        return [_picture(side, view)], ""
    placed = _placed(side.launch, other.launch, view)
    if isinstance(placed, str):
        return [_picture(side, view)], f"{other.name}: {placed}"
    view, theirs = placed
    found = [_picture(side, view), _picture(other, theirs)]
    return (found if side.name == "before" else found[::-1]), ""


def _picture(side: Side, view: _View) -> Picture:
    low, high = view.interval
    panel = panel_of(side.launch, view.blocks, view.interval, view.warps)
    blocks = ", ".join(f"{one:,}" for one in view.blocks)
    caption = (
        f"{side.name + ': ' if side.name else ''}block{'s' * (len(view.blocks) > 1)} {blocks}"
        f"{view.what}, {duration(high - low)} from {duration(low)} of launch {side.launch.index}"
    )
    return picture_of(side.launch, panel, caption, view.regions, view.mark)


def _placed(launch: Prepared, other: Prepared, view: _View) -> tuple[_View, _View] | str:
    """Return both views, as long as each other; or why there is none of the other launch."""
    blocks = tuple(one for one in view.blocks if one in other.block_ids)
    low, high = view.interval
    if not blocks:
        return f"block {view.blocks[0]:,} did not record there."
    if view.example is None and len(view.blocks) > 1:
        high = max(high, low + other.duration)
        wide = _View(view.blocks, view.warps, (), (low, high), view.mark, view.what)
        return wide, _View(blocks, view.warps, (), (low, high), None, "")
    mine, theirs = (_life(one, view.blocks[0])[0] for one in (launch, other))
    begin, what = low - mine + theirs, ", the same time after the block's start"
    mark = None
    if view.example is not None and (same := _same_range(launch, other, view.example)) is not None:
        row, number = same
        begin = int(other.opens[row]) - (int(launch.opens[view.example]) - low)
        name = shortened(other.names[int(other.region[row])])
        what = f", placed by the same range of the same warp ({name}, number {number + 1:,})"
        mark = int(other.opens[row]), int(other.closes[row])
    interval = begin, begin + high - low
    return view, _View(blocks, view.warps, view.regions, interval, mark, what)


def _life(launch: Prepared, block: int) -> Interval:
    """Return from when to when a block ran."""
    row = int(np.flatnonzero(launch.block_ids == block)[0])
    return int(launch.block_start[row]), int(launch.block_end[row])


def _same_range(launch: Prepared, other: Prepared, row: int) -> tuple[int, int] | None:
    """Return another launch's range of the same warp, region and number; and this number."""
    slot = int(launch.slot[row])
    theirs = slot_of(other, *launch.warp(slot))
    if theirs is None:
        return None
    name = launch.names[int(launch.region[row])]
    mine = _in_turn(launch, slot, name)
    there = _in_turn(other, theirs, name)
    number = mine.index(row)
    return (there[number], number) if number < len(there) else None


def _in_turn(launch: Prepared, slot: int, name: str) -> list[int]:
    """Return a warp's ranges of a name, in the order of their starts."""
    rows = launch.of_slot(slot)
    numbers = [i for i, each in enumerate(launch.names) if each == name]
    found = rows[np.isin(launch.region[rows], numbers)]
    ordered: list[int] = found[np.argsort(launch.opens[found], kind="stable")].tolist()
    return ordered


def _wide(interval: Interval) -> Interval:
    return interval[0], max(interval[1], interval[0] + 1)
