"""DWARF's tables of lines and frames, written by hand with every operation that compilers use."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from ikp.errors import PatchError
from ikp.sass.cubins.cubin import Kernel
from ikp.sass.cubins.elf import RELA, Elf, Section, SectionKind
from ikp.sass.cubins.source_lines import (
    UnknownTableError,
    encoded_leb,
    end_of_leb,
    read_uleb,
    source_lines,
)
from ikp.sass.insertion._debug_tables import follow_frames, follow_lines
from ikp.sass.insertion.displacement import Displacement, Insertion, shift

pytestmark = pytest.mark.any_pins

UNIT, BASE, RANGE, FIRST = 8, -5, 15, 13
CONSTANT = (255 - FIRST) // RANGE * UNIT
"""Bytes that DW_LNS_const_add_pc adds."""
LENGTHS = bytes((0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1))
SYMBOL = np.dtype(
    [
        *(("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2")),
        *(("value", "<u8"), ("size", "<u8")),
    ]
)
COUNT = 400
"""Instructions of the kernel."""
REFERENCES = np.dtype([("offset", "<u8"), ("kind", "<u4"), ("symbol", "<u4")])
Place = tuple[int, str, int]
"""Address, file, line."""


def leb(value: int) -> bytes:
    """Return a number in LEB128; a negative one signed."""
    out = bytearray()
    while True:
        byte, value = value & 0x7F, value >> 7
        if value in (0, -1) and bool(byte & 0x40) == (value == -1):
            return bytes([*out, byte])
        out.append(byte | 0x80)


def begin() -> bytes:
    return b"\0\x09\x02" + bytes(8)


def special(step: int, line: int) -> bytes:
    return bytes([FIRST + step // UNIT * RANGE + line - BASE])


COPY, END = b"\x01", b"\0\x01\x01"


def advance(step: int) -> bytes:
    value, out = step // UNIT, bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([2, *out, value])


def to_line(step: int) -> bytes:
    return b"\x03" + leb(step)


def inlined_at(row: int) -> bytes:
    """NVIDIA's operation: the next rows are inlined at an earlier one, counted from 1."""
    return bytes([0, 3, 0x90, row, 0])


SEQUENCE = [
    *(to_line(9), b"\x05\x83\x01", COPY),
    *(advance(16), to_line(-3), b"\x06", COPY),
    special(32, 4),
    *(b"\x08", b"\x04\x02", COPY),
    *(b"\x09" + struct.pack("<H", 0x0130), b"\x0c\x85\x01", COPY),
    *(advance(2400), to_line(200), inlined_at(3), special(16, -5)),
    *(inlined_at(6), special(16, 1), inlined_at(0), special(0, 1)),
    *(advance(128), END),
]
ROWS = [
    (0, "a/one.py", 10),
    (16, "a/one.py", 7),
    (48, "a/one.py", 11),
    (48 + CONSTANT, "two.py", 11),
    (480, "two.py", 11),
    (2896, "two.py", 206),
    (2912, "two.py", 207),
    (2912, "two.py", 208),
]


def unit(*program: bytes, version: int = 2, span: int = RANGE) -> bytes:
    names = b"a\0\0" + b"one.py\0\x01\x83\x01\x07" + b"two.py\0\0\0\0" + b"\0"
    header = struct.pack("<BBbBB", UNIT, 1, BASE, span, FIRST) + LENGTHS + names
    body = struct.pack("<HI", version, len(header)) + header + b"".join(program)
    return struct.pack("<I", len(body)) + body


def section(name: str, kind: SectionKind, data: bytes, link: int = 0, info: int = 0) -> Section:
    return Section(name, 0, kind, 0, 0, 0, len(data), link, info, 1, 0, data)


