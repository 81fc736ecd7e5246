"""Findings ``serial-mma`` and ``epilogue``: warps that multiply, with no product under way.

Another product on their SM could hide what they do then. It is that of the next step, where each
product is waited for before the work on its result (serialised), or that of the next tile, where an
epilogue overlaps nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.beside import with_beside
from ikp.analysis.explain.prepared import Ints, Prepared
from ikp.analysis.explain.products import Products, products
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number, Where
from ikp.analysis.explain.warp_regions import at_once

Rows = NDArray[np.intp]

_HIDEABLE: Final = (Activity.COMPUTE, Activity.STORE, Activity.UNKNOWN, Activity.LOAD)
"""Activities that products can hide; waits have findings of their own."""
_EACH: Final = 0.5
"""Ranges of a region per range that multiplies, from which on the region is part of each step."""
_INEXACT: Final = 0.08
"""Share below which there is no finding: groups that alternate never fit exactly. Two warpgroups of
a kernel on an H200 that alternate left 5.5 %."""
_INNER: Final = 0.9
"""Share of self time from which on a region counts by its own activity, not by the ranges in it."""


def idle_products(launch: Prepared) -> Iterator[Finding]:
    """Yield findings on the regions in which warps that multiply leave tensor cores idle."""
    made = products(launch)
    if made is None or not made.multiplies.any():
        return
    exposed = _exposed(launch, made)
    did = launch.by_warp
    multiplies = made.multiplies[did.slot]
    life = float((launch.end - launch.start)[made.multiplies].sum())
    busy = made.busy_share(launch)
    each, apart = list[int](), list[int]()
    for region in np.flatnonzero(exposed).tolist():
        count = int(did.count[multiplies & (did.region == region)].sum())
        (each if count >= _EACH * made.count else apart).append(region)
    for name, regions in (("serial-mma", each), ("epilogue", apart)):
        rows = _counted(launch, made, regions, but_last=regions is apart)
        idle = (
            int(exposed[regions].sum())
            if regions is each
            else _idle(launch, made, rows, launch.opens[rows], launch.closes[rows])
        )
        share = idle / max(life, 1.0)
        if len(rows) and enough(launch, min(share, busy) * launch.duration, _INEXACT):
            regions.sort(key=lambda region: -exposed[region])
            beside = _idle(launch, made, rows, *with_beside(launch, rows)) / max(life, 1.0)
            yield _found(launch, made, name, regions, _Shares(share, max(beside, share), busy))


def _exposed(launch: Prepared, made: Products) -> Ints:
    """Return, by region, the time in which no product was under way, of warps that multiply."""
    hideable = launch.regions(_HIDEABLE)
    totals = launch.took_by_region
    inner = [r for r in hideable.tolist() if launch.own_by_region[r] >= _INNER * totals[r]]
    rows = launch.of_region(inner)
    rows = rows[made.multiplies[launch.slot[rows]]]
    found = np.zeros(len(launch.names), np.int64)
    for some in at_once(len(rows)):
        mine = rows[some]
        covered = _covered(launch, made, mine, launch.opens[mine], launch.closes[mine])
        np.add.at(found, launch.region[mine], launch.took(mine) - covered)
    return found


def _counted(launch: Prepared, made: Products, regions: list[int], but_last: bool) -> Rows:
    """Return the ranges of some regions of warps that multiply.

    Args:
        launch: the launch.
        made: its products.
        regions: which.
        but_last: leave out the last range of each warp that has several of a region: no product of
            the block follows that could hide it.
    """
    found = [np.zeros(0, np.intp)]
    for region in regions:
        rows = launch.of_region([region])
        rows = rows[made.multiplies[launch.slot[rows]]]
        rows = launch.in_order(rows)
        slot = launch.slot[rows]
        last = np.diff(slot, append=-1) != 0
        last[np.diff(slot, prepend=-1) != 0] = False
        found.append(rows[~last] if but_last else rows)
    return np.concatenate(found)


def _idle(launch: Prepared, made: Products, rows: Rows, opens: Ints, closes: Ints) -> int:
    """Return how long no product was under way, of the time from ``opens`` to ``closes``."""
    return sum(
        int((closes[some] - opens[some]).sum())
        - int(_covered(launch, made, rows[some], opens[some], closes[some]).sum())
        for some in at_once(len(rows))
    )


def _covered(launch: Prepared, made: Products, rows: Rows, opens: Ints, closes: Ints) -> Ints:
    return made.covered.inside(made.sm[launch.slot[rows]], opens, closes)


@dataclass(frozen=True, slots=True)
class _Shares:
    """Shares of the time of warps that multiply."""

    idle: float  # in ranges that products could hide, with none under way
    beside: float  # the same, with the time beside these ranges
    busy: float  # of the SMs' time: with a product under way


def _found(
    launch: Prepared, made: Products, name: str, regions: list[int], shares: _Shares
) -> Finding:
    names = [launch.names[region] for region in regions]
    rows = launch.of_region(regions[:1])
    rows = rows[made.multiplies[launch.slot[rows]]]
    serial = name == "serial-mma"
    listed = ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
    by_code = all(launch.known[r].by in ("machine code", "mark") for r in regions)
    groups = launch.groups
    who = sorted({groups.names[g] for g in groups.of_warp[made.multiplies].tolist()})
    return finding(
        launch,
        name,
        title=(
            f"no product is under way while {listed} runs after each one"
            if serial
            else f"tensor cores are idle during {listed}, between tiles or at the end"
        )
        + f": {100 * shares.idle:.0f} % of the warps' time, with a product under way in "
        f"{100 * shares.busy:.0f} %",
        number=Number(
            f"{names[0]} with no product under way, of the warps' time", shares.idle, "share"
        ),
        at_stake=min(shares.beside, shares.busy) * launch.duration,
        without=f"with {listed}, and the time in no range beside, hidden by products",
        confidence="measured" if by_code else "likely",
        rationale="a product lasts from its range's start to the end of the wait for it, on any "
        "warp of the SM that recorded; what warps do right beside these ranges, in none, counts as "
        "theirs" + ("." if by_code else "; what the ranges are is read from their names."),
        where=Where(
            regions=tuple(names[:4]),
            roles=tuple(who) if groups.by == "role" else (),
            warps=launch.warps(rows),
            window_ns=launch.window(rows),
            count=len(rows),
        ),
        suggestion=(
            "issue the next product before what needs the last one, and wait for it after that; or "
            "let two groups of warps alternate"
            if serial
            else "let another group of warps multiply the next tile meanwhile, or give the "
            "epilogue to warps of its own"
        ),
    )
