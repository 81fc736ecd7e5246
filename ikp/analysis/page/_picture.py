"""``Picture``: a ``Panel``'s boxes as numbers and texts, which the page's template makes SVG of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isnan
from typing import TYPE_CHECKING, Final

from ikp.analysis.explain.activity import Activity
from ikp.analysis.page import _curves
from ikp.analysis.page._warp_lanes import Box, Interval, Lane, Panel
from ikp.analysis.render import duration
from ikp.terminal import shortened

if TYPE_CHECKING:
    from ikp.analysis.explain.prepared import Prepared

LEVEL: Final = 13
"""Height of a range, in pixels."""
_HEAD: Final = 16
_BETWEEN: Final = 4
_AXIS: Final = 18
_TICKS: Final = 4
_LABELLED: Final = 5.0
"""Percent of the interval from which on a box shows its name."""
_NAME: Final = 60
_PARTS: Final = 3
_CLASSES: Final = {
    Activity.MMA: ("mma", "products"),
    Activity.COPY: ("copy", "issues copies"),
    Activity.LOAD: ("load", "loads"),
    Activity.STORE: ("store", "stores"),
    Activity.COMPUTE: ("compute", "computes"),
    Activity.AROUND: ("around", "around others"),
    Activity.UNKNOWN: ("other", "others"),
}
_WAITS: Final = ("wait", "waits")
_MANY: Final = ("many", "several ranges, heights by their time")
_NAMED: Final = ("named", "of the finding")


@dataclass(frozen=True, slots=True)
class Rect:
    """A box; ``text`` is shown in it where it is wide enough.

    One of several ranges has a part for each activity, as tall as its share of their self time.
    """

    x: str  # percent
    width: str
    y: int
    kind: str  # its CSS classes; "many" of several ranges
    title: str
    text: str
    parts: list[tuple[str, str, str]]  # of several ranges: CSS class, y, height


@dataclass(frozen=True, slots=True)
class Picture:
    """A panel, drawn."""

    caption: str
    height: int
    begin: int
    span: int
    heads: list[tuple[int, str]]
    labels: list[tuple[int, str]]
    lives: list[tuple[int, int, str, str]]  # y, height, x, width
    rects: list[Rect]
    ticks: list[tuple[str, str, str]]  # x, text, which side of the tick the text is on
    mark: tuple[str, str] | None
    kinds: dict[str, str]  # what the CSS classes mean
    notes: list[str]


def picture_of(
    launch: Prepared, panel: Panel, caption: str, regions: Sequence[str], mark: Interval | None
) -> Picture:
    """Return a panel as SVG's numbers.

    Args:
        launch: the launch that it is of.
        panel: the panel.
        caption: what it shows.
        regions: the names of regions that are outlined.
        mark: an interval that is marked.
    """
    span = max(1, panel.end - panel.begin)

    def place(opens: int, closes: int) -> tuple[str, str]:
        low = min(max(opens, panel.begin), panel.end)
        high = min(max(closes, low), panel.end)
        return percent(low - panel.begin, span), percent(high - low, span)

    heads, labels, lives, rects = [], [], [], []
    used: dict[str, str] = {}
    y = 0
    for (block, sm, group), lanes in groupby(panel.lanes, _group):
        where = f"block {block:,} on SM {sm}" if launch.on_gpu else f"block {block:,}"
        name = "" if group == "all warps" else f": {shortened(group)}"
        heads.append((y + _HEAD - 4, where + name))
        y += _HEAD
        for lane in lanes:
            tall = lane.levels * LEVEL
            labels.append((y + 10, f"{lane.warp}"))
            lives.append((y, tall, *place(lane.start, lane.end)))
            for box in lane.boxes:
                kind, named = _kind(launch, box, regions)
                used.update(named)
                x, width = place(box.opens, box.closes)
                name = _what(launch.names[box.region]) if box.count == 1 else ""
                rects.append(
                    Rect(
                        *(x, width, y + box.level * LEVEL, kind, _title(launch, lane, box)),
                        name if float(width) >= _LABELLED else "",
                        _parts(launch, box, y + box.level * LEVEL) if box.count > 1 else [],
                    )
                )
            y += tall + _BETWEEN
    return Picture(
        *(caption, y + _AXIS, panel.begin, span, heads, labels, lives, rects),
        list(_ticks(panel.begin, span)),
        None if mark is None else place(*mark),
        used,
        list(_notes(panel)),
    )


def _group(lane: Lane) -> tuple[int, int, str]:
    return lane.block, lane.sm, lane.group


def legend_of(pictures: Sequence[Picture]) -> list[tuple[str, str]]:
    """Return the CSS classes of some pictures, and what they mean."""
    order = [_WAITS, *_CLASSES.values(), _MANY, _NAMED]
    return [(kind, text) for kind, text in order if any(kind in one.kinds for one in pictures)]


def percent(part: int, whole: int) -> str:
    """Return a share in percent, so exactly that nanoseconds differ."""
    return f"{100 * part / whole:.9f}".rstrip("0").rstrip(".")


def _kind(launch: Prepared, box: Box, regions: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return a box's CSS classes, and what they mean."""
    if box.count > 1:
        return _MANY[0], dict([_MANY, *(_class(launch, region) for region, _ in box.own_ns)])
    found = [_class(launch, box.region)]
    if launch.names[box.region] in regions:
        found.append(_NAMED)
    return " ".join(each for each, _ in found), dict(found)


