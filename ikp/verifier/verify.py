"""Verifies a patched cubin against the plain one and the declared differences, before a launch."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from ikp.verifier import original
from ikp.verifier.beside_code import Facts, branches, differences
from ikp.verifier.dataflow import Flow
from ikp.verifier.declared import Declared, VerifyError
from ikp.verifier.moved import BYTES, Moved
from ikp.verifier.provenance import Values
from ikp.verifier.stored import TABLES, Elf

_MOST = 3
_BRANCHES = 0x34
_FUNCTION, _BEFORE = 2, 128
_ASSERTS = ("__assertfail", "__assert_fail")


def verify(before: bytes, after: bytes, text: str, declared: Declared) -> None:
    """Raise an error unless a patched cubin is the plain one with the declared differences.

    Args:
        before: the plain cubin.
        after: the patched one.
        text: the disassembly of the plain one by NVIDIA's tool, with its words (``-c -hex``).
        declared: the differences that the patch declares.

    Raises:
        VerifyError: it is not; the message has the first reasons.
    """
    found = faults(before, after, text, declared)
    if found:
        more = "" if len(found) <= _MOST else " There is more."
        raise VerifyError(
            f"The patched code of {declared.kernel} failed its verification, so it is not launched:"
            f" {'; '.join(found[:_MOST])}.{more} Please report this kernel."
        )


def faults(before: bytes, after: bytes, text: str, declared: Declared) -> list[str]:
    """Return what is wrong with a patched cubin: nothing, if it was verified; see ``verify``."""
    try:
        return list(islice(_faults(Elf.read(before), Elf.read(after), text, declared), 2 * _MOST))
    except (struct.error, ArithmeticError, LookupError, TypeError, ValueError) as error:
        return [f"it can't be read: {error}"]


def _faults(old: Elf, new: Elf, text: str, declared: Declared) -> Iterator[str]:
    name = f".text.{declared.kernel}"
    codes = [np.frombuffer(each.find(name).data, "<u8").reshape(-1, 2) for each in (old, new)]
    index = old.sections.index(old.find(name))
    moved = Moved.match(
        *(original.read(text, declared.kernel), codes[0], codes[1], old.sm, _linked(old, index)),
        *(_functions(old, index), declared.inserted, declared.beside),
    )
    yield from (wrong := list(moved.check()))
    if wrong:
        return  # the other checks need a whole match of instructions
    plain_facts, facts = Facts(old, declared.kernel, None), Facts(new, declared.kernel, moved)
    yield from differences(plain_facts, facts, declared)
    tables = {
        moved.origin[at // BYTES]: [each // BYTES for each in to]
        for code, value in facts.listed
        if code == _BRANCHES
        for at, to in branches(value)
    }
    values = Values(
        flow := Flow(moved, tables, _asserts(old, moved.text.lines)),
        declared,
        plain_facts.parameters[0],
    )
    yield from values.check()
    yield from flow.needed(values.restored, values.addresses)
    yield from flow.pending()


def _linked(elf: Elf, index: int) -> frozenset[int]:
    """Return the instructions of a section that relocations change when the cubin is loaded."""
    tables = [each.table for each in elf.sections if each.kind in TABLES and each.info == index]
    return frozenset(int(at) // BYTES for table in tables for at in table["offset"])


def _functions(elf: Elf, index: int) -> frozenset[int]:
    """Return the first instructions of the functions in a section."""
    return frozenset(
        int(each["at"]) // BYTES
        for each in elf.symbols.table
        if each["section"] == index and each["kind"] & 15 == _FUNCTION
    )


def _asserts(elf: Elf, lines: Sequence[str]) -> frozenset[int]:
    """Return the calls of external assert functions, which never return, by the address table."""
    symbols = elf.symbols
    names = elf.sections[symbols.rest[2]].data
    ending = set()
    for table in elf.sections:
        if table.kind in TABLES and elf.sections[table.info].name == ".nv.constant4":
            for offset, _, symbol, *_ in table.table.tolist():
                name = int(symbols.table[symbol]["name"])
                if names[name : names.index(b"\0", name)].decode() in _ASSERTS:
                    ending.add(offset)
    calls = [at for at, line in enumerate(lines) if "CALL.ABS" in line]
    return frozenset(at for at in calls if _address(lines, at) in ending)


def _address(lines: Sequence[str], call: int) -> int | None:
    """Return the offset in the table of a call's address; None if the code does not show it."""
    wanted, load = lines[call].split()[-1], r"LDC\.64 {}, c\[0x4\]\[(\w+)\]"
    for line in reversed(lines[max(call - _BEFORE, 0) : call]):
        if found := re.fullmatch(load.format(wanted), line):
            wanted, load = found[1], r"(?:MOV|IMAD\.MOV\.U32) {}, (?:RZ, RZ, )?(0x\w+)"
            if wanted.startswith("0x"):
                return int(wanted, 16)
    return None