def file(name: str, data: bytes, places: dict[int, tuple[int, int]], kind: SectionKind) -> Elf:
    """Return a file of two kernels and a table, of whose addresses symbol and addend are given."""
    symbols = np.zeros(3, SYMBOL)
    symbols["section"], symbols["value"] = (0, 1, 2), (0, 0, 0)
    rows = [(at, 2, symbol, addend) for at, (symbol, addend) in places.items()]
    entries = np.array(rows, RELA)
    if kind is SectionKind.REL:
        table = bytearray(data)
        for at, (_, addend) in places.items():
            struct.pack_into("<Q", table, at, addend)
        data, entries = bytes(table), entries[["offset", "kind", "symbol"]].astype(REFERENCES)
    sections = [
        section("", SectionKind.PROGBITS, b""),
        section(".text.k", SectionKind.PROGBITS, bytes(16 * COUNT)),
        section(".text.other", SectionKind.PROGBITS, bytes(16 * COUNT)),
        section(".symtab", SectionKind.SYMTAB, symbols.tobytes()),
        section(name, SectionKind.PROGBITS, data),
        section(f".rel{name}", kind, entries.tobytes(), link=3, info=4),
    ]
    return Elf(b"", 0, 7, 0, 0, 0, sections)


def kernel(elf: Elf) -> Kernel:
    return Kernel("k", True, elf.sections[1], 1, 1, 32)


def starts(data: bytes) -> list[int]:
    """Return where a table of lines has addresses."""
    return [at + 3 for at in range(len(data)) if data[at : at + 3] == begin()[:3]]


def lines_file(kind: SectionKind = SectionKind.RELA, form: dict[str, int] | None = None) -> Elf:
    """Return a file whose first unit has two kernels' code and then a function of the first."""
    again = [to_line(29), COPY, advance(320), END]
    data = unit(begin(), *SEQUENCE, begin(), *SEQUENCE, begin(), *again, **(form or {}))
    data += unit(begin(), *SEQUENCE, **(form or {})) + bytes(3)
    symbols = dict(zip(starts(data), ((1, 0), (2, 0), (1, 3200), (2, 0)), strict=True))
    return file(".debug_line", data, symbols, kind)


@dataclass
class Lines:
    """DWARF's state machine for lines, by its standard."""

    data: bytes
    at: int
    found: list[Place] = field(default_factory=list)
    address: int = 0
    line: int = 1
    file: int = 1
    ended: bool = False

    def number(self, *, signed: bool = False) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            value, shift, self.at = value | (byte & 0x7F) << shift, shift + 7, self.at + 1
            if byte < 0x80:
                return value - (1 << shift) if signed and byte & 0x40 else value

    def row(self) -> None:
        self.found.append((self.address, {1: "a/one.py", 2: "two.py"}[self.file], self.line))

    def execute(self) -> None:
        op, self.at = self.data[self.at], self.at + 1
        if op >= FIRST:
            self.address += (op - FIRST) // RANGE * UNIT
            self.line += BASE + (op - FIRST) % RANGE
            self.row()
        elif op == 0:
            after = self.number() + self.at
            self.ended, self.at = self.data[self.at] == 1, after
        else:
            self.standard(op)

    def standard(self, op: int) -> None:
        match op:
            case 1:
                self.row()
            case 2:
                self.address += self.number() * UNIT
            case 3:
                self.line += self.number(signed=True)
            case 4:
                self.file = self.number()
            case 8:
                self.address += CONSTANT
            case 9:
                self.address += struct.unpack_from("<H", self.data, self.at)[0]
                self.at += 2
            case 5 | 12:
                self.number()


def rows(elf: Elf) -> Iterator[list[Place]]:
    """Yield the rows of each sequence, counted from its own start."""
    data, at = elf.sections[4].data, 0
    while at + 20 < len(data):
        size, _, header = struct.unpack_from("<IHI", data, at)
        end, at = at + 4 + size, at + 10 + header
        while at < end:
            lines = Lines(data, at)
            while not lines.ended:
                lines.execute()
            at = lines.at
            yield [*lines.found, (lines.address, "", 0)]


def displaced(*added: tuple[int, int]) -> Displacement:
    """Return the displacement by so many words before each instruction."""
    return shift(COUNT, [Insertion(at, (0,) * count) for at, count in added])[0]


def test_every_operation_of_a_line_table_is_read() -> None:
    elf = lines_file()
    assert next(rows(elf))[:-1] == ROWS
    place = {address: (name, line) for address, name, line in ROWS}
    made = source_lines(elf, kernel(elf))
    assert made == {
        **{address: (each,) for address, each in place.items()},
        2896: (("two.py", 206), place[48]),
        3200: (("a/one.py", 30),),
    }


