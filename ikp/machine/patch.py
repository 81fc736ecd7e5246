"""A kernel's own machine code, with records put into it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Final

from ikp.core import abi
from ikp.core.abi import Language
from ikp.errors import PatchError
from ikp.machine import sequences
from ikp.machine.attributes import Code as Attribute
from ikp.machine.capacity import add_constant, set_registers
from ikp.machine.chips import Chip, chip_of
from ikp.machine.cubin import Cubin, Kernel
from ikp.machine.insert import insert
from ikp.machine.places import Level, Place, Places
from ikp.machine.reading import read
from ikp.machine.resources import UR
from ikp.machine.room import Room
from ikp.machine.sequences import CELL, CELL_BYTES, Frame
from ikp.machine.weave import Weaver

DETAILS: Final = {level.name.lower(): level for level in Level}
"""How much is recorded: "kernel", "loops", "waits" or "ops", each more than the one before it."""

_RESERVED = 2
"""Registers that a kernel's number counts and its code may not use."""
_PORTION = 8
"""Registers are handed out to threads in portions."""
_ENOUGH = 32
"""With so many registers for each thread, an SM holds as many threads as it can."""
_ON_AN_SM = 65536
_LANES = 32


@dataclass(frozen=True, slots=True)
class Patch:
    """A patched cubin, and what is recorded in it.

    ``warps`` is how many a block has. ``notes`` say what is not recorded, and what the rest costs.
    """

    cubin: bytes
    names: tuple[str, ...]
    warps: int
    registers: tuple[int, int]  # of a thread: before, and now
    most: int | None = None  # records that a warp makes; None where loops say how many
    notes: tuple[str, ...] = ()

    @staticmethod
    def fits(slot_bytes: int) -> bool:
        """Return whether a slot of so many bytes can hold a record."""
        return slot_bytes >= abi.min_slot_bytes(abi.OverflowMode.STOP)


def patch(
    cubin: bytes,
    name: str,
    *,
    detail: str = "loops",
    ptx: str = "",
    language: Language = Language.OTHER,
    untested: bool = False,
) -> Patch:
    """Put records into a kernel of a cubin.

    Args:
        cubin: the file that the compiler wrote.
        name: the kernel.
        detail: one of ``DETAILS``.
        ptx: the kernel's PTX, for the lines that the cubin has wrong.
        language: what it was written in.
        untested: whether to do so, too, for chips on which that was never run.

    Raises:
        PatchError: the kernel, or its chip, is not known well enough.
        InspectError: there is no disassembler, or it refuses the file.
    """
    file = Cubin.read(cubin)
    kernel = file.kernel(name)
    chip = chip_of(file.sm, kernel, untested=untested)
    code = next((each for each in read(cubin) if each.flow.code.name == name), None)
    if code is None:
        raise PatchError(f"the disassembler shows no code of {name}.")
    if any(each.op == "USETMAXREG" for each in code.flow.code.instructions):
        raise PatchError(
            f"{name} hands registers from some warps to others (setmaxnreg): how many each has is "
            "not followed yet."
        )
    room, before = Room(code), kernel.registers
    frame, count = _frame(kernel, room, chip)
    frame = replace(frame, cell=add_constant(file, CELL, CELL_BYTES))
    places = Places(code.flow, ptx)
    weaver = Weaver(room, frame, count - _RESERVED, _named(places.at(DETAILS[detail])))
    added = weaver.woven(name, language)
    if count > before:
        set_registers(file, name, count)
    insert(file, name, added)
    notes = [*chip.notes, *_occupancy(name, frame, before, count), *weaver.notes]
    return Patch(
        cubin=file.write(),
        names=tuple(weaver.names),
        warps=frame.warps or 0,
        registers=(before, count),
        most=weaver.most,
        notes=tuple(notes),
    )


def _named(places: list[Place]) -> list[Place]:
    """Return places with names that tell iterations of one loop from those of another."""
    return [
        replace(each, name=f"iteration @{PurePath(line.file).name}:{line.number}")
        if each.kind == "iteration" and (line := next(iter(each.lines), None))
        else each
        for each in places
    ]


def _frame(kernel: Kernel, room: Room, chip: Chip) -> tuple[Frame, int]:
    """Return the registers that are kept for records, and how many a thread then has."""
    cursor = _unused_pair(room)
    count = _roomy(max(kernel.registers, cursor + 2 + _RESERVED, _ENOUGH), kernel, chip)
    if cursor + 2 + _RESERVED > count:
        raise PatchError(
            f"{kernel.name} has {kernel.registers} registers for each thread: there are none left "
            "for records."
        )
    uniform = -(-(_highest_uniform(room) + 1) // 2) * 2
    if uniform + sequences.UNIFORMS > chip.uniforms:
        raise PatchError(f"{kernel.name} leaves no uniform registers for records.")
    return Frame(cursor, uniform, 0, _warps(kernel), chip), count


def _roomy(needed: int, kernel: Kernel, chip: Chip) -> int:
    """Return as many registers as leave an SM room for as many blocks as those needed do."""
    most, warps = _most(kernel), _warps(kernel)
    needed = min(-(-needed // _PORTION) * _PORTION, most)
    more = range(needed, most + 1, _PORTION)
    return max(c for c in more if _blocks(c, warps, chip) == _blocks(needed, warps, chip))


def _unused_pair(room: Room) -> int:
    """Return the first of two registers that the kernel never uses."""
    used = room.liveness.used
    return next(pair for pair in range(2, 256, 2) if not used >> pair & 3)


def _most(kernel: Kernel) -> int:
    """Return how many registers each thread of a kernel can have."""
    threads = _warps(kernel) * _LANES
    return min(255, _ON_AN_SM // threads // _PORTION * _PORTION)


def _highest_uniform(room: Room) -> int:
    return (room.liveness.used >> UR.first & (1 << UR.count) - 1).bit_length() - 1


def _warps(kernel: Kernel) -> int:
    for each in kernel.attributes:
        if each.code == Attribute.REQNTID:
            x, y, z = each.words
            if y == z == 1:
                return -(-x // _LANES)
    raise PatchError(
        f"{kernel.name} doesn't say how many threads a block has (.reqntid), or has them in more "
        "than one dimension."
    )


def _occupancy(name: str, frame: Frame, before: int, now: int) -> list[str]:
    """Tell where more registers leave room for fewer blocks."""
    was, becomes = (_blocks(count, frame.warps or 1, frame.chip) for count in (before, now))
    if was == becomes:
        return []
    told = (
        f"{name} takes {now} registers for each thread in place of {before}: an SM has room for "
        f"{becomes} blocks, not {was}, as far as registers go."
    )
    return [told]


def _blocks(registers: int, warps: int, chip: Chip) -> int:
    each = -(-registers // _PORTION) * _PORTION * _LANES * warps
    return min(_ON_AN_SM // each, chip.warps // warps)
