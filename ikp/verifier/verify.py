"""Verifies a patched cubin against the plain one and the declared differences, before a launch.

Readers of files and of text, and tables of what each instruction reads and writes, are those of
``ikp.sass``. No analysis is: a fault of what patches is none of what verifies.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from itertools import islice

import numpy as np

from ikp.errors import IkpError
from ikp.sass.cubins.elf import Elf
from ikp.sass.disassembly.listing import Code, Instruction, parse
from ikp.verifier.checked_flow import CheckedFlow
from ikp.verifier.declared import Declared, VerifyError
from ikp.verifier.file_differences import CubinFacts, differences, section
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
