"""Verifies a patched cubin against the plain one, before a launch: its code, and the rest of the
file.

Readers of files and of text, and tables of what each instruction reads and writes, are those of
``ikp.sass``. No analysis is: a fault of what patches is none of what verifies.

What two cubins differ in beside a kernel's code is read with places in the code as numbers of
original instructions. Then what is declared is done to the facts of the plain one, and both must be
equal.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from ikp.errors import IkpError
from ikp.sass.cubins import attributes
from ikp.sass.cubins.attributes import HOLDS_PLACES, Attribute
from ikp.sass.cubins.attributes import AttributeCode as Known
from ikp.sass.cubins.elf import Elf, Section, SectionKind
from ikp.sass.disassembly.listing import Code, Instruction, parse
from ikp.verifier.checked_flow import CheckedFlow
from ikp.verifier.declared import Declared, VerifyError
from ikp.verifier.matched_code import MatchedCode

_MOST, _ASSERTS, _BEFORE = 3, ("__assertfail", "__assert_fail"), 128


def verify(before: bytes, after: bytes, text: str | Code, declared: Declared) -> None:
    """Raise an error unless a patched cubin is the plain one with the declared differences.

    Args:
        before: the plain cubin.
        after: the patched one.
        text: the disassembly of the plain one by NVIDIA's tool, with its words (``-c -hex``), or
            the kernel as it was parsed from that. Its words are held against those of the file.
        declared: the differences that the patch declares.

    Raises:
        VerifyError: it is not; the message has the first reasons.
    """
    if found := faults(before, after, text, declared):
        more = "" if len(found) <= _MOST else " There is more."
        raise VerifyError(
            f"The patched code of {declared.kernel} failed its verification, so it is not launched:"
            f" {'; '.join(found[:_MOST])}.{more} Please report this kernel."
        )


def faults(before: bytes, after: bytes, text: str | Code, declared: Declared) -> list[str]:
    """Return what is wrong with a patched cubin: nothing, if it was verified; see ``verify``."""
    try:
        return list(islice(_faults(Elf.read(before), Elf.read(after), text, declared), 2 * _MOST))
    except (IkpError, struct.error, ArithmeticError, LookupError, TypeError, ValueError) as error:
        return [f"it can't be read: {error}"]


def _faults(old: Elf, new: Elf, text: str | Code, declared: Declared) -> Iterator[str]:
    facts = CubinFacts(old, declared.kernel)
    code = _matched(facts, new, text, declared)
    yield from (wrong := list(code.check()))
    if wrong:
        return  # the other checks need a whole match of instructions
    found = CubinFacts(new, declared.kernel, code)
    yield from differences(facts, found, declared)
    places = {code.origin[e.branch // 16]: [to // 16 for to in e.targets] for e in found.tables}
    flow = CheckedFlow(code, places, _asserts(facts, code.listed), declared, facts.base)
    yield from flow.check()


def _matched(facts: CubinFacts, new: Elf, text: str | Code, declared: Declared) -> MatchedCode:
    listed = parse(text) if isinstance(text, str) else [text]
    printed = next((each for each in listed if each.name == declared.kernel), None)
    if printed is None:
        raise ValueError(f"the disassembly has no code of {declared.kernel}")
    data = [section(each, f".text.{declared.kernel}").data for each in (facts.elf, new)]
    before, after = (np.frombuffer(each, np.uint64).reshape(-1, 2) for each in data)
    mine = facts.symbols[
        (facts.symbols["section"] == facts.text) & (facts.symbols["info"] & 15 == 2)
    ]
    at = [entries["offset"] // 16 for _, entries in facts.elf.relocations(facts.text)]
    linked = {int(each) for some in at for each in some}
    functions = set((mine["value"] // 16).tolist())
    return MatchedCode(printed, before, after, facts.sm, linked, functions, declared)


def _asserts(facts: CubinFacts, text: tuple[Instruction, ...]) -> set[int]:
    """Return the calls of external assert functions, which never return, by the address table."""
    names = facts.elf.symbol_names()
    ending = {
        offset
        for table, entries in facts.elf.relocations()
        if facts.elf.sections[table.info].name == ".nv.constant4"
        for offset, _, symbol, *_ in entries.tolist()
        if names[symbol] in _ASSERTS
    }
    calls = (at for at, each in enumerate(text) if each.opcode.startswith("CALL.ABS"))
    return {at for at in calls if _address(text, at) in ending} if ending else set()


def _address(text: tuple[Instruction, ...], call: int) -> int | None:
    """Return the offset in the table of a call's address; None if the code does not show it."""
    wanted, load = text[call].operands[-1], r"LDC\.64 {}, c\[0x4\]\[(\w+)\]"
    for each in reversed(text[max(call - _BEFORE, 0) : call]):
        if found := re.fullmatch(load.format(wanted), each.text):
            wanted, load = found[1], r"(?:MOV|IMAD\.MOV\.U32) {}, (?:RZ, RZ, )?(0x\w+)"
            if wanted.startswith("0x"):
                return int(wanted, 16)
    return None


