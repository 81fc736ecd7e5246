"""DWARF in a cubin: the source lines of instructions (``.debug_line``), and LEB128 integers.

NVIDIA's compilers add an operation to DWARF's: a row may be inlined at the line of an earlier row.
LEB128 is DWARF's form of integers of variable length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from ikp.sass.cubins.cubin import Kernel
from ikp.sass.cubins.elf import Elf, SectionKind


def read_uleb(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return an unsigned number and the offset behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def read_sleb(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return a signed number and the offset behind it."""
    value, after = read_uleb(data, at)
    top = 1 << 7 * (after - at) - 1
    return value - 2 * (value & top), after


def end_of_leb(data: bytes | bytearray, at: int) -> int:
    """Return the offset behind a number, signed or not."""
    while data[at] >= 0x80:
        at += 1
    return at + 1


def encoded_leb(value: int) -> bytes:
    """Return the bytes of an unsigned number."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


_HEADER: Final = struct.Struct("<IHIBBbBB")
_ADVANCE, _LINE, _FILE, _ADD_CONSTANT, _ADVANCE_FIXED, _COPY = 2, 3, 4, 8, 9, 1
_SET_ADDRESS, _END, _INLINED = 2, 1, 0x90

Place = tuple[str, int]
"""A file, and a line in it."""


class UnknownTableError(Exception):
    """A table of source lines is of a form that is not known."""


class _Row(NamedTuple):
    address: int
    place: Place
    at: int  # the number of the row that it is inlined at; 0 for none


@dataclass
class _Unit:
    """One unit of the table: its files and the numbers that decode its operations."""

    files: list[str]
    unit: int
    base: int
    range: int
    first: int  # the first special operation
    lengths: bytes  # how many operands each standard operation has


def source_lines(elf: Elf, kernel: Kernel) -> dict[int, tuple[Place, ...]]:
    """Return the addresses at which the source line of a kernel's code changes.

    Args:
        elf: the cubin.
        kernel: one of its kernels.

    Returns:
        Address -> its line, the innermost inlined function first. Empty without line tables.

    Raises:
        UnknownTableError: the table is of another form.
    """
    section = elf.find(".debug_line")
    if section is None or not section.data:
        return {}
    starts = _starts(elf, elf.sections.index(section), kernel)
    found: dict[int, tuple[Place, ...]] = {}
    data, at = section.data, 0
    try:
        while at + _HEADER.size < len(data) and starts:
            at = _unit(data, at, starts, found)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise UnknownTableError(str(error)) from error
    return found


def _starts(elf: Elf, index: int, kernel: Kernel) -> dict[int, int]:
    """Return where the table has addresses in the kernel's code: offset -> address."""
    symbols, found = elf.symbols(), dict[int, int]()
    for table, entries in elf.relocations(index):
        if table.kind != SectionKind.RELA:
            raise UnknownTableError("addends in the table")
        mine = np.flatnonzero(symbols["section"][entries["symbol"]] == kernel.index)
        for each in entries[mine]:
            start = int(symbols["value"][each["symbol"]]) + int(each["addend"])
            found[int(each["offset"])] = start
    return found


def _unit(data: bytes, at: int, starts: dict[int, int], found: dict[int, tuple[Place, ...]]) -> int:
    """Add the lines that a unit has of the kernel's code; return the offset of its end."""
    size, version, header, unit, _, base, span, first = _HEADER.unpack_from(data, at)
    end, begin = at + 4 + size, at + 10 + header
    if version != 2 or size >= 0xFFFFFFF0 or end > len(data) or not span:
        raise UnknownTableError(f"version {version}")
    if any(at <= each < end for each in starts):
        lengths = data[at + _HEADER.size : at + _HEADER.size + first - 1]
        files = _files(data, at + _HEADER.size + first - 1)
        reader = _LineState(data[:end], _Unit(files, unit, base, span, first, lengths), starts)
        reader.read(begin)
        for number in reader.ours:
            found[reader.rows[number].address] = tuple(_chain(reader.rows, number))
    return int(end)


def _files(data: bytes, at: int) -> list[str]:
    """Return the paths in a unit's header, by number; number 0 is none."""
    folders, files = [""], [""]
    while data[at]:
        stop = data.index(0, at)
        folders.append(data[at:stop].decode())
        at = stop + 1
    at += 1
    while data[at]:
        stop = data.index(0, at)
        name = data[at:stop].decode()
        folder, at = read_uleb(data, stop + 1)
        files.append(f"{folders[folder]}/{name}" if folder else name)
        at = end_of_leb(data, end_of_leb(data, at))
    return files


class _LineState:
    """DWARF's state machine: the row that the next operation changes, and those that are made."""

    def __init__(self, data: bytes, unit: _Unit, starts: dict[int, int]) -> None:
        self.data, self.unit, self.starts = data, unit, starts
        self.rows: list[_Row] = []
        self.ours: list[int] = []  # the rows of the kernel's code
        self._reset()

    def _reset(self) -> None:
        self.address, self.file, self.line, self.inlined, self.mine = 0, 1, 1, 0, False

    def read(self, at: int) -> None:
        """Read all operations from an offset on."""
        while at < len(self.data):
            op = self.data[at]
            if op >= self.unit.first:
                self.address += (op - self.unit.first) // self.unit.range * self.unit.unit
                self.line += self.unit.base + (op - self.unit.first) % self.unit.range
                self._row()
                at += 1
            elif op == 0:
                at = self._extended(at + 1)
            else:
                at = self._standard(op, at + 1)

    def _row(self) -> None:
        if self.mine:
            self.ours.append(len(self.rows))
        place = self.unit.files[self.file], self.line
        self.rows.append(_Row(self.address, place, self.inlined))

    def _extended(self, at: int) -> int:
        size, at = read_uleb(self.data, at)
        kind = self.data[at]
        if kind == _SET_ADDRESS:
            self.mine, self.address = at + 1 in self.starts, self.starts.get(at + 1, 0)
        elif kind == _INLINED:
            self.inlined, _ = read_uleb(self.data, at + 1)
        elif kind == _END:
            self._reset()
        return at + size

    def _standard(self, op: int, at: int) -> int:
        if op == _ADVANCE:
            step, at = read_uleb(self.data, at)
            self.address += step * self.unit.unit
        elif op == _LINE:
            step, at = read_sleb(self.data, at)
            self.line += step
        elif op == _FILE:
            self.file, at = read_uleb(self.data, at)
        elif op == _ADVANCE_FIXED:
            self.address += int(struct.unpack_from("<H", self.data, at)[0])
            at += 2
        else:
            if op == _COPY:
                self._row()
            elif op == _ADD_CONSTANT:
                self.address += (255 - self.unit.first) // self.unit.range * self.unit.unit
            for _ in range(self.unit.lengths[op - 1]):
                at = end_of_leb(self.data, at)
        return at


def _chain(rows: list[_Row], number: int) -> Iterator[Place]:
    """Yield a row's line and those that it is inlined at, the innermost first."""
    for _ in range(len(rows)):
        yield rows[number].place
        if not rows[number].at:
            return
        number = rows[number].at - 1
    raise UnknownTableError("rows that are inlined in a circle")
