"""Choice of a kernel's reserved registers: a frame of uniform registers, and some per thread."""

from __future__ import annotations

import re
from dataclasses import replace

from ikp.probes.code.reserved_registers import FIRST, LENT, NEAR, PLACES, Cell, Frame
from ikp.sass.assembly.chips import HOPPER, Chip
from ikp.sass.dataflow.free_registers import FreeRegisters
from ikp.sass.disassembly.resources import UR, R

_CLOCKS = 3
_LEAST = 5
_PAIRS = 5
_LOADED = re.compile(r"ULDC\.64 UR(\d+), c\[0x0\]\[(0x[0-9a-f]+)\]")


def frame(
    room: FreeRegisters, warps: int | None, cell: Cell, chip: Chip = HOPPER, near: bool = False
) -> Frame | None:
    """Return a frame of registers that the kernel never names; None where they are too few.

    Where there are pairs enough, these hold addresses. Where few are left, the clocks are stored at
    the entry. Where fewer are, the frame shares the kernel's own pair with the descriptor of global
    memory. Part of it is then in threads' own registers, which are reserved in ``room``. Where the
    kernel keeps no such pair, each probe has a scavenged one.

    Args:
        room: the kernel's free registers.
        warps: of a block, in one dimension; None where it is not fixed.
        cell: the constants that say where to record.
        chip: the chip that the kernel is for.
        near: whether its pairs may hold addresses, if the chip can do that.
    """
    free = list(room.unused_uniform)
    if near and chip.near and warps is not None and (made := _near(free, warps, cell)):
        return made
    pairs = [each for each in free if each % 2 == 0 and each + 1 in free][:1]
    shared = _descriptors(room, chip)[:1]
    for pair in (*pairs, *shared):
        others = [each for each in free if each // 2 != pair // 2]
        if len(others) >= _LEAST:
            return _made(pair, others, warps, cell)
    for pair in (*shared, *pairs, LENT):
        others = [each for each in free if each // 2 != pair // 2]
        missing = _LEAST - len(others)
        own = room.unused_own[-missing:] if missing > 0 else ()
        if len(others) + len(own) >= _LEAST:
            room.reserve(R.first + each for each in own)
            # The cursor is the warp's where it can be: diverged threads have one cursor then.
            kept = [*others[1:], *range(FIRST, FIRST + len(own)), *others[:1]]
            return replace(_made(pair, kept, warps, cell), own=own)
    return None


def _near(free: list[int], warps: int, cell: Cell) -> Frame | None:
    """Return a frame whose pairs hold addresses, if one more pair is left for the entry."""
    pairs = [each for each in free if each % 2 == 0 and each + 1 in free]
    if len(pairs) <= _PAIRS:
        return None
    header, records, clocks, last, room = pairs[:_PAIRS]
    entered = (clocks, clocks + 1, last + 1)
    return Frame(NEAR, records, header + 1, room, last, header, entered, cell, warps)


def _made(pair: int, others: list[int], warps: int | None, cell: Cell) -> Frame:
    """Return a frame of a pair and others; the last of the five that it needs is the cursor."""
    records, high, room_left, header, count = others[:_LEAST]
    clocks = others[_LEAST : _LEAST + _CLOCKS] if len(others) > _LEAST + _CLOCKS else []
    return Frame(pair, records, high, room_left, count, header, tuple(clocks), cell, warps)


def _descriptors(room: FreeRegisters, chip: Chip) -> list[int]:
    """Return the pairs in which the kernel keeps the descriptor of global memory and no more."""
    offset = chip.offset_of(PLACES.descriptor)
    code = room.liveness.flow.code
    loads: dict[int, set[int]] = {}
    for at in code.having(lambda opcode: opcode == "ULDC.64"):
        found = _LOADED.fullmatch(code.instructions[at].text)
        if found and int(found[2], 16) == offset:
            loads.setdefault(int(found[1]), set()).add(at)
    effects = room.liveness.effects
    return [
        pair
        for pair, at in loads.items()
        if not any(
            effect.writes >> (UR.first + pair) & 3 and number not in at
            for number, effect in enumerate(effects)
        )
    ]
