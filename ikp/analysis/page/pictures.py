"""Pictures of a trace's longest kernel, by matplotlib: SMs over time, waves, region durations."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ikp.analysis.counting_regions import stats
from ikp.analysis.page import _curves
from ikp.analysis.page._curves import durations_of
from ikp.analysis.page._grid import COLOUR, Grid, grid_of
from ikp.analysis.page._longest import labels_by_time, median_launch, regions_by_time
from ikp.errors import PluginError
from ikp.terminal import shortened

if TYPE_CHECKING:
    from ikp.core.trace import Trace

_MOST_REGIONS: Final = 4
_BINS: Final = 48
_MOST_TICKS: Final = 7
"""Ticks of the axis of SMs. Rows are of SMs that ran a block, whose numbers may have gaps."""
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "png": {"dpi": 150},
    "svg": {"metadata": {"Date": None}},
    "pdf": {"metadata": {"CreationDate": None}},
}


def draw(trace: Trace, kind: str) -> bytes:
    """Return the pictures of the kernel that took longest, as a file of this kind.

    Raises:
        PluginError: matplotlib is not installed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own deprecations, and letters that its font lacks
        return _drawn(trace, kind)


def _drawn(trace: Trace, kind: str) -> bytes:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PluginError(
            "pictures are drawn by matplotlib, which is not installed. Do: pip install "
            "'ikp[pictures]'"
        ) from error
    figure = Figure(figsize=(10, 8), layout="constrained")
    label = next(iter(labels_by_time(trace)), "")
    if label:
        _kernel(figure, trace, label)
    else:
        figure.suptitle("no warp recorded")
    out = io.BytesIO()
    figure.savefig(out, format=kind, **_OPTIONS[kind])
    return out.getvalue()


def _kernel(figure: Any, trace: Trace, label: str) -> None:
    regions = regions_by_time(stats(trace), label)[:_MOST_REGIONS]
    grid = grid_of(trace, median_launch(trace, label)[0], [])
    heat, waves, spread = figure.subplots(3, 1, height_ratios=[3, 1, 2])
    figure.suptitle(_plain(label))
    _heat(figure, heat, grid)
    steps = np.linspace(0, grid.duration_ns / 1e3, len(grid.blocks) + 1)
    waves.stairs(grid.blocks, steps, fill=True, color=_colour(), alpha=0.6)
    whole = grid.seen.every_block
    title = "waves" if grid.on_gpu else "blocks, one after another on the CPU"
    if not whole:
        title = f"{grid.seen.blocks:,} of {grid.seen.of_blocks:,} blocks recorded"
    waves.set(ylabel="blocks" if whole else "recorded blocks", xlabel="us", title=title)
    waves.set(xlim=(0, steps[-1]))
    for name in regions:
        counts, edges = _curves.histogram(durations_of(trace, label, name), _BINS)
        spread.stairs(counts, edges, label=_plain(name))
    spread.set(xscale="log", xlabel="ns", ylabel="ranges", title="how long ranges took")
    if regions:
        spread.legend()


def _heat(figure: Any, axes: Any, grid: Grid) -> None:
    end = grid.duration_ns / 1e3
    shown = axes.imshow(
        grid.warps,
        aspect="auto",
        interpolation="nearest",
        extent=(0, end, len(grid.sms), 0),
        cmap="Blues",
        vmin=0,
    )
    title = "warps that ran" if grid.seen.every_warp else "warps that recorded"
    axes.set(xlabel="us", ylabel="SM" if grid.on_gpu else "", title=title)
    if not grid.on_gpu:
        axes.set_yticks([])
        return
    rows = np.unique(np.linspace(0, len(grid.sms) - 1, _MOST_TICKS).round().astype(int))
    axes.set_yticks(rows + 0.5, [str(grid.sms[row]) for row in rows])
    figure.colorbar(shown, ax=axes)


def _plain(name: str) -> str:
    """Return a name escaped for matplotlib: no formula, and no label that legends leave out."""
    text = shortened(name).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def _colour() -> tuple[float, ...]:
    return tuple(part / 255 for part in COLOUR)
