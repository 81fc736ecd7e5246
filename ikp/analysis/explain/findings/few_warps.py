"""Findings on too few warps to hide latency: ``low-occupancy``, ``few-warps``, ``few-blocks``.

An SM has room for 64 warps. Fewer are there by registers, by shared memory, by the 32 blocks that
it holds of any size, or by the grid. What a launch's size alone decides (threads of a block, blocks
of the grid, warps of a tile) is held against the nearest roof, and not against what ranges say of
waits: those are others with other marks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Final

from ikp.analysis.evidence import plural
from ikp.analysis.explain.activity import MEMORY, Activity
from ikp.analysis.explain.counted_work import CountedWork, counted_work
from ikp.analysis.explain.findings.idle_sms import UNUSED
from ikp.analysis.explain.findings.tiles import TILES
from ikp.analysis.explain.peaks import peak_of
from ikp.analysis.explain.places import where_of_rows
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import is_counted, nearest
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.use_of_hardware import (
    Room,
    asked_of_memory,
    blocks_without_shared,
    room_for_blocks,
    room_of,
    warps_by_registers,
)
from ikp.analysis.explain.verdict import Finding, Number, Where
from ikp.core.code_facts import LoopFacts
from ikp.core.run_figures import CARVE_OUT

_FEW: Final = 0.5
"""Share of the warps that an SM has room for, above which twice as many do not fit."""
_WAITS: Final = 0.3
"""Share of the warps' time in memory from which on more warps would have something to hide."""
_EMPTY: Final = 0.0625
"""Share of the warps that an SM has room for, at which each scheduler has one."""
_HALF: Final = 0.5
_MOSTLY: Final = 0.45
"""Share of the warps' time in memory from which on more warps are likely to hide some of it."""
_NEARLY_ALL: Final = 0.9
"""The same where the code needs the registers that leave room for so few."""
_OF_TWICE: Final = 0.5
"""Part of the waits that twice as many warps hide, at most: more may hide more, or need more."""
_FAR_BELOW: Final = 0.7
"""Share of the nearest roof below which few warps are likely to be what keeps a kernel from it."""


def occupancy_limits(launch: Prepared) -> Iterator[Finding]:
    """Yield findings where an SM holds few warps: by the grid, or by registers or shared memory."""
    room = room_of(launch)
    yield from [*_long_blocks(launch, room), *_few_for_a_tile(launch, room)] or _few_warps(
        launch, room
    )
    held = _held(launch, room)
    if held is None or held.full > _FEW:
        return
    won = _won_by_room(launch, room, held)
    if (held.share >= _WAITS or held.alone or held.part > 0) and enough(launch, won):
        left = (1 - nearest(launch)) * launch.duration
        yield _low_occupancy(launch, room, held, min(won, left))


@dataclass(frozen=True, slots=True)
class _Held:
    """The warps that an SM holds of those it has room for, and what these wait for."""

    full: float  # share of the warps that it has room for
    waves: int  # of blocks
    fewest: int  # the same, with all the warps that it has room for
    waits: float  # share of the warps' time in memory
    share: float  # the same, with barriers and the time between blocks where it is ``lone``
    part: float  # of what more warps win, that of a launch's options: ``_by_launch``
    alone: bool  # each scheduler has one warp at most, without products
    lone: bool  # one block without products: ``_is_lone``


def _held(launch: Prepared, room: Room) -> _Held | None:
    """Return what an SM holds; None where that is unknown, or limited by nothing of the code."""
    if room.warps is None or room.possible is None or room.limited_by not in _LIMITS:
        return None
    if room.waves is None or room.fewest is None:
        return None
    full, lone = room.warps / room.possible, _is_lone(launch, room)
    waits = launch.share_in(launch.regions(MEMORY))
    return _Held(
        full,
        room.waves,
        room.fewest,
        waits,
        min(waits + _between(launch), 1.0) if lone else waits,
        _by_launch(launch, room),
        alone=full <= _EMPTY and not launch.regions([Activity.MMA]).size,
        lone=lone,
    )


