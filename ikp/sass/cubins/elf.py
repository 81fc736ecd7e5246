"""``Elf``: reader and writer of 64-bit little-endian ELF files, byte for byte where unchanged."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from ikp.errors import PatchError

_HEAD = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_LARGEST_ALIGN = 4096
_COUNTS_AT = 56  # of the header: the number of segments; 4 bytes on, that of sections

_SYMBOL = np.dtype(
    [
        *(("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2")),
        *(("value", "<u8"), ("size", "<u8")),
    ]
)
RELA = np.dtype([("offset", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_REL = np.dtype([("offset", "<u8"), ("kind", "<u4"), ("symbol", "<u4")])


class SectionKind(IntEnum):
    """The types of sections (``sh_type``) that are used here."""

    PROGBITS = 1
    SYMTAB = 2
    STRTAB = 3
    RELA = 4
    NOBITS = 8
    REL = 9


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Refuse a part that can't be read.

    Raises:
        PatchError: names the part.
    """
    try:
        yield
    except (struct.error, ValueError, IndexError, KeyError, OverflowError) as error:
        raise PatchError(
            f"This cubin is damaged: its {what} can't be read ({error}). Compile it again."
        ) from error


@dataclass(eq=False)
class Section:
    """One section; ``data`` may be replaced by longer data."""

    name: str
    name_at: int  # in the table of section names
    kind: int
    flags: int
    address: int
    offset: int  # in the file that was read; of a new section: where it is to be put in
    size: int  # of a section without bytes in the file; else, see data
    link: int
    info: int
    align: int
    entry: int
    data: bytes = b""
    room: int = 0  # the bytes it had in the file that was read; of a new section: 0


@dataclass(eq=False)
class ProgramHeader:
    """A program header: a segment to load; ``first`` and ``last`` are new sections at its ends."""

    kind: int
    flags: int
    offset: int
    virtual: int
    physical: int
    file_size: int
    memory_size: int
    align: int
    first: Section | None = None
    last: Section | None = None


