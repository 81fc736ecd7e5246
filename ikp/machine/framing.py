"""Which uniform registers a kernel keeps for its records."""

from __future__ import annotations

import re

from ikp.machine.chips import HOPPER, Chip
from ikp.machine.keeping import Frame, Places
from ikp.machine.resources import UR
from ikp.machine.room import Room

_CLOCKS = 3
_LEAST = 5
_LOADED = re.compile(r"UR(\d+), c\[0x0\]\[(0x[0-9a-f]+)\]")


def frame(room: Room, warps: int | None, cell: int, chip: Chip = HOPPER) -> Frame | None:
    """Return a frame of registers that the kernel never names; None where they are too few.

    Where few are left, the clocks at the entry are stored there.

    Args:
        room: of the kernel.
        warps: of a block, in one dimension; None where it is not fixed.
        cell: where the cell stands in the constant bank 3.
        chip: what the kernel is for.
    """
    free = list(room.unused_uniform)
    pairs = [each for each in free if each % 2 == 0 and each + 1 in free]
    pair = next(iter([*_descriptors(room, chip), *pairs]), None)
    others = [each for each in free if pair is None or each // 2 != pair // 2]
    if pair is None or len(others) < _LEAST:
        return None
    clocks = others[_LEAST : _LEAST + _CLOCKS] if len(others) > _LEAST + _CLOCKS else []
    records, high, room_left, count, header = others[:_LEAST]
    return Frame(pair, records, high, room_left, count, header, tuple(clocks), cell, warps)


def _descriptors(room: Room, chip: Chip) -> list[int]:
    """Return the pairs in which the kernel itself keeps what global memory is, and nothing else."""
    stands = chip.places.get(Places().descriptor, Places().descriptor)
    code = room.liveness.flow.code.instructions
    loads: dict[int, set[int]] = {}
    for at, each in enumerate(code):
        found = _LOADED.fullmatch(each.rest) if each.opcode == "ULDC.64" else None
        if found and int(found[2], 16) == stands:
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
