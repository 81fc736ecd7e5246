"""Comparison of two cubins beside the kernel's code: sections, symbols, attributes, relocations.

Both files are read so that references into the code are numbers of original instructions. Then the
declared differences are applied to the facts of the plain one, and both must be equal.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ikp.verifier.declared import Declared
from ikp.verifier.moved import BYTES, Moved
from ikp.verifier.stored import ALLOCATED, SYMBOLS, TABLES, Elf, Section

_DEBUGGING = (".debug_line", ".debug_frame", ".nv_debug_line_sass")
"""Sections that no kernel needs to run."""
_BANKS, _NAMES = (".nv.constant3", ".nv.merc.nv.constant.user"), 3
_PLACES = {
    **dict.fromkeys((0x1C, 0x1D, 0x25, 0x27, 0x28, 0x31, 0x46, 0x47), (4, 0)),
    **dict.fromkeys((0x2E, 0x44), (8, 0)), 0x39: (16, 0), 0x55: (8, 4),
}  # fmt: skip
"""Attributes that hold offsets into the code -> bytes of an entry, and the offset's position."""
_OTHERS = frozenset(
    (
        *(
            0x05,
            0x0A,
            0x0C,
            0x0F,
            0x10,
            0x11,
            0x12,
            0x17,
            0x19,
            0x1E,
            0x23,
            0x26,
            0x29,
            0x30,
            0x34,
            0x36,
        ),
        *(0x37, 0x3B, 0x3D, 0x3F, 0x42, 0x45, 0x4F, 0x5E, 0x66),
    )
)
"""Attributes with a size that hold no such offsets, or that are compared by name."""
_PLACED, _SIZE, _PARAMETER, _PARAMETER_TOO, _REGISTERS = 0x0A, 0x19, 0x17, 0x45, 0x2F
_BRANCHES, _SIZED, _MOST_THREADS = 0x34, 4, (0x05, 0x10)
_BASES = {8: 0x160, 9: 0x210, 10: 0x380, 12: 0x380}
"""The offset of parameters in the constants, by generation, for kernels that have none."""
_IN_A_PART, _PARTS, _PORTION, _WARP, _MOST = 16384, 4, 8, 32, 255


