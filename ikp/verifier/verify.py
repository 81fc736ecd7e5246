"""Verifies a patched cubin against the plain one and the declared differences, before a launch.

Readers of files and of text, and tables of what each instruction reads and writes, are those of
``ikp.sass``. No analysis is: a fault of what patches is none of what verifies.

Both files are read so that places in the code are numbers of original instructions. Then what is
declared is done to the facts of the plain one, and both must be equal.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
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
_DEBUGGING = (".debug_line", ".debug_frame", ".nv_debug_line_sass")  # no kernel runs by these
_CELLS = (".nv.constant3", ".nv.merc.nv.constant.user")
_BASES = {8: 0x160, 9: 0x210, 10: 0x380, 12: 0x380}  # of parameters, for kernels that have none
_IN_A_PART, _PARTS, _PORTION, _WARP, _ALLOCATED = 16384, 4, 8, 32, 2
_ALIGN, _INFO, _CONTENT = 4, -2, -1  # of a section's facts


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
    facts, code = _Facts(old, declared.kernel), _matched(old, new, text, declared)
    yield from (wrong := list(code.check()))
    if wrong:
        return  # the other checks need a whole match of instructions
    found = _Facts(new, declared.kernel, code)
    yield from _differences(facts, found, declared)
    tables = {
        code.origin[each.branch // 16]: [to // 16 for to in each.targets]
        for each in found.branches()
    }
    flow = CheckedFlow(code, tables, _asserts(facts, code.listed), declared, facts.parameters[0])
    yield from flow.check()


def _matched(old: Elf, new: Elf, text: str | Code, declared: Declared) -> MatchedCode:
    name = f".text.{declared.kernel}"
    listed = parse(text) if isinstance(text, str) else [text]
    printed = next((each for each in listed if each.name == declared.kernel), None)
    if printed is None:
        raise ValueError(f"the disassembly has no code of {declared.kernel}")
    data = [_section(each, name).data for each in (old, new)]
    before, after = (np.frombuffer(each, np.uint64).reshape(-1, 2) for each in data)
    index, symbols = old.sections.index(_section(old, name)), old.symbols()
    mine = symbols[(symbols["section"] == index) & (symbols["info"] & 15 == 2)]
    at = [entries["offset"] // 16 for _, entries in old.relocations(index)]
    linked = {int(each) for some in at for each in some}
    sm = old.flags & 0xFF if old.abi == 7 else old.flags >> 8 & 0xFFFF
    functions = set((mine["value"] // 16).tolist())
    return MatchedCode(printed, before, after, sm, linked, functions, declared)


def _section(elf: Elf, name: str) -> Section:
    found = [each for each in elf.sections if each.name == name]
    if len(found) != 1:
        raise LookupError(f"{len(found)} sections are called {name}")
    return found[0]


class _Facts:
    """A cubin beside a kernel's code; ``code`` is None for the plain one."""

    def __init__(self, elf: Elf, kernel: str, code: MatchedCode | None = None) -> None:
        self.elf, self.kernel, self.code = elf, kernel, code
        self.symbols, self.names = elf.symbols().tolist(), elf.symbol_names()
        self.text = elf.sections.index(_section(elf, f".text.{kernel}"))
        self.attributes = attributes.parse(_section(elf, f".nv.info.{kernel}").data)
        placed = next((e.numbers(2)[1] for e in self.attributes if e.code == Known.PARAM_CBANK), 0)
        sm = elf.flags & 0xFF if elf.abi == 7 else elf.flags >> 8 & 0xFFFF
        self.parameters = (
            (placed & 0xFFFF, placed >> 16) if placed else (_BASES.get(sm // 10, 0), 0)
        )

    def read(self) -> dict[str, list[Any]]:
        """Return the facts of each section: the last two are its info and what is in it."""
        head, found = self.elf.original, dict[str, list[Any]]()
        found["the header "] = [head[:32], head[48:56], head[58:60], head[62:64]]
        for number, each in enumerate(self.elf.sections):
            if each.kind != SectionKind.STRTAB and (
                each.name not in _DEBUGGING or each.flags & _ALLOCATED
            ):
                size = each.size if each.kind == SectionKind.NOBITS else 0
                row = [each.kind, each.flags, each.address, each.link, each.align, each.entry, size]
                found[f"{each.name} {number}"] = [*row, each.info, self._content(each)]
        for table, entries in self.elf.relocations():
            number = self.elf.sections.index(table)
            if (name := f"{table.name} {number}") in found:
                found[name][_CONTENT] = self._relocations(table.info, entries.tolist())
        return found

    def branches(self) -> list[attributes.Table]:
        """Return the indirect branches that the attributes list."""
        listed = (e for e in self.attributes if e.code == Known.INDIRECT_BRANCH_TARGETS)
        return [table for each in listed for table in attributes.indirect_branches(each)]

    def _content(self, each: Section) -> Any:
        if each.kind == SectionKind.SYMTAB:
            return [self._symbol(*entry) for entry in zip(self.names, self.symbols, strict=True)]
        if each.name == ".nv.info":
            return [(e.format, e.code, e.value) for e in attributes.parse(each.data)]
        if each.name == f".nv.info.{self.kernel}":
            return [(e.format, e.code, self._places(e)) for e in self.attributes]
        if each.name == f".nv.constant2.{self.kernel}" and self.branches():
            return self._targets(each.data)
        return b"" if each.name == f".text.{self.kernel}" else each.data

    def _targets(self, data: bytes) -> list[tuple[Any, bool]]:
        """Return the original instruction of each word of a branch table, and if it is listed."""
        known = {to for table in self.branches() for to in table.targets}
        words = np.frombuffer(data[: len(data) // 4 * 4], "<u4").tolist()
        return [(self._reached(to), to in known) for to in words]

    def _reached(self, byte: int) -> Any:
        """Return the original instruction that control reaches from a byte of the code."""
        if self.code is None or byte == 0:
            return byte / 16
        found = self.code.reached(byte // 16)
        return next(iter(found))[1] if len(found) == 1 and byte % 16 == 0 else None

    def _placed(self, byte: int) -> tuple[int, int]:
        """Return the original instruction that is at a byte, and the byte in it."""
        return (byte // 16 if self.code is None else self.code.origin[byte // 16]), byte % 16

    def _places(self, each: Attribute) -> Any:
        """Return the value of an attribute, which lists places again for a second plain code."""
        if each.code == Known.INDIRECT_BRANCH_TARGETS:
            tables = attributes.indirect_branches(each)
            return [(self._placed(t.branch), [*map(self._reached, t.targets)]) for t in tables]
        if (form := HOLDS_PLACES.get(each.code)) is None:
            return each.value
        entries = [each.data[n : n + form.entry] for n in range(0, len(each.data), form.entry)]
        at = [self._placed(*struct.unpack_from("<I", entry, form.at)) for entry in entries]
        found = [(n, e[: form.at], e[form.at + 4 :]) for n, e in zip(at, entries, strict=True)]
        once = found[: len(found) // len(self.code.parts)] if self.code else found
        return once if self.code is None or found == once * len(self.code.parts) else None

    def _symbol(self, name: str, entry: tuple[int, ...]) -> tuple[Any, ...]:
        _, info, other, section, at, nbytes = entry
        if section != self.text:
            return name, info, other, section, at, nbytes
        whole = at + nbytes == len(self.elf.sections[section].data)
        end = "end" if whole else self._reached(at + nbytes) if nbytes else 0
        return name, info, other, section, self._reached(at), end

    def _relocations(self, info: int, entries: list[tuple[int, ...]]) -> Any:
        if self.elf.sections[info].name in _DEBUGGING:
            return None
        found = []
        for offset, kind, symbol, *addend in entries:
            _, _, _, section, base, _ = self.symbols[symbol]
            to = [self._reached(base + n) if section == self.text and n else n for n in addend]
            found.append((self._placed(offset) if info == self.text else offset, kind, symbol, to))
        return found


def _undeclared(
    key: str,
    facts: list[Any],
    found: Mapping[str, list[Any]],
    old: _Facts,
    declared: Declared,
    added: bool,
) -> Iterator[str]:
    """Yield what differs in one section from what is declared of it."""
    name = key.rpartition(" ")[0]
    _declare(name, facts, old, declared, added)
    if facts[0] == SectionKind.SYMTAB and key in found:
        yield from _more_symbols(facts, found[key], declared)
    if found.get(key) != facts:
        yield f"{name} is not what is declared"


def _differences(old: _Facts, new: _Facts, declared: Declared) -> Iterator[str]:
    """Yield the differences between two files that are not declared."""
    expected, found = old.read(), new.read()
    base, end = old.parameters
    added = declared.bank == 0 and declared.cell >= base + end
    for key, facts in expected.items():
        yield from _undeclared(key, facts, found, old, declared, added)
    made = [key.rpartition(" ")[0] for key in found if key not in expected]
    if made and not (declared.bank and made == [_CELLS[0]]):
        yield f"it has more sections: {', '.join(made)}"
    if _loaded(old.elf, bool(made)) != _loaded(new.elf, bool(made)):
        yield "what is loaded together differs"
    yield from _unfit(old, new, declared, added)


def _more_symbols(old: list[Any], new: list[Any], declared: Declared) -> Iterator[str]:
    """Yield whether a file has other new symbols than the cell's; add these to the plain facts."""
    more = new[_CONTENT][len(old[_CONTENT]) :]
    mine = [each for each in more if each[-2:] == (declared.cell, declared.nbytes)]
    if len(mine) != bool(declared.bank) or len(more) > 2:
        yield "its symbols are not what is declared"
    old[_CONTENT] += more
    old[_INFO] = new[_INFO]


def _holds_cell(name: str, declared: Declared, added: bool) -> bool:
    """Whether a section holds the cell: as a new argument, or as memory of the module's."""
    argument = f".nv.constant0.{declared.kernel}"
    return (name == argument and added) or (name in _CELLS and bool(declared.bank))


def _declare(name: str, facts: list[Any], old: _Facts, declared: Declared, added: bool) -> None:
    """Do to the facts of a section of the plain file what is declared."""
    kernel, content = declared.kernel, facts[_CONTENT]
    if name == f".text.{kernel}" and facts[_INFO] >> 24:
        facts[_INFO] = facts[_INFO] & 0xFFFFFF | declared.registers << 24
    elif name == ".nv.info":
        _declare_registers(content, old, declared)
    elif name == f".nv.info.{kernel}" and added:
        _declare_parameter(content, old.parameters[0], declared)
    elif _holds_cell(name, declared, added):
        facts[_CONTENT] += bytes(max(declared.cell + declared.nbytes - len(content), 0))
        facts[_ALIGN] = max(facts[_ALIGN], 16) if declared.bank else facts[_ALIGN]


def _declare_registers(content: list[Any], old: _Facts, declared: Declared) -> None:
    for n, (form, code, value) in enumerate(content):
        of = old.names[struct.unpack_from("<I", value)[0]] if code == Known.REGCOUNT else None
        if of == declared.kernel:
            content[n] = form, code, value[:4] + struct.pack("<I", declared.registers)


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


def _unfit(old: _Facts, new: _Facts, declared: Declared, added: bool) -> Iterator[str]:
    """Yield why a kernel can't have the declared registers or parameter."""
    count = declared.registers
    sizes = [e.words for e in old.attributes if e.code in (Known.MAX_THREADS, Known.REQNTID)]
    held = _IN_A_PART // (-(-count // _PORTION) * _PORTION * _WARP) * _PARTS
    if count > 255 or any(-(-int(np.prod(each)) // _WARP) > held for each in sizes):
        yield f"its threads can't have {count} registers each"
    if not declared.bank:
        yield from _overlaps(old, new, declared, added)


def _ordinals(old: _Facts, declared: Declared) -> list[int]:
    """Return the numbers of the arguments that share bytes with the declared parameter."""
    first = declared.cell - old.parameters[0]
    return [
        each.ordinal
        for each in attributes.parameters(old.attributes)
        if each.offset < first + declared.nbytes and first < each.offset + each.size
    ]


def _overlaps(old: _Facts, new: _Facts, declared: Declared, added: bool) -> Iterator[str]:
    """Yield the arguments and instructions that use the bytes of the declared parameter."""
    ordinals = _ordinals(old, declared)
    own = declared.ordinal or 0  # an unread argument in its place is two of 64 bits
    if sorted(ordinals) != ([] if added else [own, own + 1]):
        yield "the argument that is declared overlaps others"
    for each in new.code.listed if new.code is not None and ordinals else ():
        if _reads(each.text, declared.cell, declared.cell + declared.nbytes):
            yield f"{each.text!r} reads the argument that is declared"


def _reads(line: str, begin: int, end: int) -> bool:
    """Whether an instruction may read some bytes of a kernel's parameters."""
    wide = 16 if ".128" in line else 8 if re.search(r"\.64|\.WIDE|\bD[A-Z]+", line) else 4
    return any(
        "R" in at or begin - wide < int(at or "0", 16) < end
        for at in re.findall(r"c\[0x0\]\[(?:U?RZ)?\+?([^\]]*)\]", line)
    )


def _loaded(elf: Elf, made: bool) -> list[Any]:
    """Return the sections that each segment loads, but for the constants that the host writes."""
    some = [each for each in elf.sections if each.flags & _ALLOCATED and each.name != _CELLS[0]]
    sizes = [(e.size, 0) if e.kind == SectionKind.NOBITS else (len(e.data), 1) for e in some]
    loaded = [(e.name, e.offset, *size) for e, size in zip(some, sizes, strict=True) if size[0]]
    found = []
    for segment in elf.segments:
        first, memory = segment.offset, segment.memory_size
        rooms = memory, min(memory, segment.file_size)
        names = [n for n, at, size, of in loaded if first <= at and at + size - first <= rooms[of]]
        if names or not made:
            found.append((segment.kind, segment.flags, segment.align, names))
    return found


def _asserts(facts: _Facts, text: tuple[Instruction, ...]) -> set[int]:
    """Return the calls of external assert functions, which never return, by the address table."""
    ending = {
        offset
        for table, entries in facts.elf.relocations()
        if facts.elf.sections[table.info].name == ".nv.constant4"
        for offset, _, symbol, *_ in entries.tolist()
        if facts.names[symbol] in _ASSERTS
    }
    calls = (
        [at for at, each in enumerate(text) if each.opcode.startswith("CALL.ABS")] if ending else []
    )
    return {at for at in calls if _address(text, at) in ending}


def _address(text: tuple[Instruction, ...], call: int) -> int | None:
    """Return the offset in the table of a call's address; None if the code does not show it."""
    wanted, load = text[call].operands[-1], r"LDC\.64 {}, c\[0x4\]\[(\w+)\]"
    for each in reversed(text[max(call - _BEFORE, 0) : call]):
        if found := re.fullmatch(load.format(wanted), each.text):
            wanted, load = found[1], r"(?:MOV|IMAD\.MOV\.U32) {}, (?:RZ, RZ, )?(0x\w+)"
            if wanted.startswith("0x"):
                return int(wanted, 16)
    return None