@dataclass
class Elf:
    """A whole file."""

    original: bytes
    flags: int
    abi: int
    names: int  # index of the section that holds the sections' names
    sections_at: int
    segments_at: int
    sections: list[Section]
    segments: list[ProgramHeader] = field(default_factory=list)

    @classmethod
    def read(cls, data: bytes) -> Elf:
        """Parse a file.

        Raises:
            PatchError: it is no ELF file, or of another class or byte order, or damaged.
        """
        if len(data) < _HEAD.size or data[:6] != b"\x7fELF\x02\x01":
            raise PatchError(
                "This is no cubin: it doesn't begin as a 64-bit little-endian ELF file does. Pass "
                "the bytes of one, such as a compiled kernel's `asm['cubin']`."
            )
        try:
            return cls._parsed(data)
        except (struct.error, ValueError, IndexError, OverflowError) as error:
            raise PatchError(
                f"This cubin is damaged: its header names parts that aren't in its {len(data)} "
                f"bytes ({error}). Compile it again."
            ) from error

    @classmethod
    def _parsed(cls, data: bytes) -> Elf:
        head = _HEAD.unpack_from(data)
        segments_at, sections_at, flags = head[5], head[6], head[7]
        segments, count, names = head[10], head[12], head[13]
        if (head[9], head[11]) not in ((_SEGMENT.size, _SECTION.size), (0, _SECTION.size)):
            raise ValueError("its tables have entries of an unknown size")
        raw = [_SECTION.unpack_from(data, sections_at + i * _SECTION.size) for i in range(count)]
        texts = raw[names]
        table = data[texts[4] : texts[4] + texts[5]]
        sections = [_section(data, each, table) for each in raw]
        made = [
            ProgramHeader(*_SEGMENT.unpack_from(data, segments_at + i * _SEGMENT.size))
            for i in range(segments)
        ]
        return cls(data, flags, data[8], names, sections_at, segments_at, sections, made)

    def find(self, name: str) -> Section | None:
        """Return the section of that name."""
        return next((each for each in self.sections if each.name == name), None)

    def symbols(self) -> np.ndarray:
        """Return a copy of the symbols; write them back with :meth:`set_symbols`."""
        with _reading("table of symbols"):
            return np.frombuffer(self._symtab().data, _SYMBOL).copy()

    def set_symbols(self, symbols: np.ndarray) -> None:
        """Replace the table of symbols."""
        self._symtab().data = symbols.tobytes()

    def symbol_names(self) -> list[str]:
        """Return the symbols' names."""
        table, symbols = self.symbol_texts().data, self.symbols()
        with _reading("names of symbols"):
            return [_text_at(table, int(at)) for at in symbols["name"]]

    def symbol_texts(self) -> Section:
        """Return the section that holds the symbols' names."""
        with _reading("table of symbols"):
            return self.sections[self._symtab().link]

    def relocations(self, of: int | None = None) -> Iterator[tuple[Section, np.ndarray]]:
        """Yield each table of relocations and a copy of its entries.

        Args:
            of: the number of a section: tables of that one alone. A library has hundreds.

        Raises:
            PatchError: it names a section or a symbol that there is not.
        """
        count = len(self.symbols())
        for each in self.sections:
            if each.kind in (SectionKind.REL, SectionKind.RELA) and of in (None, each.info):
                form = RELA if each.kind == SectionKind.RELA else _REL
                with _reading(f"table of relocations {each.name}"):
                    entries = np.frombuffer(each.data, form).copy()
                    if (
                        each.info >= len(self.sections)
                        or int(entries["symbol"].max(initial=0)) >= count
                    ):
                        raise IndexError("it names a section or a symbol that there is not")
                yield each, entries

    def add_text(self, table: Section, text: str) -> int:
        """Append a string to a table of strings; return its offset."""
        at = len(table.data)
        table.data += text.encode() + b"\0"
        return at

    def _symtab(self) -> Section:
        found = next((each for each in self.sections if each.kind == SectionKind.SYMTAB), None)
        if found is None:
            raise PatchError(
                "This cubin has no table of symbols, so its kernels can't be found. It was "
                "stripped; take the file that the compiler wrote."
            )
        return found

    def write(self) -> bytes:
        """Return the file: byte for byte the one that was read, where nothing was changed.

        Raises:
            PatchError: its parts overlap, or their sizes can't be right.
        """
        with _reading("table of sections or of segments"):
            return _Layout(self).written()


def _text_at(table: bytes, at: int) -> str:
    """Return a string of a table of strings."""
    return table[at : table.index(b"\0", at)].decode()


def _section(data: bytes, raw: tuple[int, ...], names: bytes) -> Section:
    name_at, kind, flags, address, offset, size, link, info, align, entry = raw
    stored = 0 if kind in (0, SectionKind.NOBITS) else size
    if offset + stored > len(data):
        raise ValueError("a section ends behind the file's end")
    if align > _LARGEST_ALIGN:
        raise ValueError(f"a section is to be aligned to {align} bytes")
    content = data[offset : offset + stored]
    name = _text_at(names, name_at)
    return Section(
        *(name, name_at, kind, flags, address, offset, size, link, info, align, entry),
        *(content, stored),
    )


@dataclass
class _ReplacedBytes:
    """A run of bytes of the file that was read, and the bytes that replace it."""

    offset: int
    room: int
    align: int
    data: bytes
    new: int = 0


