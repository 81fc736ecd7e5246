"""ELF parser of the verifier: a cubin's sections, symbols, relocations and segments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_SECTION = np.dtype("<u4,<u4,<u8,<u8,<u8,<u8,<u4,<u4,<u8,<u8")
_SEGMENT = np.dtype("<u4,<u4,<u8,<u8,<u8,<u8,<u8,<u8")
_SYMBOL = np.dtype(
    [("name", "<u4"), ("kind", "<u2"), ("section", "<u2"), ("at", "<u8"), ("size", "<u8")]
)
_RELOCATION = [("offset", "<u8"), ("kind", "<u4"), ("symbol", "<u4")]
TABLES = {4: np.dtype([*_RELOCATION, ("addend", "<i8")]), 9: np.dtype(_RELOCATION)}
SYMBOLS, _NO_BYTES, ALLOCATED = 2, 8, 2


@dataclass(frozen=True, slots=True)
class Section:
    """One section of a cubin."""

    name: str
    kind: int
    rest: tuple[int, ...]  # flags, address, link, alignment, size of an entry
    info: int
    offset: int
    data: bytes
    size: int

    @property
    def table(self) -> NDArray[np.void]:
        """The entries of a relocation table, or of the symbol table."""
        return np.frombuffer(self.data, TABLES.get(self.kind, _SYMBOL))


@dataclass(frozen=True, slots=True)
class Elf:
    """A parsed cubin."""

    kind: tuple[int, ...]  # the fields of its header but offsets
    sm: int
    sections: list[Section]
    segments: list[tuple[int, ...]]

    @classmethod
    def read(cls, data: bytes) -> Elf:
        """Parse a file; ValueError, IndexError: it is damaged."""
        halves, wide = np.frombuffer(data[:64], "<u2"), np.frombuffer(data[:64], "<u8")
        raw = np.frombuffer(data, _SECTION, int(halves[30]), int(wide[5])).tolist()
        at, nbytes = raw[int(halves[31])][4:6]
        names = data[at : at + nbytes]
        made = [_section(data, names, each) for each in raw]
        segments = np.frombuffer(data, _SEGMENT, int(halves[28]), int(wide[4])).tolist()
        flags = int(halves[24]) | int(halves[25]) << 16
        kind = (*halves[:12].tolist(), int(wide[3]), flags, int(halves[26]), int(halves[31]))
        sm = flags & 0xFF if data[8] == 7 else flags >> 8 & 0xFFFF
        return cls(kind, sm, made, segments)

    def find(self, name: str) -> Section:
        """Return a section, IndexError: there is none, or more than one."""
        found = [each for each in self.sections if each.name == name]
        if len(found) != 1:
            raise IndexError(f"{len(found)} sections are called {name}")
        return found[0]

    @property
    def symbols(self) -> Section:
        """The section with the symbol table."""
        return [each for each in self.sections if each.kind == SYMBOLS][0]  # noqa: RUF015

    def inside(self, segment: tuple[int, ...]) -> list[str]:
        """Return the names of the sections that a segment loads."""
        first, in_file, in_memory = segment[2], segment[5], segment[6]
        return [
            each.name
            for each in self.sections
            if each.rest[0] & ALLOCATED and each.size and first <= each.offset
            if each.offset + each.size - first <= (in_memory if each.kind == _NO_BYTES else in_file)
        ]


def _section(data: bytes, names: bytes, raw: tuple[int, ...]) -> Section:
    name, kind, flags, address, offset, size, link, info, align, entry = raw
    content = b"" if kind in (0, _NO_BYTES) else data[offset : offset + size]
    if kind not in (0, _NO_BYTES) and len(content) != size:
        raise ValueError("a section ends behind the file's end")
    text = names[name : names.index(b"\0", name)].decode()
    return Section(text, kind, (flags, address, link, align, entry), info, offset, content, size)
