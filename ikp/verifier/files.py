"""Whether all of a cubin but a kernel's code is as it was, or differs as declared.

Both files are read so that what names a place in the code names an original instruction, by number.
Then what is declared is done to what the plain one says, and both must say the same.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ikp.verifier.declared import Declared
from ikp.verifier.elf import ALLOCATED, SYMBOLS, TABLES, Elf, Section
from ikp.verifier.moved import BYTES, Moved

_DEBUGGING = (".debug_line", ".debug_frame", ".nv_debug_line_sass")
"""Sections that no kernel is run by."""
_BANKS, _NAMES = (".nv.constant3", ".nv.merc.nv.constant.user"), 3
_PLACES = {
    **dict.fromkeys((0x1C, 0x1D, 0x25, 0x27, 0x28, 0x31, 0x46, 0x47), (4, 0)),
    **dict.fromkeys((0x2E, 0x44), (8, 0)), 0x39: (16, 0), 0x55: (8, 4),
}  # fmt: skip
"""Attributes that hold places in the code: bytes of an entry, and where in it the place is."""
_OTHERS = frozenset(
    (0x05, 0x0A, 0x0C, 0x0F, 0x10, 0x11, 0x12, 0x17, 0x19, 0x1E, 0x23, 0x26, 0x29, 0x30, 0x34, 0x36)
    + (0x37, 0x3B, 0x3D, 0x3F, 0x42, 0x45, 0x4F, 0x5E, 0x66)
)
"""Those with a size that hold none, or that are looked at by name."""
_PLACED, _SIZE, _PARAMETER, _PARAMETER_TOO, _REGISTERS = 0x0A, 0x19, 0x17, 0x45, 0x2F
_BRANCHES, _SIZED, _MOST_THREADS = 0x34, 4, (0x05, 0x10)
_BASES = {8: 0x160, 9: 0x210, 10: 0x380, 12: 0x380}
"""Where parameters begin in the constants, by generation, of kernels that have none."""
_ON_AN_SM, _PORTION, _WARP = 65536, 8, 32


def attributes(data: bytes) -> list[list[Any]]:
    """Return what a section of attributes says: code and value of each; ValueError: damaged."""
    found, at = [], 0
    while at < len(data):
        form, code, value = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == _SIZED:
            found.append([code, data[at : at + value]])
            at += value
        else:
            found.append([code, value])
    if at != len(data):
        raise ValueError("attributes end in the middle of one")
    return found


def words(value: bytes) -> list[int]:
    """Return a value's numbers of 32 bits."""
    return np.frombuffer(value[: len(value) // 4 * 4], "<u4").tolist()


def branches(value: bytes) -> list[tuple[int, list[int]]]:
    """Return the indirect branches that an attribute lists, each with where it leads: bytes."""
    found, at, numbers = [], 0, words(value)
    while at + 3 <= len(numbers):
        end = at + 3 + numbers[at + 2]
        found.append((numbers[at], numbers[at + 3 : end]))
        at = end
    return found


@dataclass
class Facts:
    """What a file says beside a kernel's code.

    Args:
        elf: the file.
        kernel: the kernel's name.
        moved: what became of the code; None for the plain file.
    """

    elf: Elf
    kernel: str
    moved: Moved | None

    @property
    def listed(self) -> list[list[Any]]:
        """The kernel's attributes."""
        return attributes(self.elf.find(f".nv.info.{self.kernel}").data)

    @property
    def parameters(self) -> tuple[int, int]:
        """Where the kernel's parameters begin in the constants, and how many bytes they are."""
        found = [words(value)[1] for code, value in self.listed if code == _PLACED]
        return (found[0] & 0xFFFF, found[0] >> 16) if found else (_BASES.get(self.elf.sm // 10, 0), 0)

    def read(self) -> dict[str, Any]:
        """Return all of it, by section."""
        found: dict[str, Any] = {"header": self.elf.kind}
        for number, each in enumerate(self.elf.sections):
            if each.kind == _NAMES or (each.name in _DEBUGGING and not each.rest[0] & ALLOCATED):
                continue
            found[f"{each.name} {number}"] = each.kind, each.rest[:3], self._read(each)
        return found

    def _read(self, each: Section) -> Any:
        if each.kind in TABLES:
            return self._relocations(each)
        if each.kind == SYMBOLS:
            return [self._symbol(*entry) for entry in each.table.tolist()]
        if each.name == f".text.{self.kernel}":
            return each.rest, each.info & 0xFFFFFF
        if each.name == f".nv.info.{self.kernel}":
            return [[code, self._places(code, value)] for code, value in self.listed]
        if each.name == ".nv.info":
            return attributes(each.data)
        if each.name == f".nv.constant2.{self.kernel}" and any(c == _BRANCHES for c, _ in self.listed):
            return [self._reached(place) for place in words(each.data)]
        return each.info, each.data

    def _reached(self, byte: int) -> Any:
        """Return the original instruction that one comes to from a byte of the code."""
        if self.moved is None or byte == 0:
            return byte / BYTES
        found = self.moved.reached(byte // BYTES)
        return next(iter(found))[1] if len(found) == 1 and byte % BYTES == 0 else None

    def _placed(self, byte: int) -> list[Any]:
        """Return the original instruction that is at a byte."""
        if self.moved is None:
            return [byte // BYTES, byte % BYTES]
        return [self.moved.origin[byte // BYTES], byte % BYTES]

    def _places(self, code: int, value: Any) -> Any:
        if code == _BRANCHES:
            return [(self._placed(at), list(map(self._reached, to))) for at, to in branches(value)]
        if code not in _PLACES:
            return value if not isinstance(value, bytes) or code in _OTHERS else None
        nbytes, at = _PLACES[code]
        entries = [value[n : n + nbytes] for n in range(0, len(value), nbytes)]
        times = 1 if self.moved is None else len(self.moved.parts)
        made = [
            (self._placed(*struct.unpack_from("<I", each, at)), each[:at], each[at + 4 :])
            for each in entries
        ]
        count = len(made) // times
        return made[:count] if made == made[:count] * times else None

    def _ours(self, section: int) -> bool:
        return section < len(self.elf.sections) and self.elf.sections[section].name == f".text.{self.kernel}"

    def _symbol(self, name: int, kind: int, section: int, at: int, nbytes: int) -> Any:
        texts = self.elf.sections[self.elf.symbols.rest[2]].data
        text = texts[name : texts.index(b"\0", name)]
        if not self._ours(section):
            return text, kind, section, at, nbytes
        size = len(self.elf.sections[section].data)
        end = "end" if at + nbytes == size else self._reached(at + nbytes)
        return text, kind, section, self._reached(at), end if nbytes else 0

    def _relocations(self, each: Section) -> Any:
        symbols = self.elf.symbols.table
        if self.elf.sections[each.info].name in _DEBUGGING:
            return None
        found = []
        for offset, kind, symbol, *addend in each.table.tolist():
            at = self._placed(offset) if self._ours(each.info) else offset
            base = int(symbols[symbol]["at"])
            if self._ours(int(symbols[symbol]["section"])) and addend:
                addend = [self._reached(base + addend[0]) if addend[0] else 0]
            found.append((at, kind, symbol, *addend))
        return each.info, found


def differences(old: Facts, new: Facts, declared: Declared) -> Iterator[str]:
    """Yield what two files say differently, beside what is declared."""
    expected, found = old.read(), new.read()
    base, end = old.parameters
    added = declared.bank == 0 and declared.cell >= base + end
    for name in expected:
        section = name.rpartition(" ")[0]
        if section == ".nv.info":
            yield from _registered(expected[name][2], old, declared)
        elif section == f".nv.info.{declared.kernel}" and added:
            _one_more(expected[name][2], declared, base)
        elif section == f".nv.constant0.{declared.kernel}" and added:
            expected[name] = _longer(expected[name], declared)
        elif section in _BANKS and declared.bank:
            expected[name] = _longer(expected[name], declared)
        elif old.elf.sections[int(name.split()[-1])].kind == SYMBOLS if name != "header" else False:
            more = found[name][2][len(expected[name][2]) :] if name in found else []
            mine = [each for each in more if each[3:] == (declared.cell, declared.nbytes)]
            if len(mine) != bool(declared.bank) or len(more) > 2:
                yield "its symbols are not what is declared"
            expected[name] = (*expected[name][:2], expected[name][2] + more)
    made = [name for name in found if name not in expected]
    if made and not (declared.bank and [each.rpartition(" ")[0] for each in made] == [_BANKS[0]]):
        yield f"it has more sections: {', '.join(made)}"
    for name, value in expected.items():
        if found.get(name) != value:
            yield f"{name.rpartition(' ')[0] or name} is not what is declared"
    if [_loaded(old.elf, bool(made)), 0] != [_loaded(new.elf, bool(made)), 0]:
        yield "what is loaded together differs"
    yield from _fits(old, declared, added)


def _registered(listed: list[list[Any]], old: Facts, declared: Declared) -> Iterator[str]:
    """Have a kernel have the registers that are declared."""
    symbols = old.elf.symbols.table
    mine = [
        each
        for each in listed
        if each[0] == _REGISTERS and old._ours(int(symbols[words(each[1])[0]]["section"]))  # noqa: SLF001
        if int(symbols[words(each[1])[0]]["at"]) == 0
    ]
    if len(mine) != 1:
        yield f"the number of its registers is said {len(mine)} times"
    for each in mine:
        each[1] = each[1][:4] + struct.pack("<I", declared.registers)


def _one_more(listed: list[list[Any]], declared: Declared, base: int) -> None:
    """Have a kernel have the parameter that is declared."""
    offset, last = declared.cell - base, declared.cell - base + declared.nbytes
    for each in listed:
        if each[0] == _SIZE:
            each[1] = last
        elif each[0] == _PLACED:
            each[1] = each[1][:4] + struct.pack("<I", base | last << 16)
    value = struct.pack("<IHHI", 0, declared.ordinal or 0, offset, 0x1F000 | declared.nbytes << 18)
    first = next(n for n, each in enumerate(listed) if each[0] == _PARAMETER)
    listed.insert(first, [_PARAMETER, value])


def _longer(expected: Any, declared: Declared) -> Any:
    kind, rest, (info, data) = expected
    return kind, rest, (info, data + bytes(declared.cell + declared.nbytes - len(data)))


def _fits(old: Facts, declared: Declared, added: bool) -> Iterator[str]:
    """Yield why a kernel can't have what is declared."""
    listed, count, ordinals = old.listed, declared.registers, []
    threads = [int(np.prod(words(value))) for code, value in listed if code in _MOST_THREADS]
    each = -(-count // _PORTION) * _PORTION
    if count > 255 or any(each * -(-n // _WARP) * _WARP > _ON_AN_SM for n in threads):
        yield f"its threads can't have {count} registers each"
    for code, value in listed if declared.bank == 0 else ():
        if code in (_PARAMETER, _PARAMETER_TOO):
            _, ordinal, offset, size = struct.unpack("<IHHI", value)
            first, size = offset + old.parameters[0], size >> 18 if code == _PARAMETER else size
            if first < declared.cell + declared.nbytes and declared.cell < first + size:
                ordinals.append(ordinal)
    if declared.bank == 0 and sorted(ordinals) != ([] if added else [declared.ordinal, declared.ordinal + 1]):
        yield "the argument that is declared overlaps others"


def _loaded(elf: Elf, made: bool) -> list[Any]:
    found = [((each[0], each[1], each[7]), [n for n in elf.inside(each) if n != _BANKS[0]]) for each in elf.segments]
    return [each for each in found if each[1] or not made]
