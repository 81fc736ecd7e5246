"""Occupancy: how many registers a thread may have, and how many blocks an SM then has room for."""

from __future__ import annotations

from ikp.sass.assembly.chips import Chip
from ikp.sass.cubins.attributes import AttributeCode
from ikp.sass.cubins.capacity import LANES, PORTION, most_registers_of, warps_with
from ikp.sass.cubins.cubin import Kernel

_ENOUGH = 32
"""With so many registers a thread, an SM holds as many threads as it can."""
_MOST = 255
_MOST_THREADS = 1024


def block_size(kernel: Kernel) -> list[int]:
    """Return how many threads a block has in each dimension; nothing if the file doesn't say."""
    known = (each.words for each in kernel.attributes if each.code == AttributeCode.REQNTID)
    return next(known, [])


def warps_of(threads: int) -> int:
    """Return how many warps so many threads are."""
    return -(-threads // LANES)


def register_counts(before: int, warps: int | None, chip: Chip) -> list[int]:
    """Return the register counts to try, the best first: with the others, an SM has fewer blocks.

    The first leaves an SM room for as many blocks as before. Where all of a kernel's registers are
    taken at its entry, eight more are too few to find a warp's slot with: that takes 15 to 20.

    Args:
        before: how many a thread has.
        warps: of a block; None where that is not known.
        chip: what the kernel is for.
    """
    limit = most_registers_of(warps or warps_of(_MOST_THREADS))
    most, least = min(_MOST, limit), max(before, _ENOUGH)
    whole = max(least, min(-(-least // PORTION) * PORTION, most))
    more = range(whole, most + 1, PORTION) if warps else [whole]
    same = (c for c in more if _blocks(c, warps, chip) == _blocks(whole, warps, chip))
    free = max(same, default=whole)
    return [free, *range(free + PORTION, min(free + 2 * PORTION, most) + 1, PORTION)]


def cost(warps: int | None, before: int, now: int, chip: Chip) -> list[str]:
    """Return a message where more registers leave room for fewer blocks; else an empty list."""
    were, are = (_blocks(count, warps, chip) for count in (before, now))
    if were == are:
        return []
    message = (
        f"each thread takes {now} registers in place of {before}: an SM has room for {are} blocks, "
        f"not {were}, as far as registers go."
        if warps
        else f"each thread takes {now} registers in place of {before}: an SM may have room for "
        "fewer blocks."
    )
    return [message]


def _blocks(registers: int, warps: int | None, chip: Chip) -> int:
    room = min(warps_with(max(registers, _ENOUGH)), chip.warps)
    return room // (warps or 1)


def most_registers(registers: int, warps: int, shared: int, chip: Chip) -> int:
    """Return the most registers a thread with which an SM has room for as many warps as now."""
    counts = range(_MOST // PORTION * PORTION, registers, -PORTION)
    room = resident(registers, warps, shared, chip)
    kept = (each for each in (_MOST, *counts) if resident(each, warps, shared, chip) == room)
    return next(kept, registers)


def resident(registers: int, warps: int, shared: int, chip: Chip) -> int:
    """Return how many warps an SM has room for, as far as registers and shared memory go."""
    room = (chip.shared << 10) // shared if shared else chip.warps
    return warps * max(min(_blocks(registers, warps, chip), room), 1)
