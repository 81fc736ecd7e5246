"""Findings ``low-occupancy`` and ``few-warps``: an SM holds too few warps to hide latency."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ikp.analysis.evidence import plural
from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.counted_work import counted_work
from ikp.analysis.explain.findings.idle_lanes import UNUSED
from ikp.analysis.explain.peaks import peak_of
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import is_counted, nearest
from ikp.analysis.explain.room_on_sms import Room, room_of
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.use_of_hardware import asked_of_memory
from ikp.analysis.explain.verdict import Finding, Number, Where

_FEW: Final = 0.5
"""Share of the warps that an SM has room for, above which twice as many do not fit."""
_WAITS: Final = 0.3
"""Share of the warps' time in memory from which on more warps would have something to hide."""
_EMPTY: Final = 0.0625
"""Share of the warps that an SM has room for, at which each scheduler has one."""
_HALF: Final = 0.5
_MOSTLY: Final = 0.45
"""Share of the warps' time in memory from which on more warps are likely to hide some of it."""
_FAR: Final = 0.7
"""Share of the nearest roof below which few warps are likely to be what keeps a kernel from it."""
_MEMORY: Final = (Activity.WAIT_MEMORY, Activity.LOAD, Activity.STORE)


def occupancy_limits(launch: Prepared) -> Iterator[Finding]:
    """Yield findings where an SM holds few warps: by the grid, or by registers or shared memory."""
    room = room_of(launch)
    yield from _few_warps(launch, room)
    if room.warps is None or room.possible is None or room.limited_by not in _LIMITS:
        return
    if room.waves is None or room.fewest is None:
        return
    regions = launch.regions(_MEMORY)
    share = launch.share_in(regions)
    full = room.warps / room.possible
    at_stake = share * (1 - room.fewest / room.waves) * launch.duration
    alone = full <= _EMPTY and not launch.regions([Activity.MMA]).size
    if alone:
        at_stake = max(at_stake, (1 - max(nearest(launch), 2 * full)) * launch.duration)
    if full > _FEW or (share < _WAITS and not alone) or not enough(launch, at_stake):
        return
    at_stake = min(at_stake, (1 - nearest(launch)) * launch.duration)
    sure = alone or (share >= _MOSTLY and is_counted(launch))
    rows = launch.of_region(regions)
    why = f", of {room.registers} registers for each thread" if room.registers else ""
    yield finding(
        launch,
        "low-occupancy",
        title=f"an SM {'holds' if room.counted else 'has registers for'} {room.warps:.0f} of "
        f"{room.possible} warps, for want of {room.limited_by}{why}, and they spend "
        f"{100 * share:.0f} % of their time in memory",
        number=Number("warps on an SM over those it has room for", full, "ratio"),
        at_stake=at_stake,
        without=f"with room for {room.possible} warps, {plural(room.fewest, 'wave')} of blocks in "
        f"place of {room.waves}, and memory as fast for each",
        confidence="likely" if nearest(launch) < _HALF and sure else "possible",
        rationale=("" if room.counted else _NOT_COUNTED)
        + "more warps hide latency as long as memory has bandwidth left, and where fewer "
        "registers don't spill.",
        where=Where(
            regions=tuple(launch.names[r] for r in regions[:3].tolist()),
            warps=launch.warps(rows),
            window_ns=launch.window(rows),
            count=len(rows),
        ),
        suggestion=_LIMITS[room.limited_by],
    )


def _few_warps(launch: Prepared, room: Room) -> Iterator[Finding]:
    """Yield a finding on a grid that leaves SMs nearly empty, without products or groups of warps.

    Kernels with tensor cores, or with roles, need few warps.
    """
    if room.warps is None or room.possible is None or room.limited_by != "the grid":
        return
    if launch.regions([Activity.MMA]).size or len(launch.groups) > 1 or _leaves_sms(launch):
        return
    full = room.warps / room.possible
    most = max(full, asked_of_memory(launch) or 0.0, nearest(launch))
    waits = launch.regions([*_MEMORY, Activity.WAIT_COPY])
    waiting = launch.share_in(waits)
    sure = counted_work(launch) is not None and nearest(launch) < _FAR
    if launch.facts is None or full > _EMPTY or not enough(launch, (1 - most) * launch.duration):
        return
    yield finding(
        launch,
        "few-warps",
        title=f"an SM has {room.warps:.0f} of the {room.possible} warps that it has room for: the "
        "grid has no more",
        number=Number("warps on an SM over those it has room for", full, "ratio"),
        at_stake=(1 - most) * launch.duration,
        without=f"with the same work spread over {room.possible} warps of each SM",
        confidence="likely" if sure else "possible",
        rationale="what a warp waits for, others could hide; that the work can be cut so fine is "
        "assumed, and that what a block does again and again needs no step before it."
        + (
            f" Counted: no unit of the device is above {100 * nearest(launch):.0f} % of its limit"
            + (
                f", and {100 * waiting:.0f} % of the warps' time waits for memory."
                if waiting
                else "."
            )
            if sure
            else ""
        )
        + " Refuted if more warps take as long.",
        where=Where(count=len(launch.start)),
        suggestion="more warps for each block (num_warps) with less for each lane, or more, "
        "smaller blocks",
    )


def _leaves_sms(launch: Prepared) -> bool:
    """Whether SMs have no block at all: that is told of, and comes first."""
    peak = peak_of(launch.launch.device)
    return launch.every_block and peak is not None and _empty(launch, peak.sms) >= UNUSED


def _empty(launch: Prepared, sms: int) -> float:
    return 1 - len(launch.lanes.sms) / sms


_NOT_COUNTED: Final = "not all blocks recorded: an SM held no more than this, perhaps fewer; "
_LIMITS: Final = {
    "registers": "keep less alive: load late what is needed late, smaller tiles for each warp, or "
    "a limit on registers (maxnreg)",
    "CTA slots": "larger blocks: an SM holds 32 blocks at most, however small they are",
    "shared memory": "fewer stages or smaller tiles, so that another block fits on an SM",
}