class _Layout:
    """The layout of the new file: parts behind one that grew move; alignment and gaps are kept."""

    def __init__(self, elf: Elf) -> None:
        self.elf = elf
        self.head = _ReplacedBytes(0, _HEAD.size, 1, elf.original[: _HEAD.size])
        self.tables = (
            _ReplacedBytes(elf.sections_at, 0, 8, bytes(len(elf.sections) * _SECTION.size)),
            _ReplacedBytes(elf.segments_at, 0, 8, bytes(len(elf.segments) * _SEGMENT.size)),
        )
        self.tables[0].room = _SECTION.size * _count(elf.original, 4)
        self.tables[1].room = _SEGMENT.size * _count(elf.original, 0)
        self.of: dict[int, _ReplacedBytes] = {}
        self.chunks = self._chunks()
        self._place()

    def _chunks(self) -> list[_ReplacedBytes]:
        """Return the parts in their order; sections that share equal bytes share a part."""
        shared: dict[tuple[int, int, bytes], _ReplacedBytes] = {}
        taken: set[tuple[int, int]] = set()
        made = [self.head, *(each for each in self.tables if each.data)]
        for each in self.elf.sections:
            if not each.data and not each.room:
                continue
            extent = each.offset, each.room
            if (chunk := shared.get((*extent, each.data))) is None:
                room = 0 if extent in taken else each.room  # of two that differ now, one moves out
                chunk = _ReplacedBytes(each.offset, room, each.align, each.data)
                made.append(chunk)
                shared[(*extent, each.data)] = chunk
                taken |= {extent} if each.room else set()
            chunk.align = max(chunk.align, each.align)
            self.of[id(each)] = chunk
        made.sort(key=lambda chunk: (chunk.offset, chunk.room))
        return made

    def _place(self) -> None:
        end, shift = 0, 0
        for chunk in self.chunks:
            if chunk.offset < end:
                raise PatchError(
                    f"Parts of this cubin overlap at byte {chunk.offset}: which of them moves "
                    "when one grows is not known. Compile it again, or leave this kernel out."
                )
            align = max(chunk.align, 1)
            shift += -(chunk.offset + shift) % align if shift or not chunk.room else 0
            chunk.new = chunk.offset + shift
            shift += len(chunk.data) - chunk.room
            end = chunk.offset + chunk.room
        self._starts = {each.offset: each for each in self.chunks if each.room}
        self._ends = {each.offset + each.room: each for each in self.chunks if each.room}
        self._order = [each.offset for each in self.chunks]

    def start(self, old: int) -> int:
        """Return the new offset of the part that began at an old one."""
        if (found := self._starts.get(old)) is not None:
            return found.new
        return self.end(old)

    def end(self, old: int) -> int:
        """Return the new end of the part that ended at an old offset."""
        if (found := self._ends.get(old)) is not None:
            return found.new + len(found.data)
        before = self.chunks[bisect_right(self._order, old) - 1]
        return before.new + len(before.data) + old - before.offset - before.room

    def written(self) -> bytes:
        self._fill_tables()
        out, original, end = bytearray(), self.elf.original, 0
        for chunk in self.chunks:
            out += original[end : chunk.offset]
            out += bytes(chunk.new - len(out))
            out += chunk.data
            end = chunk.offset + chunk.room
        return bytes(out + original[end:])

    def _fill_tables(self) -> None:
        elf = self.elf
        self.tables[0].data = b"".join(map(self._section, elf.sections))
        self.tables[1].data = b"".join(map(self._segment, elf.segments))
        head = list(_HEAD.unpack(elf.original[: _HEAD.size]))
        head[6], head[12] = self.tables[0].new, len(elf.sections)
        if elf.segments:
            head[5], head[10] = self.tables[1].new, len(elf.segments)
        self.head.data = _HEAD.pack(*head)

    def _section(self, each: Section) -> bytes:
        chunk = self.of.get(id(each))
        offset = self.start(each.offset) if chunk is None else chunk.new
        size = each.size if chunk is None else len(each.data)
        if each.kind == 0:
            offset = each.offset
        return _SECTION.pack(
            *(each.name_at, each.kind, each.flags, each.address, offset, size),
            *(each.link, each.info, each.align, each.entry),
        )

    def _segment(self, each: ProgramHeader) -> bytes:
        first, last = each.first, each.last
        offset = self.of[id(first)].new if first is not None else self.start(each.offset)
        if last is not None:
            end = self.of[id(last)].new + len(last.data)
        else:
            end = self.end(each.offset + each.file_size) if each.file_size else offset
        size = end - offset
        memory = size + each.memory_size - each.file_size
        return _SEGMENT.pack(
            each.kind, each.flags, offset, each.virtual, each.physical, size, memory, each.align
        )


def _count(original: bytes, beyond: int) -> int:
    return int(struct.unpack_from("<H", original, _COUNTS_AT + beyond)[0])