def _class(launch: Prepared, region: int) -> tuple[str, str]:
    """Return a region's CSS class and its meaning: a kernel, too, is around what is in it."""
    activity = launch.known[region].activity
    holds = 2 * launch.own_by_region[region] < launch.took_by_region[region]
    if holds and activity in (Activity.COMPUTE, Activity.UNKNOWN):
        activity = Activity.AROUND
    return _WAITS if activity.waits else _CLASSES[activity]


def _parts(launch: Prepared, box: Box, y: int) -> list[tuple[str, str, str]]:
    times: dict[str, int] = {}
    for region, own in box.own_ns:
        kind = _class(launch, region)[0]
        times[kind] = times.get(kind, 0) + own
    whole, at, found = max(1, sum(times.values())), float(y), []
    for kind, own in sorted(times.items(), key=lambda one: -one[1]):
        tall = (LEVEL - 1) * own / whole
        found.append((kind, f"{at:.2f}", f"{tall:.2f}"))
        at += tall
    return found


def _title(launch: Prepared, lane: Lane, box: Box) -> str:
    name, took = _short(launch.names[box.region]), box.closes - box.opens
    since = f"from {duration(box.opens)}"
    if box.count > 1:
        parts = ", ".join(
            f"{duration(own)} {_short(launch.names[region])}" for region, own in box.own_ns[:_PARTS]
        )
        more = ", ..." if len(box.own_ns) > _PARTS else ""
        within = f"in {duration(took)} {since}"
        return f"warp {lane.warp}: {box.count:,} ranges {within}: {parts}{more}"
    payload = "" if isnan(box.payload) else f" ({box.payload:g})"
    return f"warp {lane.warp}: {name}{payload}, {duration(took)} {since}"


def _what(name: str) -> str:
    """Return an automatic range's name without its file and line, which the title has."""
    return _short(name.partition(" @")[0] or name)


def _short(name: str) -> str:
    text = shortened(name)
    return text if len(text) <= _NAME else f"{text[: _NAME - 1]}\u2026"


def _ticks(begin: int, span: int) -> Iterator[tuple[str, str, str]]:
    """Yield round times of the launch within the interval."""
    found = _curves.round_ticks(float(span), _TICKS)
    step = max(1, round(found[1])) if len(found) > 1 else span
    for at in range(-(-begin // step) * step, begin + span + 1, step):
        share = (at - begin) / span
        side = "start" if share < 0.06 else "end" if share > 0.94 else "middle"
        yield percent(at - begin, span), duration(at), side


def _notes(panel: Panel) -> Iterator[str]:
    if len(panel.lanes) < panel.of_warps:
        yield f"{len(panel.lanes)} of {panel.of_warps:,} warps are drawn."
    if panel.merged:
        yield f"{panel.merged:,} short ranges are drawn as one with their neighbours."
    if panel.deeper:
        yield f"{panel.deeper:,} ranges that are nested deeper are not drawn."