_DEBUGGING = (".debug_line", ".debug_frame", ".nv_debug_line_sass")  # no kernel runs by these
_CONSTANTS = ".nv.constant3"
_BASES = {8: 0x160, 9: 0x210, 10: 0x380, 12: 0x380}  # of parameters, for kernels that have none
_IN_A_PART, _PARTS, _PORTION, _WARP, _ALLOCATED = 16384, 4, 8, 32, 2
_ALIGN, _INFO, _CONTENT = 4, -2, -1  # of a section's facts
_READ = re.compile(r"c\[0x0\]\[(?:U?RZ)?\+?([^\]]*)\]")
_WIDE = re.compile(r"\.64|\.WIDE|\bD[A-Z]+")


def section(elf: Elf, name: str) -> Section:
    """Return the only section of a name."""
    found = [each for each in elf.sections if each.name == name]
    if len(found) != 1:
        raise LookupError(f"{len(found)} sections are called {name}")
    return found[0]


class CubinFacts:
    """A cubin beside a kernel's code; ``code`` is None for the plain one."""

    def __init__(self, elf: Elf, kernel: str, code: MatchedCode | None = None) -> None:
        self.elf, self.kernel, self.code = elf, kernel, code
        self.symbols, self.text = elf.symbols(), elf.sections.index(section(elf, f".text.{kernel}"))
        self.attributes = attributes.parse(section(elf, f".nv.info.{kernel}").data)
        placed = next((e.numbers(2)[1] for e in self.attributes if e.code == Known.PARAM_CBANK), 0)
        self.sm = elf.flags & 0xFF if elf.abi == 7 else elf.flags >> 8 & 0xFFFF
        self.base, self.nbytes = placed & 0xFFFF or _BASES.get(self.sm // 10, 0), placed >> 16
        """Of the kernel's parameters: where they begin in their constants, and their bytes."""
        self.tables = [
            table
            for each in self.attributes
            if each.code == Known.INDIRECT_BRANCH_TARGETS
            for table in attributes.indirect_branches(each)
        ]

    def read(self) -> list[list[Any]]:
        """Return the facts of the file and of each section: the last two are its info and what is
        in it.
        """
        head, found = self.elf.original, list[list[Any]]()
        found.append(["the header", head[:32], head[48:56], head[58:60], head[62:64]])
        for each in self.elf.sections:
            size = each.size if each.kind == SectionKind.NOBITS else 0
            row = each.kind, each.flags, each.address, each.align, each.link, each.entry, size
            found.append([each.name, *row, each.info, self._content(each)])
        for table, entries in self.elf.relocations():
            moved = self._relocations(table.info, entries.tolist())
            found[1 + self.elf.sections.index(table)][_CONTENT] = moved
        return found

    def reached(self, byte: int) -> Any:
        """Return the original instruction that control reaches from a byte of the code."""
        if self.code is None or byte == 0:
            return byte / 16
        found = self.code.reached(byte // 16)
        return next(iter(found))[1] if len(found) == 1 and byte % 16 == 0 else None

    def _content(self, each: Section) -> Any:
        if each.kind == SectionKind.SYMTAB:
            return self._symbols()
        if each.name == ".nv.info":
            return [(e.format, e.code, e.value) for e in attributes.parse(each.data)]
        if each.name == f".nv.info.{self.kernel}":
            return [(e.format, e.code, self._places(e)) for e in self.attributes]
        if each.name == f".nv.constant2.{self.kernel}" and self.tables:
            known = {to for table in self.tables for to in table.targets}
            words = np.frombuffer(each.data[: len(each.data) // 4 * 4], "<u4").tolist()
            return [(self.reached(to), to in known) for to in words]
        unread = each.name in _DEBUGGING and not each.flags & _ALLOCATED
        return b"" if unread or each.name == f".text.{self.kernel}" else each.data

    def _placed(self, byte: int) -> tuple[int, int]:
        """Return the original instruction that is at a byte, and the byte in it."""
        return (byte // 16 if self.code is None else self.code.origin[byte // 16]), byte % 16

    def _places(self, each: Attribute) -> Any:
        """Return the value of an attribute, which lists places again for a second plain code."""
        if each.code == Known.INDIRECT_BRANCH_TARGETS:
            tables = attributes.indirect_branches(each)
            return [(self._placed(t.branch), [*map(self.reached, t.targets)]) for t in tables]
        if (form := HOLDS_PLACES.get(each.code)) is None:
            return each.value
        entries = [each.data[n : n + form.entry] for n in range(0, len(each.data), form.entry)]
        at = [self._placed(*struct.unpack_from("<I", entry, form.at)) for entry in entries]
        found = [(n, e[: form.at], e[form.at + 4 :]) for n, e in zip(at, entries, strict=True)]
        copies = len(self.code.parts) if self.code else 1
        once = found[: len(found) // copies]
        return once if found == once * copies else None

    def _symbols(self) -> list[Any]:
        rows: list[Any] = self.symbols.tolist()
        end = len(self.elf.sections[self.text].data)
        for n in np.flatnonzero(self.symbols["section"] == self.text).tolist():
            *same, at, nbytes = rows[n]
            whole = "end" if at + nbytes == end else nbytes and self.reached(at + nbytes)
            rows[n] = (*same, self.reached(at), whole)
        return rows

    def _relocations(self, info: int, entries: list[tuple[int, ...]]) -> Any:
        if self.elf.sections[info].name in _DEBUGGING:
            return None
        found = []
        for offset, kind, symbol, *addend in entries:
            _, _, _, into, base, _ = self.symbols[symbol].tolist()
            to = [self.reached(base + n) if into == self.text and n else n for n in addend]
            found.append((self._placed(offset) if info == self.text else offset, kind, symbol, to))
        return found


def differences(old: CubinFacts, new: CubinFacts, declared: Declared) -> Iterator[str]:
    """Yield the differences between a plain file and a patched one that are not declared."""
    expected, found = old.read(), new.read()
    added = declared.bank == 0 and declared.cell >= old.base + old.nbytes
    for facts, others in zip(expected, found, strict=False):
        _declare(facts, others, old, declared, added)
        if facts != others:
            yield f"{facts[0]} is not what is declared"
    more = [each[0] for each in found[len(expected) :]]
    if len(found) < len(expected) or more not in ([], [_CONSTANTS] * bool(declared.bank)):
        yield f"it has more sections: {', '.join(more)}, or fewer"
    symbols = new.symbols[len(old.symbols) :][["value", "size"]].tolist()
    if symbols.count((declared.cell, declared.nbytes)) != bool(declared.bank) or len(symbols) > 2:
        yield "its symbols are not what is declared"
    if _segments(old.elf, made=bool(more)) != _segments(new.elf, made=bool(more)):
        yield "what is loaded together differs"
    yield from _unfit(old, new, declared, added)


def _declare(
    facts: list[Any], found: list[Any], old: CubinFacts, declared: Declared, added: bool
) -> None:
    """Do to the facts of a section of the plain file what is declared.

    Added may be texts behind the others, and symbols, which are looked at by themselves.
    """
    name, kernel, content = facts[0], declared.kernel, facts[_CONTENT]
    if facts[1] == SectionKind.STRTAB:
        facts[_CONTENT] += found[_CONTENT][len(content) :]
    elif facts[1] == SectionKind.SYMTAB:
        facts[_INFO:] = found[_INFO], content + found[_CONTENT][len(content) :]
    elif name == f".text.{kernel}" and facts[_INFO] >> 24:
        facts[_INFO] = facts[_INFO] & 0xFFFFFF | declared.registers << 24
    elif name == ".nv.info":
        _declare_registers(content, old.elf.symbol_names(), declared)
    elif name == f".nv.info.{kernel}" and added:
        _declare_parameter(content, old.base, declared)
    elif _holds_cell(name, declared, added):
        facts[_CONTENT] += bytes(max(declared.cell + declared.nbytes - len(content), 0))
        facts[_ALIGN] = max(facts[_ALIGN], 16) if declared.bank else facts[_ALIGN]


def _declare_registers(content: list[Any], names: list[str], declared: Declared) -> None:
    """Change the registers of the kernel's threads, among those of all functions."""
    for n, (form, code, value) in enumerate(content):
        symbol = struct.unpack_from("<I", value)[0] if code == Known.REGCOUNT else None
        if symbol is not None and names[symbol] == declared.kernel:
            content[n] = form, code, value[:4] + struct.pack("<I", declared.registers)


def _holds_cell(name: str, declared: Declared, added: bool) -> bool:
    """Whether a section of constants grows by the cell: an added parameter, or a bank's end."""
    if name == f".nv.constant0.{declared.kernel}" and added:
        return True
    return name in (_CONSTANTS, ".nv.merc.nv.constant.user") and bool(declared.bank)


def _declare_parameter(content: list[Any], base: int, declared: Declared) -> None:
    """Add a parameter behind those that begin at an offset of the bank, and their new size."""
    offset = declared.cell - base
    last = offset + declared.nbytes
    for n, (form, code, value) in enumerate(content):
        if code == Known.CBANK_PARAM_SIZE:
            content[n] = form, code, last
        elif code == Known.PARAM_CBANK:
            content[n] = form, code, value[:4] + struct.pack("<I", base | last << 16)
    facts = 0, declared.ordinal or 0, offset, 0x1F000 | declared.nbytes << 18
    first = next(n for n, each in enumerate(content) if each[1] == Known.KPARAM_INFO)
    content.insert(first, (4, Known.KPARAM_INFO, struct.pack("<IHHI", *facts)))


def _segments(elf: Elf, *, made: bool) -> list[Any]:
    """Return the sections that each segment loads, but for the constants that the host writes.

    A section without bytes in the file lies in a segment with more memory than bytes.
    """
    some, found = _loaded(elf), []
    for each in elf.segments:
        loaded = min(each.memory_size, each.file_size)
        extents = loaded, each.memory_size * (each.memory_size > each.file_size)
        names = [
            name
            for name, at, size, empty in some
            if each.offset <= at and at + size - each.offset <= extents[empty]
        ]
        found += [(each.kind, each.flags, each.align, names)] if names or not made else []
    return found


def _loaded(elf: Elf) -> list[tuple[str, int, int, bool]]:
    """Return the sections that are loaded: name, offset, size, whether the file has no bytes."""
    return [
        (each.name, each.offset, each.size, each.kind == SectionKind.NOBITS)
        for each in elf.sections
        if each.flags & _ALLOCATED and each.name != _CONSTANTS and each.size
    ]


def _unfit(old: CubinFacts, new: CubinFacts, declared: Declared, added: bool) -> Iterator[str]:
    """Yield why a kernel can't have the declared registers or parameter."""
    if _are_too_many(declared.registers, old):
        yield f"its threads can't have {declared.registers} registers each"
    if declared.bank:
        return
    own, overlapping = declared.ordinal or 0, _overlapping(old, declared)
    if sorted(overlapping) != ([] if added else [own, own + 1]):  # two unread ones of 64 bits
        yield "the argument that is declared overlaps others"
    for each in new.code.listed if new.code is not None and overlapping else ():
        if _reads(each, declared.cell, declared.cell + declared.nbytes):
            yield f"{each.text!r} reads the argument that is declared"


def _are_too_many(count: int, old: CubinFacts) -> bool:
    """Whether a thread, or all those of the largest block, can't have so many registers."""
    sizes = [e.words for e in old.attributes if e.code in (Known.MAX_THREADS, Known.REQNTID)]
    held = _IN_A_PART // (-(-count // _PORTION) * _PORTION * _WARP) * _PARTS
    return count > 255 or any(-(-int(np.prod(each)) // _WARP) > held for each in sizes)


def _overlapping(old: CubinFacts, declared: Declared) -> list[int]:
    """Return the plain kernel's parameters, by number, that have bytes where the cell is."""
    first = declared.cell - old.base
    return [
        each.ordinal
        for each in attributes.parameters(old.attributes)
        if each.offset < first + declared.nbytes and first < each.offset + each.size
    ]


def _reads(each: Instruction, begin: int, end: int) -> bool:
    """Whether an instruction may read some bytes of a kernel's parameters."""
    wide = 16 if ".128" in each.opcode else 8 if _WIDE.search(each.text) else 4
    places = _READ.findall(each.rest)
    return any("R" in at or begin - wide < int(at or "0", 16) < end for at in places)