def _won_by_room(launch: Prepared, room: Room, held: _Held) -> float:
    """Return the time, in ns, that as many warps win as an SM has room for; roofs apart."""
    won = [held.waits * (1 - held.fewest / held.waves) * launch.duration]
    if held.part > 0:
        won.append(held.part * _won_by_warps(launch, room) * launch.duration)
    if held.alone:
        won.append((1 - max(nearest(launch), 2 * held.full)) * launch.duration)
    if held.lone:  # nothing runs while it waits at barriers, begins and ends
        fewest = -(-held.waves // blocks_without_shared(launch))
        by_room = held.share * (1 - fewest / held.waves) * launch.duration
        won = [*won, by_room] if held.alone else [by_room]
    return max(won)


def _low_occupancy(launch: Prepared, room: Room, held: _Held, at_stake: float) -> Finding:
    """Return the finding on few warps of an SM, for want of registers or shared memory."""
    regions = launch.regions(MEMORY)
    why = f", of {room.registers} registers for each thread" if room.registers else ""
    carved = _carved_out(launch, room)
    if carved:
        why = f", of which a carve-out leaves {carved} % of L1"
    return finding(
        launch,
        "low-occupancy",
        title=f"an SM {'holds' if room.counted else 'has registers for'} {room.warps:.0f} of "
        f"{room.possible} warps, for want of {room.limited_by}{why}, and they spend "
        f"{100 * held.share:.0f} % of their time in memory"
        + (", at barriers and between blocks" if held.lone else ""),
        number=Number("warps on an SM over those it has room for", held.full, "ratio"),
        at_stake=at_stake,
        without=f"with room for {room.possible} warps, {plural(held.fewest, 'wave')} of blocks in "
        f"place of {held.waves}, and memory as fast for each",
        confidence="likely" if _is_likely(launch, room, held, carved=bool(carved)) else "possible",
        rationale=("" if room.counted else _NOT_COUNTED)
        + "more warps hide latency as long as memory has bandwidth left, and where fewer "
        "registers don't spill.",
        where=where_of_rows(
            launch,
            launch.of_region(regions),
            tuple(launch.names[r] for r in regions[:3].tolist()),
        ),
        suggestion=_LEFT_TO_THE_DRIVER if carved else _LIMITS[room.limited_by or ""],
    )


def _is_likely(launch: Prepared, room: Room, held: _Held, *, carved: bool) -> bool:
    """Whether few warps are likely to be what keeps a launch from its nearest roof."""
    small = held.part > 0
    if nearest(launch) >= (_FAR_BELOW if held.lone or small else _HALF):
        return False
    if carved:
        return held.share >= _MOSTLY
    needed = room.limited_by == "registers"  # by the code, and not given by a launch
    waits = held.share >= (_NEARLY_ALL if needed else _MOSTLY)
    return held.alone or ((small or waits) and (held.lone or is_counted(launch)))


_OF_SHARED: Final = 0.5
"""Part of what as many warps win that less shared memory wins: it may cost work."""


def _by_launch(launch: Prepared, room: Room) -> float:
    """Return the part of what more warps win that a launch's options win; 0 where they limit none.

    Tiles of products need their memory.
    """
    if not room.counted or not _is_whole(launch) or _multiplies(launch):
        return 0.0
    if room.limited_by == "CTA slots":
        return 1.0
    full = (room.warps or 0.0) / (room.possible or 1)
    return _OF_SHARED if room.limited_by == "shared memory" and full <= _PART else 0.0


def _is_whole(launch: Prepared) -> bool:
    """Whether all work is counted: loops of unknown trips may keep a unit busy."""
    work = counted_work(launch)
    return work is not None and sum(work.uncounted.values()) < _FEW_UNCOUNTED


_FEW_UNCOUNTED: Final = 8.0
"""Instructions in loops of unknown trips up to which these are next to nothing."""
_REACHED: Final = 0.9
"""Part of what the nearest roof allows that kernels with enough warps reach."""


def _won_by_warps(launch: Prepared, room: Room) -> float:
    """Return the share of the launch that as many warps win as an SM has room for.

    Far below all roofs, a launch waits for latencies, of any kind: twice the warps take half as
    long, up to the nearest roof.
    """
    by_registers = warps_by_registers(room.registers or 1, _BLOCK)
    most = min(room.possible or 1, max(by_registers, 1))
    left = max((room.warps or 0.0) / most, nearest(launch) / _REACHED)
    return max(1 - left, 0.0)


_BLOCK: Final = 4
"""Warps of a block of usual size."""


_LEFT_TO_THE_DRIVER: Final = (
    "leave the carve-out to the driver (no cudaFuncAttributePreferredSharedMemoryCarveout, or its "
    "default), or ask for as much as the blocks take that an SM has room for"
)


def _carved_out(launch: Prepared, room: Room) -> str:
    """Return the carve-out, in percent, that keeps blocks from an SM; empty where none does."""
    text = launch.trace.provenance.get(f"{CARVE_OUT}{launch.launch.label}", "")
    held = (room.warps or 0.0) / launch.launch.warps_per_block
    keeps = room.counted and room.limited_by == "shared memory" and text.isdecimal()
    return text if keeps and held < room_for_blocks(launch) else ""


def _is_lone(launch: Prepared, room: Room) -> bool:
    """Whether shared memory, which a launch gives, leaves an SM one block, without products."""
    multiplies = launch.regions([Activity.MMA, Activity.WAIT_MMA]).size
    alone = room.warps == launch.launch.warps_per_block
    return room.counted and alone and room.limited_by == "shared memory" and not multiplies


def _between(launch: Prepared) -> float:
    """Return the share of the time at barriers, and between blocks, that others could hide."""
    lanes = launch.lanes
    switch = lanes.switch / max(lanes.count * launch.duration, 1)
    return launch.share_in(launch.regions([Activity.WAIT_BARRIER])) + switch


def _few_warps(launch: Prepared, room: Room) -> Iterator[Finding]:
    """Yield a finding on a grid that leaves SMs nearly empty, without products or groups of warps.

    Kernels with tensor cores, or with roles, need few warps.
    """
    if room.warps is None or room.possible is None or room.limited_by != "the grid":
        return
    full = room.warps / room.possible
    if full > _EMPTY or not _wants_warps(launch):
        return
    waiting = launch.share_in(launch.regions([*MEMORY, Activity.WAIT_COPY]))
    sure = counted_work(launch) is not None and nearest(launch) < _FAR_BELOW
    won = _won_by_spreading(launch, full, waiting)
    if not enough(launch, won * launch.duration):
        return
    yield finding(
        launch,
        "few-warps",
        title=f"an SM has {room.warps:.0f} of the {room.possible} warps that it has room for: the "
        "grid has no more",
        number=Number("warps on an SM over those it has room for", full, "ratio"),
        at_stake=won * launch.duration,
        without=f"with the same work spread over {room.possible} warps of each SM",
        confidence="likely" if sure and waiting >= _NEARLY_ALL else "possible",
        rationale="what a warp waits for, others could hide; that the work can be cut so fine is "
        "assumed, and that what a block does again and again needs no step before it."
        + (_idle_units(launch, waiting) if sure else "")
        + " Refuted if more warps take as long.",
        where=Where(count=len(launch.start)),
        suggestion="more warps for each block (num_warps) with less for each lane, or more, "
        "smaller blocks",
    )


def _wants_warps(launch: Prepared) -> bool:
    """Whether a kernel of known code has neither products nor roles, and leaves no SM idle."""
    multiplies = bool(launch.regions([Activity.MMA]).size)
    alike = not multiplies and len(launch.groups) <= 1
    return launch.facts is not None and alike and not _leaves_sms(launch)


def _won_by_spreading(launch: Prepared, full: float, waiting: float) -> float:
    """Return the share of the launch that the same work wins, spread over all warps of an SM.

    Args:
        launch: the launch.
        full: share of the warps that an SM has room for.
        waiting: share of the warps' time in waits for memory.
    """
    left = 1 - max(full, asked_of_memory(launch) or 0.0, nearest(launch))
    return min(left, waiting * _OF_TWICE) if waiting >= _NEARLY_ALL else left


def _idle_units(launch: Prepared, waiting: float) -> str:
    """Return the sentence on how far units are from their limits."""
    waits = f", and {100 * waiting:.0f} % of the warps' time waits for memory" if waiting else ""
    most = f"{100 * nearest(launch):.0f} %"
    return f" Counted: no unit of the device is above {most} of its limit{waits}."


_PART: Final = 0.3
"""Share of the warps that an SM has room for, up to which more blocks are likely to be faster."""
_PIECES: Final = 4.0
"""Pieces of work that each block makes, one after another, from which on blocks can be more."""


def _long_blocks(launch: Prepared, room: Room) -> Iterator[Finding]:
    """Yield a finding on few blocks that each make several pieces of work, one after another.

    A piece is an iteration of a loop around the loop that stores its results: what one iteration
    stores no other one reads, and other blocks can make it.
    """
    if not _lacks_blocks(launch, room):
        return
    full, pieces = (room.warps or 0.0) / (room.possible or 1), _pieces(launch)
    won = _won_by_warps(launch, room)
    few = full <= _PART and pieces >= _PIECES and nearest(launch) < _FAR_BELOW
    if not few or not enough(launch, won * launch.duration):
        return
    blocks = prod(launch.launch.grid)
    yield finding(
        launch,
        "few-blocks",
        title=f"{plural(blocks, 'block')} make{'s' * (blocks == 1)} {pieces:,.0f} pieces of work "
        f"each, one after another, and an SM holds {room.warps:.0f} of {room.possible} warps: the "
        "grid has no more",
        number=Number("warps on an SM over those it has room for", full, "ratio"),
        at_stake=won * launch.duration,
        without="with the pieces spread over as many blocks as SMs have room for",
        confidence="likely",
        rationale="counted: iterations of a loop around the one that stores results, and warps on "
        f"an SM; no unit is above {100 * nearest(launch):.0f} % of its limit. Refuted if a piece "
        "needs the one before it, or more blocks take as long.",
        where=Where(count=blocks),
        suggestion="more blocks: one for each piece (row, tile), or several for each SM, up to "
        "what its warps and registers have room for",
    )


def _lacks_blocks(launch: Prepared, room: Room) -> bool:
    """Whether the grid limits the warps of all SMs, in a kernel without products and roles."""
    if not room.counted or room.limited_by != "the grid" or _leaves_sms(launch):
        return False
    return _is_whole(launch) and not _multiplies(launch) and len(launch.groups) <= 1


def _multiplies(launch: Prepared) -> bool:
    """Whether a kernel makes products on tensor cores, which few warps keep busy."""
    work = counted_work(launch)
    units = work.issued.keys() | work.uncounted.keys() if work else set[str]()
    by_code = any(unit.startswith("tensor") for unit in units)
    return by_code or bool(launch.regions([Activity.MMA]).size)


def _pieces(launch: Prepared) -> float:
    """Return how often a warp executes a loop around one that stores; 0 where none is known."""
    loops, work = launch.facts.loops if launch.facts else (), counted_work(launch)
    if work is None or not any(map(_stores_inside, loops)) or _reads_back(work):
        return 0.0
    some = [i for i, name in enumerate(launch.names) if name.startswith(_ITERATION)]
    outer = max(some, key=lambda each: int(launch.took_by_region[each]), default=None)
    return 0.0 if outer is None else float(launch.counts[outer]) / max(len(launch.start), 1)


def _reads_back(work: CountedWork) -> bool:
    """Whether a loop loads from where it stores: sums that it adds to piece by piece."""
    some = [each for _, each, _ in work.global_accesses() if each.in_loop]
    stored = {key for each in some if each.unit.startswith("store") for key in each.keys}
    return any(stored & {*each.keys} for each in some if each.unit.startswith("load"))


def _stores_inside(loop: LoopFacts) -> bool:
    """Whether a loop lies in another one, and stores to global memory."""
    return loop.depth > 1 and any(unit.startswith("store.global") for unit in loop.mix)


_ITERATION: Final = "iteration "


def _few_for_a_tile(launch: Prepared, room: Room) -> Iterator[Finding]:
    """Yield a finding on tiles of few warps, whose elements take most of the registers."""
    if not _fills_registers(launch, room):
        return
    warps = launch.launch.warps_per_block
    full = (room.warps or 0.0) / (room.possible or 1)
    won = max(1 - max(full, nearest(launch) / _REACHED), 0.0)
    few = full <= _PART and nearest(launch) < _BELOW
    tiles = launch.launch.backend in TILES and not _multiplies(launch)
    if not few or not tiles or not enough(launch, won * launch.duration):
        return
    yield finding(
        launch,
        "few-warps",
        title=f"{plural(warps, 'warp')} hold{'s' * (warps == 1)} each tile, in {room.registers} "
        f"registers of a thread: an SM has room for {room.warps:.0f} of {room.possible} warps",
        number=Number("warps on an SM over those it has room for", full, "ratio"),
        at_stake=won * launch.duration,
        without="with tiles spread over more warps, each with fewer registers",
        confidence="likely",
        rationale="counted: warps of a block, registers of a thread, and warps on an SM; no unit "
        f"is above {100 * nearest(launch):.0f} % of its limit. Refuted if more warps take as long.",
        where=Where(count=len(launch.start)),
        suggestion=f"more warps for each block (num_warps={4 * warps} or so), so that a tile's "
        "elements are spread over more lanes, and registers leave room for more of them; or "
        "smaller tiles",
    )


def _fills_registers(launch: Prepared, room: Room) -> bool:
    """Whether registers limit the warps of an SM, in blocks of few warps for a tile."""
    if not room.counted or room.limited_by != "registers" or not _is_whole(launch):
        return False
    warps = launch.launch.warps_per_block
    return warps <= _NARROW or (warps <= _USUAL and (room.registers or 0) >= _ALMOST_ALL)


_NARROW: Final = 2
"""Warps of a block up to which a tile is one for few."""
_USUAL: Final = 4
_ALMOST_ALL: Final = 224
"""Registers of a thread, of 255, from which on Triton's usual four warps are few for a tile."""
_BELOW: Final = 0.75
"""Share of the nearest roof from which on warps more win little."""


def _leaves_sms(launch: Prepared) -> bool:
    """Whether SMs have no block at all: that is a finding, and comes first."""
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
