"""Verifies a patched kernel before its first launch, from the two cubins and what is declared."""

from __future__ import annotations

import struct
from collections.abc import Iterator
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
_FUNCTION = 2
_ASSERTS = ("__assertfail", "__assert_fail")


def verify(before: bytes, after: bytes, text: str, declared: Declared) -> None:
    """Raise an error unless a patched cubin is the plain one and what is declared.

    Args:
        before: the plain cubin.
        after: the patched one.
        text: what NVIDIA's disassembler says of the plain one, with its words (``-c -hex``).
        declared: how the patch says that they differ.

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
        return  # what follows needs places
    plain_facts, facts = Facts(old, declared.kernel, None), Facts(new, declared.kernel, moved)
    yield from differences(plain_facts, facts, declared)
    tables = {
        moved.origin[at // BYTES]: [each // BYTES for each in to]
        for code, value in facts.listed
        if code == _BRANCHES
        for at, to in branches(value)
    }
    values = Values(flow := Flow(moved, tables, _asserts(old)), declared, plain_facts.parameters[0])
    yield from values.check()
    yield from flow.needed(values.restored, values.addresses)
    yield from flow.pending()


def _linked(elf: Elf, index: int) -> frozenset[int]:
    """Return the instructions of a section into which the loader writes."""
    tables = [each.table for each in elf.sections if each.kind in TABLES and each.info == index]
    return frozenset(int(at) // BYTES for table in tables for at in table["offset"])


def _functions(elf: Elf, index: int) -> frozenset[int]:
    """Return the instructions that functions in a section begin with."""
    return frozenset(
        int(each["at"]) // BYTES
        for each in elf.symbols.table
        if each["section"] == index and each["kind"] & 15 == _FUNCTION
    )


def _asserts(elf: Elf) -> bool:
    """Whether all functions that the file calls and does not have end the kernel."""
    symbols = elf.symbols
    names = elf.sections[symbols.rest[2]].data
    outside = [
        names[int(each["name"]) : names.index(b"\0", int(each["name"]))].decode()
        for each in symbols.table
        if each["section"] == 0 and each["kind"] & 15 == _FUNCTION
    ]
    return all(each in _ASSERTS for each in outside)
