"""Whether all of a cubin but a kernel's code differs as declared, and what is not ikp's is equal."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ikp.verifier.declared import Declared
from ikp.verifier.elf import ALLOCATED, SYMBOLS, TABLES, Elf, Section
from ikp.verifier.moved import BYTES, Moved

_DEBUGGING = (".debug_line", ".debug_frame", ".nv_debug_line_sass")
"""Sections that no kernel is run by."""
_BANK = ".nv.constant3"
_PLACES = {
    **dict.fromkeys((0x1C, 0x1D, 0x25, 0x27, 0x28, 0x31, 0x46, 0x47), (4, 0)),
    **dict.fromkeys((0x2E, 0x44), (8, 0)), 0x39: (16, 0), 0x55: (8, 4),
}  # fmt: skip
"""Attributes that hold places in the code: bytes of an entry, and where in it the place is."""
_OTHERS = frozenset(
    (0x05, 0x0A, 0x0C, 0x0F, 0x10, 0x11, 0x12, 0x17, 0x19, 0x1E, 0x23, 0x26, 0x29, 0x30, 0x34, 0x36)
    + (0x37, 0x3B, 0x3D, 0x3F, 0x42, 0x45, 0x4F, 0x5E, 0x66)
)
"""Those that hold none, or are looked at by name."""
PLACED, SIZES, PARAMETER, REGISTERS, BRANCHES = 0x0A, 0x19, 0x17, 0x2F, 0x34
_SIZED, _MOST_THREADS = 4, (0x05, 0x10)
Attribute = tuple[int, int, bytes]  # its format, its code, its value


def attributes(data: bytes) -> list[Attribute]:
    """Return what a section of attributes says; struct.error: it is damaged."""
    found, at = [], 0
    while at < len(data):
        form, code, value = struct.unpack_from("<BBH", data, at)
        end = at + 4 + (value if form == _SIZED else 0)
        if end > len(data):
            raise ValueError("attributes end in the middle of one")
        found.append((form, code, data[at + 4 : end] if form == _SIZED else data[at + 2 : at + 4]))
        at = end
    return found


def words(value: bytes) -> list[int]:
    """Return a value's numbers of 32 bits."""
    return np.frombuffer(value[: len(value) // 4 * 4], "<u4").tolist()


@dataclass
class Files:
    """A plain cubin and a patched one."""

    plain: Elf
    patched: Elf
    declared: Declared
    moved: Moved

    def check(self) -> Iterator[str]:
        """Yield what differs and is not declared."""
        old, new, name = self.plain, self.patched, self.declared.kernel
        if old.kind != new.kind:
            yield "the file's header differs"
        more = [each.name for each in new.sections[len(old.sections) :]]
        if more not in ([], [_BANK] if self.declared.bank else []):
            yield f"it has more sections: {', '.join(more)}"
        yield from self._segments(more)
        special = {
            f".text.{name}": self._code, f".nv.info.{name}": self._described,
            f".nv.constant0.{name}": self._parameters, f".nv.constant2.{name}": self._tables,
            ".nv.info": self._registers, _BANK: self._bank, ".nv.merc.nv.constant.user": self._bank,
        }  # fmt: skip
        for one, other in zip(old.sections, new.sections, strict=False):
            check = special.get(one.name)
            if check is None and one.kind in (*TABLES, SYMBOLS):
                check = self._symbols if one.kind == SYMBOLS else self._relocations
            if (one.name, one.kind, one.rest[:3]) != (other.name, other.kind, other.rest[:3]):
                yield f"the section {one.name} is another one"
            elif check is not None:
                yield from check(one, other)
            elif one.data != other.data or one.info != other.info or one.rest != other.rest:
                yield from self._differs(one, other)

    def _differs(self, one: Section, other: Section) -> Iterator[str]:
        if one.kind == 3 and other.data.startswith(one.data):  # names of symbols and sections
            return
        debugging = one.name in _DEBUGGING and not one.rest[0] & ALLOCATED
        if not debugging and not self._addressed(one, other):
            yield f"the section {one.name} differs"

    def _addressed(self, one: Section, other: Section) -> bool:
        """Whether sections differ in places of the code alone, which lead as before."""
        tables = [each for each in self.plain.sections if each.kind == 9]
        mine = next((t for t in tables if self.plain.sections[t.info] is one), None)
        if mine is None or len(one.data) != len(other.data):
            return False
        left, right = bytearray(one.data), bytearray(other.data)
        for offset, kind, symbol in mine.table.tolist():
            if kind == 2 and self._ours(symbol):
                old, new = (struct.unpack_from("<Q", each, offset)[0] for each in (left, right))
                if not self._leads(symbol, old, new):
                    return False
                left[offset : offset + 8] = right[offset : offset + 8] = bytes(8)
        return left == right

    def _ours(self, symbol: int) -> bool:
        section = int(self.plain.symbols.table[symbol]["section"])
        return self.plain.sections[section].name == f".text.{self.declared.kernel}"

    def _leads(self, symbol: int, old: int, new: int) -> bool:
        """Whether a distance from a symbol leads to the same instruction as before."""
        base, now = (int(e.symbols.table[symbol]["at"]) for e in (self.plain, self.patched))
        return self._place(base + old, now + new)

    def _place(self, old: int, new: int) -> bool:
        return old == new == 0 or (old % BYTES == 0 and self.moved.leads(new, 0, old // BYTES))

    def _segments(self, more: Sequence[str]) -> Iterator[str]:
        """Compare what is loaded together."""
        def loaded(elf: Elf) -> list[tuple[object, ...]]:
            made = [((*each[:2], each[7]), [n for n in elf.inside(each) if n != _BANK]) for each in elf.segments]
            return [each for each in made if each[1] or not more]

        if loaded(self.plain) != loaded(self.patched):
            yield "what is loaded together differs"

    def _code(self, one: Section, other: Section) -> Iterator[str]:
        count = self.declared.registers if one.info >> 24 else 0
        if other.info != one.info & 0xFFFFFF | count << 24 or one.rest != other.rest:
            yield f"what {one.name} says of registers is not what is declared"

    def _registers(self, one: Section, other: Section) -> Iterator[str]:
        symbols = self.plain.symbols.table
        old, new = attributes(one.data), attributes(other.data)
        for before, now in zip(old, new, strict=False):
            mine = before[1] == REGISTERS and self._ours(words(before[2])[0])
            mine = mine and int(symbols[words(before[2])[0]]["at"]) == 0
            if mine and now[:2] == before[:2] and words(now[2])[1:] == [self.declared.registers]:
                continue
            if before != now or mine:
                yield "what the file says of registers, or of stacks, is not what is declared"
        if len(old) != len(new):
            yield "the file says more, or less, of its kernels"

    def _described(self, one: Section, other: Section) -> Iterator[str]:
        old, new = attributes(one.data), attributes(other.data)
        base, end, added = self._argument(old)
        if added:
            if new.count(added) != 1:
                yield "the parameter that is declared is not described"
                return
            new.remove(added)
        if [each[:2] for each in old] != [each[:2] for each in new]:
            yield "the kernel's attributes are others"
            return
        for (form, code, before), (_, _, now) in zip(old, new, strict=True):
            if code in _PLACES:
                same = self._listed(before, now, *_PLACES[code])
            elif code == BRANCHES:
                same = self._branches(words(before), words(now))
            elif added and code == SIZES:
                same = words(now + bytes(2))[0] == end
            elif added and code == PLACED:
                same = words(now) == [words(before)[0], base | end << 16]
            else:
                same = before == now and (form != _SIZED or code in _OTHERS)
            if not same:
                yield f"the kernel's attribute {code:#04x} is not as it should be"
        yield from self._fits(old, base)

    def _fits(self, listed: Sequence[Attribute], base: int) -> Iterator[str]:
        threads = [int(np.prod(words(value))) for _, code, value in listed if code in _MOST_THREADS]
        count = self.declared.registers
        if count > 255 or any(-(-count // 8) * 8 * -(-each // 32) * 32 > 65536 for each in threads):
            yield f"its threads can't have {count} registers each"
        offset = self.declared.cell - base
        for at, size in parameters(listed) if self.declared.bank == 0 else ():
            shares = offset < at + size and at < offset + self.declared.nbytes
            if shares and (self.declared.ordinal is None or not self._spare(listed)):
                yield "the argument that is declared overlaps another one"

    def _spare(self, listed: Sequence[Attribute]) -> bool:
        """Whether the cell is two parameters that the kernel never reads."""
        return self.declared.ordinal is not None and self.declared.ordinal < len(parameters(listed))

    def _argument(self, listed: Sequence[Attribute]) -> tuple[int, int, Attribute | None]:
        """Return where parameters begin and end, and what describes the one that is added."""
        base, end = self.bounds(listed)
        if self.declared.bank or self._spare(listed):
            return base, end, None
        offset, size = self.declared.cell - base, self.declared.nbytes
        value = struct.pack("<IHHI", 0, self.declared.ordinal or 0, offset, 0x1F000 | size << 18)
        return base, offset + size, (_SIZED, PARAMETER, value)

    @staticmethod
    def bounds(listed: Sequence[Attribute]) -> tuple[int, int]:
        """Return where a kernel's parameters begin in the constants, and how many bytes they are."""
        found = [words(value)[1] for _, code, value in listed if code == PLACED]
        return (found[0] & 0xFFFF, found[0] >> 16) if found else (0, 0)

    def _listed(self, old: bytes, new: bytes, nbytes: int, at: int) -> bool:
        """Whether a list of places follows the code: once for each time that it is there."""
        made = b""
        for _, places in self.moved.parts:
            part = bytearray(old)
            for entry in range(at, len(old), nbytes):
                place = struct.unpack_from("<I", old, entry)[0]
                struct.pack_into("<I", part, entry, places[place // BYTES] * BYTES + place % BYTES)
            made += part
        return made == new

    def _branches(self, old: list[int], new: list[int]) -> bool:
        """Whether each indirect branch is listed with the places that it leads to, as before."""
        if len(old) != len(new):
            return False
        at, places = 0, self.moved.parts[0][1]
        while at + 3 <= len(old):
            count = old[at + 2]
            same = new[at : at + 3] == [places[old[at] // BYTES] * BYTES, *old[at + 1 : at + 3]]
            listed = zip(old[at + 3 : at + 3 + count], new[at + 3 : at + 3 + count], strict=True)
            if not same or not all(self._place(*each) for each in listed):
                return False
            at += 3 + count
        return True

    def _tables(self, one: Section, other: Section) -> Iterator[str]:
        old, new = words(one.data), words(other.data)
        listed = attributes(self.plain.find(f".nv.info.{self.declared.kernel}").data)
        if one.data == other.data and not any(code == BRANCHES for _, code, _ in listed):
            return
        if len(old) != len(new) or not all(map(self._place, old, new)):
            yield "a table of branches does not lead as before"

    def _parameters(self, one: Section, other: Section) -> Iterator[str]:
        listed = attributes(self.plain.find(f".nv.info.{self.declared.kernel}").data)
        base, end, added = self._argument(listed)
        if added is None and one.data != other.data:
            yield "the kernel's parameters differ"
        elif added and other.data != one.data + bytes(max(base + end - len(one.data), 0)):
            yield "the kernel's parameters are not followed by the one that is declared"

    def _bank(self, one: Section, other: Section) -> Iterator[str]:
        end = self.declared.cell + self.declared.nbytes
        more = end - len(one.data) if self.declared.bank else 0
        if other.data != one.data + bytes(max(more, 0)) or (more and self.declared.cell < len(one.data)):
            yield f"{one.name} has not just what is declared behind what it had"

    def _symbols(self, one: Section, other: Section) -> Iterator[str]:
        old, new = one.table, other.table
        more = len(new) - len(old)
        if more not in ((1, 2) if self.declared.bank else (0,)):
            yield "it has other symbols than what is declared"
        code = [bytes(self.plain.find(f".text.{self.declared.kernel}").data), bytes(len(self.moved.new) * BYTES)]
        for before, now in zip(old.tolist(), new.tolist(), strict=False):
            name, kind, section, at, nbytes = before
            if before == now:
                continue
            end, last = at + nbytes, now[3] + now[4]
            ends = last == len(code[1]) if end == len(code[0]) else self._place(end, last)
            same = now[:3] == (name, kind, section)
            ours = self.plain.sections[section].name == f".text.{self.declared.kernel}"
            if not (same and ours and self._place(at, now[3]) and (ends or not nbytes)):
                yield "a symbol is not where it was"

    def _relocations(self, one: Section, other: Section) -> Iterator[str]:
        target = self.plain.sections[one.info].name if one.info < len(self.plain.sections) else ""
        if target in _DEBUGGING:
            return
        if len(one.data) != len(other.data) or one.info != other.info:
            yield f"the relocations {one.name} are others"
            return
        inside, places = target == f".text.{self.declared.kernel}", self.moved.parts[0][1]
        for before, now in zip(one.table.tolist(), other.table.tolist(), strict=True):
            offset = before[0]
            if inside:
                offset = places[offset // BYTES] * BYTES + offset % BYTES
            same = now[:3] == (offset, *before[1:3])
            if before[3:] != now[3:]:
                same = same and self._ours(before[2]) and self._leads(before[2], before[3], now[3])
            if not same:
                yield f"a relocation of {target} is not as it was"


def parameters(listed: Sequence[Attribute]) -> list[tuple[int, int]]:
    """Return where each parameter begins, and its bytes."""
    found = []
    for _, code, value in listed:
        if code in (PARAMETER, 0x45):
            _, _, offset, size = struct.unpack("<IHHI", value)
            found.append((offset, size >> 18 if code == PARAMETER else size))
    return found
