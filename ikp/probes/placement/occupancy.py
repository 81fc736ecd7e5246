"""How many registers a thread may have, and what that leaves room for."""

from __future__ import annotations

from ikp.sass.assembly.chips import Chip
from ikp.sass.cubins.attributes import Code
from ikp.sass.cubins.cubin import Kernel

_PORTION = 8
"""Registers are handed out to threads in portions."""
_ENOUGH = 32
"""With so many registers for each thread, an SM holds as many threads as it can."""
_ON_AN_SM = 65536
_MOST = 255
LANES = 32
_MOST_THREADS = 1024


def block_size(kernel: Kernel) -> list[int]:
    """Return how many threads a block has in each dimension; nothing if the file doesn't say."""
    known = (each.words for each in kernel.attributes if each.code == Code.REQNTID)
    return next(known, [])


def warps_of(threads: int) -> int:
    """Return how many warps so many threads are."""
    return -(-threads // LANES)


def register_counts(before: int, warps: int | None, chip: Chip) -> list[int]:
    """Return how many registers a thread may have, the best first: with others, blocks get fewer.

    The first leaves an SM room for as many blocks as before. Where all of a kernel's registers are
    taken at its entry, eight more are too few to find a warp's slot with: that takes 15 to 20.

    Args:
        before: how many a thread has.
        warps: of a block; None where that is not known.
        chip: what the kernel is for.
    """
    limit = _ON_AN_SM // ((warps or warps_of(_MOST_THREADS)) * LANES) // _PORTION * _PORTION
    most, least = min(_MOST, limit), max(before, _ENOUGH)
    whole = max(least, min(-(-least // _PORTION) * _PORTION, most))
    more = range(whole, most + 1, _PORTION) if warps else [whole]
    same = (c for c in more if _blocks(c, warps, chip) == _blocks(whole, warps, chip))
    free = max(same, default=whole)
    return [free, *range(free + _PORTION, min(free + 2 * _PORTION, most) + 1, _PORTION)]


def cost(name: str, warps: int | None, before: int, now: int, chip: Chip) -> list[str]:
    """Tell where more registers leave room for fewer blocks."""
    were, are = (_blocks(count, warps, chip) for count in (before, now))
    if were == are:
        return []
    told = (
        f"{name} takes {now} registers for each thread in place of {before}: an SM has room for "
        f"{are} blocks, not {were}, as far as registers go."
        if warps
        else f"{name} takes {now} registers for each thread in place of {before}: an SM may have "
        "room for fewer blocks."
    )
    return [told]


def _blocks(registers: int, warps: int | None, chip: Chip) -> int:
    each = max(-(-registers // _PORTION) * _PORTION, _ENOUGH) * LANES * (warps or 1)
    return min(_ON_AN_SM // each, chip.warps // (warps or 1))


def most_registers(registers: int, warps: int, shared: int, chip: Chip) -> int:
    """Return with how many registers, at most, an SM has room for as many warps as with these."""
    counts = range(_MOST // _PORTION * _PORTION, registers, -_PORTION)
    room = resident(registers, warps, shared, chip)
    kept = (each for each in (_MOST, *counts) if resident(each, warps, shared, chip) == room)
    return next(kept, registers)


def resident(registers: int, warps: int, shared: int, chip: Chip) -> int:
    """Return how many warps an SM has room for, as far as registers and shared memory go."""
    room = (chip.shared << 10) // shared if shared else chip.warps
    return warps * max(min(_blocks(registers, warps, chip), room), 1)
