"""Module variables of a patched cubin: references to them become addresses in the plain module.

A copy that is loaded beside the plain module would have its own variables. Before it is loaded,
each relocation to a variable is replaced by the variable's address in the plain module.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from typing import Final

import numpy as np

from ikp.errors import PatchError
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.cubins.elf import Elf

_OBJECT: Final = 1
_MEMORY: Final = (".nv.global", ".nv.global.init")
_CONSTANTS: Final = ".nv.constant3"
_READ: Final = (".text.", ".nv.constant4")
"""Sections that a running kernel reads: its code, and the addresses of variables."""
_TEXTS: Final = ("$", "_$", "__unnamed_", "__func__", "__FUNCTION__", "__PRETTY_FUNCTION__")
"""Prefixes of the names of string literals, which are only read: each copy may have its own."""
_EMPTY: Final = 1
"""An object of so many bytes has no value: C++ gives it an address only."""

_BYTES: Final = 8
_WHOLE, _LOW, _HIGH = 2, 56, 57
"""Kinds of relocations: 64 bits, and the halves in bits 32 to 63 of an instruction."""


def _variables(elf: Elf) -> list[int]:
    """Return the symbols of what lies in a module's memory."""
    sections = [each.name in _MEMORY for each in elf.sections]
    places = elf.symbols()["section"].tolist()
    return [n for n, at in enumerate(places) if 0 < at < len(sections) and sections[at]]


def shared(cubin: bytes, name: str, find: Callable[[str], int | None]) -> bytes:
    """Return a cubin whose references to module variables are absolute addresses.

    Args:
        cubin: the plain cubin.
        name: the kernel that is launched from it: references of other kernels don't matter.
        find: returns the address of a symbol in the loaded plain module; None where it has none.

    Raises:
        PatchError: a variable can't be found, or is referred to in a form that is not known.
    """
    file = Cubin.read(cubin)
    symbols, names = file.elf.symbols(), file.elf.symbol_names()
    own = _variables(file.elf)
    addresses: dict[int, int | None] = {}
    others = {f".text.{each}" for each in file.kernels if each != name}
    for table, entries in file.elf.relocations():
        target = file.elf.sections[table.info]
        mine = np.flatnonzero(np.isin(entries["symbol"], own))
        if not len(mine) or target.name in others or not target.name.startswith(_READ):
            continue
        data, settled = bytearray(target.data), []
        for at in mine:
            number = int(entries[at]["symbol"])
            if symbols[number]["info"] & 15 != _OBJECT:
                raise PatchError("the code refers to its module's memory by no variable's name.")
            if number not in addresses:
                addresses[number] = _address(names[number], int(symbols[number]["size"]), find)
            if (address := addresses[number]) is not None:
                _settle(data, entries[at], address, names[number])
                settled.append(at)
        target.data, table.data = bytes(data), np.delete(entries, settled).tobytes()
    return file.write()


def _address(name: str, size: int, find: Callable[[str], int | None]) -> int | None:
    """Return the address of a variable; None for one that each copy may have for itself.

    Raises:
        PatchError: it is not found.
    """
    found = find(name)
    if found is None and size > _EMPTY and not name.startswith(_TEXTS):
        raise PatchError(
            f"its module has memory of its own, {name}, which the driver does not find by name: a "
            "patched copy would not share it."
        )
    return found


def _settle(data: bytearray, entry: np.void, address: int, name: str) -> None:
    """Write an address as its relocation would.

    Raises:
        PatchError: the relocation is of a kind that is not known.
    """
    at, kind = int(entry["offset"]), int(entry["kind"])
    if at + _BYTES > len(data):
        raise PatchError(f"a relocation to {name} lies behind its section's end: it is damaged.")
    if kind not in (_WHOLE, _LOW, _HIGH):
        raise PatchError(
            f"the code refers to {name} by a relocation of kind {kind}, which is not known here."
        )
    if "addend" in (entry.dtype.names or ()):
        beyond = int(entry["addend"])
    elif kind == _WHOLE:
        beyond = int.from_bytes(data[at : at + 8], "little")
    elif any(data[at + 4 : at + 8]):
        raise PatchError(f"the code refers to a part of {name} in a form that is not known here.")
    else:
        beyond = 0
    address += beyond
    if not 0 <= address < 1 << 64:
        raise PatchError(f"the code refers to memory {beyond} bytes behind {name}: it is damaged.")
    if kind == _WHOLE:
        struct.pack_into("<Q", data, at, address)
    else:
        half = address & 0xFFFFFFFF if kind == _LOW else address >> 32
        struct.pack_into("<I", data, at + 4, half)


def constants(cubin: bytes) -> list[tuple[str, int]]:
    """Return the constants that a program may write: their names and sizes in bytes."""
    return _objects(cubin, (_CONSTANTS,))


def variables(cubin: bytes) -> list[tuple[str, int]]:
    """Return the variables that kernels may write: their names and sizes in bytes.

    String literals are left out: of asserts alone, a module may have a thousand.
    """
    return [each for each in _objects(cubin, _MEMORY) if not each[0].startswith(_TEXTS)]


def _objects(cubin: bytes, sections: Collection[str]) -> list[tuple[str, int]]:
    elf = Elf.read(cubin)
    made = []
    for symbol, name in zip(elf.symbols(), elf.symbol_names(), strict=True):
        number, size = int(symbol["section"]), int(symbol["size"])
        inside = symbol["info"] & 15 == _OBJECT and 0 < number < len(elf.sections)
        if inside and size and elf.sections[number].name in sections:
            made.append((name, size))
    return made