def attributes(data: bytes) -> list[list[Any]]:
    """Return the attributes of a section: code and value of each; ValueError: damaged."""
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
    return [int(each) for each in np.frombuffer(value[: len(value) // 4 * 4], "<u4")]


def branches(value: bytes) -> list[tuple[int, list[int]]]:
    """Return the indirect branches that an attribute lists, each with its targets, in bytes."""
    found, at, numbers = [], 0, words(value)
    while at + 3 <= len(numbers):
        end = at + 3 + numbers[at + 2]
        found.append((numbers[at], numbers[at + 3 : end]))
        at = end
    return found


@dataclass
class Facts:
    """The facts of a cubin beside a kernel's code.

    Args:
        elf: the cubin.
        kernel: the kernel's name.
        moved: the patched code, matched with the plain one's; None for the plain file.
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
        """The offset of the kernel's parameters in the constants, and their size in bytes."""
        found = [words(value)[1] for code, value in self.listed if code == _PLACED]
        begin, size = _BASES.get(self.elf.sm // 10, 0), 0
        return (found[0] & 0xFFFF, found[0] >> 16) if found else (begin, size)

    def read(self) -> dict[str, Any]:
        """Return all facts, by section."""
        found: dict[str, Any] = {"header": self.elf.kind}
        for number, each in enumerate(self.elf.sections):
            if each.kind == _NAMES or (each.name in _DEBUGGING and not each.rest[0] & ALLOCATED):
                continue
            found[f"{each.name} {number}"] = each.kind, each.rest[:3], self._read(each)
        return found

    def _read(self, each: Section) -> Any:
        made: Any = each.info, each.data
        if each.kind in TABLES:
            made = self._relocations(each)
        elif each.kind == SYMBOLS:
            made = [self.symbol(*entry) for entry in each.table.tolist()]
        elif each.name == f".text.{self.kernel}":
            made = each.info, b""
        elif each.name == f".nv.info.{self.kernel}":
            made = [[code, self._places(code, value)] for code, value in self.listed]
        elif each.name == ".nv.info":
            made = attributes(each.data)
        elif each.name == f".nv.constant2.{self.kernel}" and _BRANCHES in dict(self.listed):
            known = {to for _, tos in branches(dict(self.listed)[_BRANCHES]) for to in tos}
            made = [(self._reached(to), to in known) for to in words(each.data)]
        return made

    def _reached(self, byte: int) -> Any:
        """Return the original instruction that control reaches from a byte of the code."""
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
        names = [each.name for each in self.elf.sections[section : section + 1]]
        return names == [f".text.{self.kernel}"]

    def symbol(self, name: int, kind: int, section: int, at: int, nbytes: int) -> Any:
        """Return a symbol's name, kind, beginning and end."""
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
            base, mine = int(symbols[symbol]["at"]), self._ours(int(symbols[symbol]["section"]))
            beyond = [self._reached(base + more) if mine and more else more for more in addend]
            found.append((at, kind, symbol, *beyond))
        return each.info, found


def differences(old: Facts, new: Facts, declared: Declared) -> Iterator[str]:
    """Yield the differences between two files that are not declared."""
    before, found = old.read(), new.read()
    base, end = old.parameters
    added = declared.bank == 0 and declared.cell >= base + end
    expected = {name: _changed(name, value, old, declared, added) for name, value in before.items()}
    for name in (name for name in expected if name in found and _is_symbols(old, name)):
        more = found[name][2][len(expected[name][2]) :]
        mine = [each for each in more if each[3:] == (declared.cell, declared.nbytes)]
        if len(mine) != bool(declared.bank) or len(more) > 2:
            yield "its symbols are not what is declared"
        expected[name] = (*expected[name][:2], expected[name][2] + more)
    made = [name.rpartition(" ")[0] for name in found if name not in expected]
    if made and not (declared.bank and made == [_BANKS[0]]):
        yield f"it has more sections: {', '.join(made)}"
    for name, value in expected.items():
        if found.get(name) != value:
            yield f"{name.rpartition(' ')[0] or name} is not what is declared"
    if _loaded(old.elf, bool(made)) != _loaded(new.elf, bool(made)):
        yield "what is loaded together differs"
    yield from _fits(old, new, declared, added)


def _is_symbols(old: Facts, name: str) -> bool:
    number = name.rpartition(" ")[2]
    return number.isdecimal() and old.elf.sections[int(number)].kind == SYMBOLS


def _changed(name: str, value: Any, old: Facts, declared: Declared, added: bool) -> Any:
    """Return the facts of a section with the declared differences."""
    section, kernel = name.rpartition(" ")[0], declared.kernel
    if section == f".text.{kernel}" and value[2][0] >> 24:
        info = value[2][0] & 0xFFFFFF | declared.registers << 24
        return (*value[:2], (info, value[2][1]))
    if section == ".nv.info":
        _register(value[2], old, declared)
    elif section == f".nv.info.{kernel}" and added:
        _one_more(value[2], declared, old.parameters[0])
    longer = section == f".nv.constant0.{kernel}" and added
    if longer or (section in _BANKS and declared.bank):
        info, data = value[2]
        more = bytes(max(declared.cell + declared.nbytes - len(data), 0))
        return (*value[:2], (info, data + more))
    return value


def _register(listed: list[list[Any]], old: Facts, declared: Declared) -> None:
    """Set the declared number of registers in the attributes."""
    for each in listed:
        if each[0] == _REGISTERS:
            text, *_ = old.symbol(*old.elf.symbols.table[words(each[1])[0]].tolist())
            if text.decode() == declared.kernel:
                each[1] = each[1][:4] + struct.pack("<I", declared.registers)


def _one_more(listed: list[list[Any]], declared: Declared, base: int) -> None:
    """Add the declared parameter to the attributes."""
    offset, last = declared.cell - base, declared.cell - base + declared.nbytes
    for each in listed:
        if each[0] == _SIZE:
            each[1] = last
        elif each[0] == _PLACED:
            each[1] = each[1][:4] + struct.pack("<I", base | last << 16)
    value = struct.pack("<IHHI", 0, declared.ordinal or 0, offset, 0x1F000 | declared.nbytes << 18)
    first = next(n for n, each in enumerate(listed) if each[0] == _PARAMETER)
    listed.insert(first, [_PARAMETER, value])


def _fits(old: Facts, new: Facts, declared: Declared, added: bool) -> Iterator[str]:
    """Yield why a kernel can't have the declared registers or parameter."""
    listed, count = old.listed, declared.registers
    threads = [int(np.prod(words(value))) for code, value in listed if code in _MOST_THREADS]
    warps = [-(-n // _WARP) for n in threads]
    held = _IN_A_PART // (-(-count // _PORTION) * _PORTION * _WARP) * _PARTS
    if count > _MOST or any(each > held for each in warps):
        yield f"its threads can't have {count} registers each"
    ordinals = []
    for code, value in listed if declared.bank == 0 else ():
        if code in (_PARAMETER, _PARAMETER_TOO):
            _, ordinal, offset, size = struct.unpack("<IHHI", value)
            first, size = offset + old.parameters[0], size >> 18 if code == _PARAMETER else size
            if first < declared.cell + declared.nbytes and declared.cell < first + size:
                ordinals.append(ordinal)
    own = declared.ordinal or 0  # an unread argument in its place is two of 64 bits
    if sorted(ordinals) != ([] if added or declared.bank else [own, own + 1]):
        yield "the argument that is declared overlaps others"
    for line in new.moved.text.lines if new.moved is not None and ordinals else ():
        if _reads(line, declared.cell, declared.cell + declared.nbytes):
            yield f"{line!r} reads the argument that is declared"


def _reads(line: str, begin: int, end: int) -> bool:
    """Whether an instruction may read some bytes of a kernel's parameters."""
    wide = 16 if ".128" in line else 8 if re.search(r"\.64|\.WIDE|\bD[A-Z]+", line) else 4
    return any(
        "R" in at.replace("RZ", "") or begin - wide < int(at, 16) < end
        for at in re.findall(r"c\[0x0\]\[(?:U?RZ\+)?([^\]]+)\]", line)
    )


def _loaded(elf: Elf, made: bool) -> list[Any]:
    """Return the sections that each segment loads, but for the constants that the host writes."""
    found = []
    for each in elf.segments:
        names = [name for name in elf.inside(each) if name != _BANKS[0]]
        if names or not made:
            found.append(((each[0], each[1], each[7]), names))
    return found
