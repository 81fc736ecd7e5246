"""One kernel's part of a page: its median launch as pictures, all its launches as figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.evidence import plural
from ikp.analysis.page import _curves
from ikp.analysis.page._curves import IterationCurve, iteration_curve
from ikp.analysis.page._grid import Grid, as_address, grid_of, png, shades
from ikp.analysis.page._longest import median_launch, regions_by_time
from ikp.analysis.render import duration

if TYPE_CHECKING:
    from ikp.analysis.evidence import Evidence
    from ikp.analysis.stats import Histogram, RegionStats, Residence, Stats
    from ikp.core.stacks import Stacks
    from ikp.core.trace import Trace

Floats = NDArray[np.float64]

WIDE: Final = 720
"""Width of charts over time, in the page's pixels."""
HIGH: Final = 90
_SM_HIGH: Final = 2
_MOST_REGIONS: Final = 4
"""Regions that get pictures of their own: those with the most self time."""
_MOST_ROWS: Final = 200
"""Rows of the table, and of the tree: those with the most time."""
_BARS: Final = 120
"""Width of a histogram in pixels; its height is 24."""


@dataclass(frozen=True, slots=True)
class Heat:
    """A picture of SMs over time, more opaque with more warps; ``most`` is that of full colour."""

    title: str
    address: str
    height: int
    most: str


@dataclass(frozen=True, slots=True)
class Curve:
    """A path over an axis of time, with ticks in percent of it, and its highest value."""

    path: str
    most: str
    ticks: list[tuple[float, str]]


@dataclass(frozen=True, slots=True)
class RegionRow:
    """A line of the table."""

    region: str
    kind: str
    cells: list[str]
    bars: str  # the histogram's path
    title: str  # what the histogram shows, in words


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A node of the tree, with the share of the warps' time."""

    name: str
    count: str
    total: str
    own: str
    share: float
    children: list[TreeNode]


@dataclass(frozen=True, slots=True)
class KernelPage:
    """One kernel's part of the page."""

    label: str
    facts: list[tuple[str, str]]
    launches: Curve
    median: int  # which launch the pictures are of
    rows_title: str
    sms: str
    block_title: str
    ticks: list[tuple[float, str]]
    blocks: Curve | None
    heats: list[Heat]
    rows: list[RegionRow]
    tree: TreeNode
    iterations: list[IterationCurve]


def _blocks(grid: Grid, ticks: list[tuple[float, str]]) -> Curve:
    """Return the curve of blocks that run at once."""
    most = float(grid.blocks.max(initial=0))
    return Curve(_curves.area(grid.blocks, WIDE, HIGH, most), f"{most:,.0f}", ticks)


def kernel_page(trace: Trace, table: Stats, tree: Stacks, label: str) -> KernelPage:
    """Return a kernel's part; its launches have warps."""
    median, took = median_launch(trace, label)
    rows = [row for row in table if row.launch == label][:_MOST_ROWS]
    top = regions_by_time(table, label)[:_MOST_REGIONS]
    spreads = {one.region: one for one in table.histograms if one.launch == label}
    grid = grid_of(trace, median, top)
    ticks = _time_ticks(grid.duration_ns)
    return KernelPage(
        label=label,
        facts=_facts(took, grid, table, label),
        launches=Curve(_curves.area(took, WIDE, HIGH / 2, took.max()), duration(took.max()), []),
        median=median,
        rows_title="SMs over time" if grid.on_gpu else "Blocks over time, on the CPU",
        sms=grid.named_sms,
        block_title="blocks" if grid.seen.every_block else "recorded blocks",
        ticks=ticks,
        blocks=_blocks(grid, ticks) if grid.on_gpu else None,
        heats=list(_heats(grid)),
        rows=[_row(row, spreads.get(row.region)) for row in rows],
        tree=_branch(tree, label),
        iterations=[*filter(None, (iteration_curve(trace, label, name) for name in top))],
    )


def _facts(took: Floats, grid: Grid, table: Stats, label: str) -> list[tuple[str, str]]:
    (one,) = (each for each in table.evidence if each.launch == label)
    free = [each for each in table.residence if each.launch == label]
    blocks = " or ".join(f"{each:,}" for each in one.blocks[:3])
    found = [
        ("duration", duration(float(np.median(took)))),
        ("launches", f"{one.launches:,}"),
        ("blocks", f"{blocks} of {plural(one.warps_per_block[0], 'warp')}"),
        *_about_sms(grid),
        ("device", " + ".join(one.devices)),
    ]
    if len(took) > 1:
        found.insert(1, ("shortest, longest", f"{duration(took.min())}, {duration(took.max())}"))
    found += [*_in_no_range(free), *_recorded(one, grid)]
    if one.ghz:
        found.append(("clock", f"{one.ghz:.2f} GHz"))
    return found


