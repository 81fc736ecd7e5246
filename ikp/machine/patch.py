"""A kernel's own machine code, with records put into it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Final

from ikp.core import abi
from ikp.core.abi import Language
from ikp.errors import PatchError
from ikp.machine import occupancy
from ikp.machine.capacity import add_constant, set_registers
from ikp.machine.cubin import Cubin
from ikp.machine.framing import frame
from ikp.machine.handed import hands_over
from ikp.machine.insert import insert
from ikp.machine.liveness import Liveness, leaves_its_file
from ikp.machine.places import Level, Place, Places
from ikp.machine.reading import read
from ikp.machine.room import RESERVED, Room
from ikp.machine.sequences import CELL, CELL_BYTES
from ikp.machine.shift import Before
from ikp.machine.weave import NoRoomError, Weaver

DETAILS: Final = {level.name.lower(): level for level in Level}
"""How much is recorded: "kernel", "loops", "waits" or "ops", each more than the one before it."""

_SM = 90


@dataclass(frozen=True, slots=True)
class Patch:
    """A patched cubin, and what is recorded in it.

    ``most`` is how many records a warp should have room for, None where loops say how many.
    ``warps`` is how many a block has, 0 where the file doesn't say. ``notes`` say what is not
    recorded, and what the rest costs.
    """

    cubin: bytes
    names: tuple[str, ...]
    warps: int
    registers: tuple[int, int]  # of a thread: before, and now
    most: int | None = None
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
) -> Patch:
    """Put records into a kernel of a cubin.

    Args:
        cubin: the file that the compiler wrote.
        name: the kernel.
        detail: one of ``DETAILS``.
        ptx: the kernel's PTX, for the lines that the cubin has wrong.
        language: what it was written in.

    Raises:
        PatchError: the kernel, or its chip, is not known well enough.
        InspectError: there is no disassembler, or it refuses the file.
    """
    file = Cubin.read(cubin)
    kernel = file.kernel(name)
    if file.sm != _SM:
        raise PatchError(f"{name} is for {file.arch}: records are known for sm_{_SM} alone.")
    code = next((each for each in read(cubin) if each.flow.code.name == name), None)
    if code is None:
        raise PatchError(f"the disassembler shows no code of {name}.")
    if leaves_its_file(code.flow):
        raise PatchError(
            f"{name} calls code that is not in its file (printf): which registers that uses is "
            "not known."
        )
    size, before = occupancy.block_size(kernel), kernel.registers
    warps = occupancy.warps_of(math.prod(size)) if size else None
    counts = occupancy.register_counts(before, warps)
    count, weaver, added = _woven(
        code,
        _named(Places(code.flow, ptx).at(DETAILS[detail])),
        [before] if hands_over(code.flow) else counts,
        cell=add_constant(file, CELL, CELL_BYTES),
        size=size,
        language=language,
    )
    if count > before:
        set_registers(file, name, count)
    insert(file, name, added)
    return Patch(
        cubin=file.write(),
        names=tuple(weaver.names),
        warps=warps or 0,
        registers=(before, count),
        most=_even(weaver.most),
        notes=(*occupancy.cost(name, warps, before, count), *weaver.notes),
    )


def _woven(
    code: Liveness,
    places: list[Place],
    counts: list[int],
    *,
    cell: int,
    size: list[int],
    language: Language,
) -> tuple[int, Weaver, list[Before]]:
    """Return the first number of registers that does, who put records there, and all of these."""
    name, room = code.flow.code.name, Room(code, counts[0] - RESERVED)
    kept = frame(room, occupancy.warps_of(size[0]) if size[1:] == [1, 1] else None, cell)
    if kept is None:
        raise PatchError(f"{name} leaves no uniform registers for records.")
    full = bool(size) and math.prod(size) % occupancy.LANES == 0
    weaver = Weaver(room, kept, places, full)
    try:
        return counts[0], weaver, weaver.woven(name, language)
    except NoRoomError:
        if not counts[1:]:
            raise
        return _woven(code, places, counts[1:], cell=cell, size=size, language=language)


def _even(records: int | None) -> int | None:
    """Return for how many records there should be room: with an even number, a slot is a multiple
    of 32 bytes, which is what memory is written by.
    """
    return None if records is None else max(2, records + records % 2)


def _named(places: list[Place]) -> list[Place]:
    """Return places with names that tell iterations of one loop from those of another."""
    return [
        replace(each, name=f"iteration @{PurePath(line.file).name}:{line.number}")
        if each.kind == "iteration" and (line := next(iter(each.lines), None))
        else each
        for each in places
    ]
