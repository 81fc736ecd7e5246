"""Finding ``local-memory``: accesses of spilled registers, or arrays that no register can hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ikp.analysis.explain.counted_work import CountedWork, counted_work, lane_bytes
from ikp.analysis.explain.places import where_of
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import nearest
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number

_LEAST: Final = 0.02
"""Share of the launch's instructions from which on accesses to local memory count."""
_SURE: Final = 0.06
_MOST_REGISTERS: Final = 255
_HOLDS_UP: Final = 8.0
"""How much longer than by its share of instructions an access may hold a warp up, at most: those
of local memory wait for L1, or L2."""
_WORD: Final = 4
_ROUNDING: Final = 8
_BY_BOUNDS: Final = (32, 40, 48, 56, 64, 72, 80, 96, 128, 168)
"""Registers that 65,536 give to each of so many warps of an SM that there is a round number."""


def local_memory(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding where accesses to local memory are more than a few of the instructions."""
    work, facts = counted_work(launch), launch.facts
    if work is None or facts is None:
        return
    count = _locals(work.issued)
    loops = {unit for unit in work.uncounted if ".local." in unit}
    share = count / max(work.total, 1.0)
    l1 = work.ns(_words(work)) / launch.duration
    part = max(share, l1, _guessed(work))
    if part < _LEAST and not loops:
        return
    most = 1.0 if part >= _SURE else _HOLDS_UP * max(part, _LEAST)
    saved = min(1 - nearest(launch, ("L1", "issue", "L2")), most)
    if not enough(launch, saved * launch.duration):
        return
    ranges = sorted(work.ranges, key=lambda one: -_locals(one.issued))
    full = _is_full(facts.register_limit, facts.plain_registers or facts.registers)
    yield finding(
        launch,
        "local-memory",
        title=(
            "registers spill to local memory"
            if full
            else "an array of each thread is in local memory"
        )
        + f": {100 * max(share, _guessed(work)):.0f} % of the instructions load or store there"
        + (f", {facts.local_bytes:,} bytes of each thread" if facts.local_bytes else ""),
        number=Number("loads and stores of local memory, of all instructions", share, "share"),
        at_stake=saved * launch.duration,
        without="with all values in registers, or in shared memory",
        confidence="likely" if part >= _SURE else "possible",
        rationale=f"counted: {facts.spills or 0:,} such instructions in the plain kernel's code, "
        f"{count:,.0f} executed by warps"
        + (", and some in loops whose trips are not known" if loops else "")
        + f"; {facts.plain_registers or facts.registers} registers a thread"
        + (f", of {facts.register_limit} allowed" if facts.register_limit else "")
        + ". Refuted if a build without spills takes as long.",
        where=where_of(launch, [one for one in ranges[:3] if _locals(one.issued)]),
        suggestion=_SPILLS if full else _ARRAYS,
    )


_SPILLS: Final = (
    "more warps for the tile (num_warps) or a smaller tile, so that each thread holds less; or a "
    "higher limit on registers (maxnreg, __launch_bounds__)"
)
_ARRAYS: Final = (
    "index the array by constants (unroll its loops), or put it into shared memory, an element "
    "for each thread"
)


def _is_full(limit: int | None, registers: int | None) -> bool:
    """Whether a thread has about as many registers as it may have.

    A compiler that is given warps and blocks of an SM (``__launch_bounds__``) limits registers to
    what 65,536 allow, and leaves no number in the file: a multiple of eight of at least 24.
    """
    if registers is None:
        return True
    most = min(limit or _MOST_REGISTERS, _MOST_REGISTERS)
    return registers >= most - _ROUNDING or registers in _BY_BOUNDS


def _guessed(work: CountedWork) -> float:
    """Return the share of such accesses in loops of unknown trips, if all ran equally often."""
    found, whole = 0.0, work.total
    for one in work.ranges:
        looped = one.uncounted
        found += one.executions * _TRIPS * _locals(looped)
        whole += one.executions * _TRIPS * sum(looped.values())
    return found / max(whole, 1.0)


_TRIPS: Final = 8.0
"""Trips that a loop is taken to make where no record counts them."""


def _locals(issued: dict[str, float]) -> float:
    return sum(count for unit, count in issued.items() if ".local." in unit)


def _words(work: CountedWork) -> float:
    """Return the cycles of L1 for all accesses to local memory: 128 bytes in one."""
    return sum(
        count * lane_bytes(unit) / _WORD for unit, count in work.issued.items() if ".local." in unit
    )