def _in_no_range(free: list[Residence]) -> Iterator[tuple[str, str]]:
    if all(each.in_no_range_ns is not None for each in free):
        part = sum(each.in_no_range_ns or 0 for each in free)
        whole = sum(each.residence_ns for each in free)
        yield "in no range", f"{100 * part / whole:.1f} %" if whole else "-"


def _recorded(one: Evidence, grid: Grid) -> Iterator[tuple[str, str]]:
    """Yield how many blocks, and warps, recorded, where not all of them did."""
    if not grid.seen.every_block:
        yield "recorded", f"{grid.seen.blocks:,} of {grid.seen.of_blocks:,} blocks"
    if one.warps < one.recordable:
        yield "recorded", f"{one.warps:,} of {one.recordable:,} warps"


def _about_sms(grid: Grid) -> list[tuple[str, str]]:
    if not grid.on_gpu:
        return []
    return [
        ("SMs" if grid.seen.every_block else "SMs of recorded blocks", f"{len(grid.sms):,}"),
        ("waves", "not known" if grid.waves is None else f"{grid.waves:.2f}"),
    ]


def _time_ticks(duration_ns: int) -> list[tuple[float, str]]:
    return [
        (100 * at / duration_ns, duration(at)) for at in _curves.round_ticks(float(duration_ns))
    ]


def _heats(grid: Grid) -> Iterator[Heat]:
    """Yield a picture of all warps, and one for each region: full colour means all of its SM."""
    most = float(grid.warps.max(initial=0)) or 1.0
    height = max(16, min(396, _SM_HIGH * len(grid.sms)))
    whole = as_address(png(shades(grid.warps / most)))
    title = "warps" if grid.seen.every_warp else "warps that recorded"
    yield Heat(title, whole, height, f"{most:,.0f} warps")
    ran = "ran" if grid.recorded is grid.warps and grid.seen.every_warp else "recorded"
    for name, covered in grid.regions.items():
        there = grid.recorded
        part = np.divide(covered, there, out=np.zeros_like(covered), where=there > 0)
        top = min(1.0, float(part.max(initial=0))) or 1.0
        most_shown = f"{100 * top:.0f} % of the warps that {ran} there"
        yield Heat(name, as_address(png(shades(part / top))), height, most_shown)


def _row(row: RegionStats, spread: Histogram | None) -> RegionRow:
    def share(value: float | None) -> str:
        return "" if value is None else f"{100 * value:.1f} %"

    cells = [
        f"{row.count:,}",
        share(row.share),
        share(row.self_share),
        *(duration(each) for each in (row.total_ns, row.mean_ns, row.p50_ns, row.p95_ns)),
    ]
    if spread is None or row.kind != "range":
        return RegionRow(row.region, row.kind, cells, "", "")
    counts, edges = np.sqrt(spread.counts), spread.edges_ns
    words = f"{duration(row.min_ns)} to {duration(row.max_ns)}, most at {_most(counts, edges)}"
    bars = _curves.area(counts, _BARS, 24, float(counts.max()))
    return RegionRow(row.region, row.kind, cells, bars, words)


def _most(counts: Floats, edges: Sequence[float]) -> str:
    place = int(counts.argmax())
    return f"{duration(round(edges[place]))} to {duration(round(edges[place + 1]))}"


def _branch(tree: Stacks, label: str) -> TreeNode:
    """Return one kernel's part of the tree, the largest children first."""
    top, own = tree.names.index(label), tree.own_ns
    whole = tree.total_ns[top] or 1
    children: dict[int, list[int]] = {}
    for node in _largest(tree, top):
        children.setdefault(tree.parents[node], []).append(node)

    def made(node: int) -> TreeNode:
        return TreeNode(
            tree.names[node],
            f"{tree.count[node]:,}",
            f"{100 * tree.total_ns[node] / whole:.1f} %",
            f"{100 * own[node] / whole:.1f} %",
            tree.total_ns[node] / whole,
            [made(each) for each in children.get(node, [])],
        )

    return made(top)


def _largest(tree: Stacks, top: int) -> list[int]:
    """Return the nodes below ``top`` with the most time, down to a depth of ``_DEEPEST``."""
    below, depth = {top}, {top: 0}
    for node, parent in enumerate(tree.parents):  # parents come first
        if parent in below and depth[parent] < _DEEPEST:
            below.add(node)
            depth[node] = depth[parent] + 1
    below.remove(top)
    return sorted(below, key=lambda node: (-tree.total_ns[node], node))[:_MOST_ROWS]


_DEEPEST: Final = 24