FORMS: list[dict[str, int]] = [{"version": 4}, {"version": 1}, {"span": 0}]


@pytest.mark.parametrize("form", [*FORMS, {"version": 3}], ids=str)
def test_a_line_table_of_another_form_is_not_read(form: dict[str, int]) -> None:
    elf = lines_file(form=form)
    with pytest.raises(UnknownTableError):
        source_lines(elf, kernel(elf))


@pytest.mark.parametrize("kind", [SectionKind.RELA, SectionKind.REL])
@pytest.mark.parametrize(
    "added",
    [
        [(0, 1)],
        [(1, 2)],
        [(2, 1), (4, 3), (12, 2), (30, 300)],
        [(at, 1) for at in range(COUNT)],
        [(181, 40), (182, 2), (COUNT, 5)],
    ],
)
def test_rows_follow_their_instructions(kind: SectionKind, added: list[tuple[int, int]]) -> None:
    elf, to = lines_file(kind), displaced(*added)
    before = [*rows(elf)]
    follow_lines(elf, kernel(elf), to)
    after = [*rows(elf)]
    for number, start in ((0, 0), (2, 3200)):
        first = to.begun(start)
        assert after[number] == [
            (to.begun(start + at) - first, name, line) for at, name, line in before[number]
        ]
    assert [after[1], after[3]] == [before[1], before[3]], "another kernel's rows stay"
    assert [int(each["offset"]) for _, table in elf.relocations() for each in table] == starts(
        elf.sections[4].data
    ), "relocations follow the addresses that they fill in"


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_line_table_of_another_form_is_not_rewritten(form: dict[str, int]) -> None:
    elf = lines_file(form=form)
    with pytest.raises(PatchError, match="source lines"):
        follow_lines(elf, kernel(elf), displaced((0, 1)))
    follow_lines(third := lines_file(form={"version": 3}), kernel(third), displaced((0, 1)))


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFFFFF])
def test_a_line_table_that_ends_in_a_unit_is_refused(size: int) -> None:
    elf = lines_file()
    elf.sections[4].data = struct.pack("<I", size) + elf.sections[4].data[4:]
    with pytest.raises(PatchError, match="source lines"):
        follow_lines(elf, kernel(elf), displaced((0, 1)))


COMMON = struct.pack("<IQQ", 0xFFFFFFFF, 16, (1 << 64) - 1) + bytes([3, 0, 4, 4, 4, 0, 0, 0])
STEPS = [
    *(b"\x44", b"\x0e\x83\x01", b"\x02\x08", b"\x84\x83\x01", b"\xc4"),
    *(b"\x03\x10\x00", b"\x0c\x01\x83\x01", b"\x0f\x02\x44\x44", b"\x10\x01\x02\x44\x44"),
    *(b"\x04" + struct.pack("<I", 0x20), b"\x16\x01\x03\x44\x44\x44", b"\x0a", b"\x05\x01\x02"),
    *(b"\x4c", b"\x0b", b"\x00", b"\x13\x01", b"\x04" + struct.pack("<I", (1 << 32) - 8), b"\x44"),
]
CHANGES = [16, 48, 112, 240, 288, 256, 272]
"""Addresses at which a frame changes."""


def description(extent: int, *steps: bytes) -> bytes:
    body = struct.pack("<QQQ", 0, 0, extent) + b"".join(steps)
    return struct.pack("<IQ", 0xFFFFFFFF, len(body)) + body


def frames_file(
    kind: SectionKind = SectionKind.RELA, steps: list[bytes] = STEPS, common: bytes = COMMON
) -> Elf:
    """Return a file with a frame of each kernel, and of a function inside the first one."""
    every = [description(16 * COUNT, *steps), description(16 * COUNT, *STEPS)]
    every.append(description(320, b"\x44"))
    places, data = {}, common
    for each, place in zip(every, ((1, 0), (2, 0), (1, 3200)), strict=True):
        places[len(data) + 20] = place
        data += each
    return file(".debug_frame", data, places, kind)


_OPERANDS = {0x0E: 1, 0x13: 1, 0x0C: 2, 0x05: 2}


