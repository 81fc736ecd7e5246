"""References to code addresses outside the code: symbols, relocations, attributes, debug tables.

On Blackwell, a cubin holds the kernel a second time, in a form ("Mercury") that the driver finishes
for other chips of the family; those sections describe that form and are left as they are.
"""

from __future__ import annotations

import struct

import numpy as np

from ikp.errors import PatchError
from ikp.sass.cubins import attributes
from ikp.sass.cubins.cubin import Cubin, Kernel
from ikp.sass.cubins.elf import Elf, Kind, Section
from ikp.sass.cubins.instruction import BYTES
from ikp.sass.insertion._line_tables import follow_lines
from ikp.sass.insertion._unwinding import follow_frames
from ikp.sass.insertion.displacement import Displacement

_PLACES_IN_DEBUGGING = (".debug_loc", ".debug_ranges", ".debug_aranges", ".nv_debug_info_reg_sass")
_ADDRESS = 2  # a relocation's kind: the whole address, 8 bytes


def follow(cubin: Cubin, kernel: Kernel, to: Displacement, size: int) -> None:
    """Update all references to a kernel's code, which now has ``size`` bytes.

    Raises:
        PatchError: a reference is of a form that is not known.
    """
    elf = cubin.elf
    _refuse_debugging(elf, kernel)
    follow_lines(elf, kernel, to)
    follow_frames(elf, kernel, to, size)
    _follow_relocations(elf, kernel, to)
    _follow_symbols(elf, kernel, to, size)
    info = elf.find(f".nv.info.{kernel.name}")
    if info is not None:
        attributes.move(kernel.attributes, to.moved, kernel.name)
        info.data = attributes.write(kernel.attributes)


def _refuse_debugging(elf: Elf, kernel: Kernel) -> None:
    for name in _PLACES_IN_DEBUGGING:
        if (section := elf.find(name)) is not None and section.data:
            raise PatchError(
                f"{kernel.name} was compiled for a debugger (-G): its {name} names places in the "
                "code in ways that are not known here. Compile it without -G; -lineinfo is fine."
            )


def _follow_symbols(elf: Elf, kernel: Kernel, to: Displacement, size: int) -> None:
    symbols = elf.symbols()
    old = to.old_count * BYTES
    for each in np.flatnonzero(symbols["section"] == kernel.index):
        start = int(symbols["value"][each])
        end = start + int(symbols["size"][each])
        symbols["value"][each] = to.landed(start)
        if end > start:
            new_end = size if end == old else to.landed(end)
            symbols["size"][each] = new_end - to.landed(start)
    elf.set_symbols(symbols)


def _follow_relocations(elf: Elf, kernel: Kernel, to: Displacement) -> None:
    symbols = elf.symbols()
    for section, table in elf.relocations():
        if section.info == kernel.index:
            table["offset"] = [to.moved(int(place)) for place in table["offset"]]
        ours = np.flatnonzero(symbols["section"][table["symbol"]] == kernel.index)
        if len(ours) and section.kind == Kind.RELA:
            for each in ours:
                _follow_addend(symbols, table, int(each), to)
        elif len(ours):
            _follow_stored(elf, kernel, section, table[ours], symbols, to)
        section.data = table.tobytes()


def _follow_addend(symbols: np.ndarray, table: np.ndarray, at: int, to: Displacement) -> None:
    """Update the addend of a relocation: the distance of its target from its symbol."""
    addend = int(table["addend"][at])
    if addend:
        base = int(symbols["value"][table["symbol"][at]])
        table["addend"][at] = to.begun(base + addend) - to.landed(base)


def _follow_stored(
    elf: Elf,
    kernel: Kernel,
    section: Section,
    table: np.ndarray,
    symbols: np.ndarray,
    to: Displacement,
) -> None:
    """Update relocations whose addend is stored in the relocated bytes (REL)."""
    target = elf.sections[section.info]
    data = bytearray(target.data)
    for each in table:
        at, base = int(each["offset"]), int(symbols["value"][each["symbol"]])
        if each["kind"] != _ADDRESS:
            raise PatchError(
                f"{target.name} refers to the code of {kernel.name} in a way that is not known "
                f"(relocation {each['kind']}). Leave this kernel out."
            )
        (addend,) = struct.unpack_from("<Q", data, at)
        if addend:
            struct.pack_into("<Q", data, at, to.begun(base + addend) - to.landed(base))
    target.data = bytes(data)