def step(data: bytes, at: int) -> tuple[int, int]:
    """Return the step of an operation on a frame, and where the next one begins."""
    op, at = data[at], at + 1
    if op >> 6 == 1:
        return op & 63, at
    if op in (2, 3, 4):
        size = {2: 1, 3: 2, 4: 4}[op]
        return int.from_bytes(data[at : at + size], "little"), at + size
    if op in (0x0F, 0x10, 0x16):  # a block, of the second after a register
        at += op != 0x0F
        return 0, at + 1 + data[at]
    for _ in range(1 if op >> 6 == 2 else _OPERANDS.get(op, 0)):
        while data[at] >= 0x80:
            at += 1
        at += 1
    return 0, at


def frames(elf: Elf) -> Iterator[tuple[int, list[int]]]:
    """Yield each function's extent, and the addresses from its start at which its frame changes."""
    data, at = elf.sections[4].data, len(COMMON)
    while at < len(data):
        (length,), (extent,) = (struct.unpack_from("<Q", data, at + each) for each in (4, 28))
        end, at, address, found = at + 12 + length, at + 36, 0, list[int]()
        while at < end:
            units, at = step(data, at)
            if units:
                address = address + 4 * units & 0xFFFFFFFF
                found.append(address)
        yield extent, found


@pytest.mark.parametrize("kind", [SectionKind.RELA, SectionKind.REL])
@pytest.mark.parametrize(
    "added", [[(0, 1)], [(1, 2)], [(2, 1), (5, 3), (8, 40), (220, 7)], [(17, 1), (210, 3)]]
)
def test_frames_follow_their_instructions(kind: SectionKind, added: list[tuple[int, int]]) -> None:
    elf, to = frames_file(kind), displaced(*added)
    before = [*frames(elf)]
    assert before[0] == (16 * COUNT, CHANGES)
    size = 16 * to.count + 64
    follow_frames(elf, kernel(elf), to, size)
    made = [*frames(elf)]
    assert made[0] == (size, [to.begun(each) for each in CHANGES])
    assert made[1] == before[1], "another kernel's frame stays"
    first = to.landed(3200)
    assert made[2] == (to.landed(3520) - first, [to.begun(3216) - first])


@pytest.mark.parametrize(
    ("operation", "most"), [(b"\x44", 14), (b"\x02\x04", 62), (b"\x03\x04\x00", 16382)]
)
def test_a_step_with_no_room_for_more_is_refused(operation: bytes, most: int) -> None:
    elf = frames_file(steps=[operation])
    follow_frames(elf, kernel(elf), displaced((0, most)), 0)
    elf = frames_file(steps=[operation])
    with pytest.raises(PatchError, match="no room"):
        follow_frames(elf, kernel(elf), displaced((0, most + 1)), 0)


@pytest.mark.parametrize(("at", "byte"), [(0, 0xFE), (21, 1), (22, 1)])
def test_a_frame_table_of_another_form_is_refused(at: int, byte: int) -> None:
    common = bytearray(COMMON)
    common[at] = byte
    elf = frames_file(common=bytes(common))
    with pytest.raises(PatchError, match="debug_frame"):
        follow_frames(elf, kernel(elf), displaced((0, 1)), 0)


def test_a_frame_table_that_ends_in_an_entry_is_refused() -> None:
    elf = frames_file()
    elf.sections[4].data = elf.sections[4].data[:-1]
    with pytest.raises(PatchError, match="debug_frame"):
        follow_frames(elf, kernel(elf), displaced((0, 1)), 0)


def test_an_unknown_operation_on_a_frame_is_refused() -> None:
    elf = frames_file(steps=[b"\x2e\x10"])
    with pytest.raises(PatchError, match="operation 0x2e"):
        follow_frames(elf, kernel(elf), displaced((0, 1)), 0)


def test_a_number_takes_as_few_bytes_as_it_can() -> None:
    for value, size in {0: 1, 1: 1, 127: 1, 128: 2, 16383: 2, 16384: 3}.items():
        made = encoded_leb(value)
        assert len(made) == size and read_uleb(made, 0) == (value, size)
        assert end_of_leb(made, 0) == size
