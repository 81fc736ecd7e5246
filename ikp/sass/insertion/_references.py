"""References to code addresses, updated: symbols, relocations, jump tables, return addresses.

Jump tables are those of indirect branches (BRX). Return addresses are those of calls inside a
kernel's code, and ``return_moves`` finds the MOVs that set them.

A called function ends in a RET.REL, which goes to an address in a register, counted from the start
of the code. A MOV sets this register to the address after the call, and precedes the call. So it
was for 1,808 calls of kernels from libraries, by 9 instructions at most, and later for a few by 60.

A function with a single call may set the address itself, on each path to a RET. There, the MOV's
register is the RET's, or is copied to that. Where the MOV can't be identified, the kernel is
refused. A number may equal the address by chance (0x400, where shared memory begins): one set under
a guard is not it.

A CALL.REL needs no MOV if its target is inside the same function: compilers use it as a jump out of
a loop.

On Blackwell, a cubin holds the kernel a second time, in a form ("Mercury") that the driver finishes
for other chips of the family. Those sections describe that form and are left as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from itertools import chain

import numpy as np

from ikp.errors import PatchError
from ikp.sass.cubins import attributes
from ikp.sass.cubins.attributes import Attribute, AttributeCode, Table, indirect_branches
from ikp.sass.cubins.cubin import Cubin, Kernel
from ikp.sass.cubins.elf import Elf, Section, SectionKind
from ikp.sass.cubins.instruction import (
    BYTES,
    MOVE,
    RET,
    AddressFields,
    DistanceField,
    Numbers,
    Words,
    distances,
    guard,
    opcodes,
)
from ikp.sass.insertion._debug_tables import follow_frames, follow_lines
from ikp.sass.insertion.displacement import Displacement


def _addresses(bank: Section | None) -> list[int]:
    """Return the words of a bank of constants; none where there is no bank."""
    found: list[int] = [] if bank is None else np.frombuffer(bank.data, np.uint32).tolist()
    return found


def move_tables(elf: Elf, kernel: Kernel, indirect: Collection[int], to: Displacement) -> None:
    """Replace each target in a kernel's jump tables by its new address; ``indirect`` are its BRX.

    The compiler lists the targets of each BRX in an attribute. Where the kernel's bank 2 of
    constants holds those addresses and no other value, it is the table.

    Raises:
        PatchError: a branch is not listed, or the table holds other values, too.
    """
    code = AttributeCode.INDIRECT_BRANCH_TARGETS
    listed = [each for each in kernel.attributes if each.code == code]
    tables = [*chain.from_iterable(map(indirect_branches, listed))]
    if not tables and not indirect:
        return
    bank = _table(elf, kernel.name, tables, {each * BYTES for each in indirect})
    bank.data = np.array([*map(to.landed, _addresses(bank))], np.uint32).tobytes()
    for each in listed:
        each.value = _moved(each, to)


def _table(elf: Elf, name: str, tables: Sequence[Table], indirect: set[int]) -> Section:
    """Return the bank of constants that holds the targets of a kernel's indirect branches.

    Raises:
        PatchError: see ``move_tables``.
    """
    bank = elf.find(f".nv.constant2.{name}")
    targets = {*chain.from_iterable(table.targets for table in tables)}
    listed = indirect <= {table.branch for table in tables}
    if bank is None or not listed or {*_addresses(bank)} != targets:
        raise PatchError(
            f"{name} has an indirect branch, and where its table of targets lies is not "
            "known: the compiler doesn't list it, or the kernel's constants hold other values too. "
            "Leave this kernel out."
        )
    return bank


def _moved(attribute: Attribute, to: Displacement) -> bytes:
    words: list[int] = []
    for table in indirect_branches(attribute):
        new = [to.landed(place) for place in table.targets]
        words += [to.moved(table.branch), 0, len(new), *new]
    return np.array(words, np.uint32).tobytes()


_ALWAYS = (7, False)
_COPIES = {0x202: (0, 32), 0x224: (1, 0)}
"""Opcodes of MOV and IMAD.MOV -> half of the word, and first bit in it, of the source register."""
_IMAD_OF_NUMBER = 0x424
_SOON = 4
_BEFORE_CALL = 128
"""How many instructions before its call the MOV may be."""


def return_moves(words: Words, found: AddressFields, kernel: Kernel, far: DistanceField) -> Numbers:
    """Return the MOVs whose value is the address after a call.

    Raises:
        PatchError: the MOV of a call is not found, though the called function returns.
    """
    if not len(found.calls):
        return np.zeros(0, np.int64)
    moves = np.flatnonzero(opcodes(words) == MOVE)
    values = (words[moves, 0] >> np.uint64(32)).astype(np.int64)
    targets = (found.calls + 1) * BYTES + distances(words[found.calls], far)
    made: list[int] = []
    for call, target in zip(found.calls.tolist(), targets.tolist(), strict=True):
        fitting = moves[values == (call + 1) * BYTES]
        near = fitting[(fitting < call) & (fitting >= call - _BEFORE_CALL)].tolist()
        near = _unguarded(words, near) if len(near) > 1 else near
        sure = len(near) == 1 or (not near and _jumps(kernel, call * BYTES, target))
        if not (near or sure) and np.count_nonzero(targets == target) == 1:
            near = _set_inside(words, fitting, *_function(kernel, target))
            sure = bool(near)
        if not sure:
            raise PatchError(
                f"{kernel.name} calls a function at byte {call * BYTES:#x} of its code, and which "
                "instruction sets the address to return to is not known. Leave this kernel out."
            )
        made += near
    return np.array(made, np.int64)


def _unguarded(words: Words, moves: list[int]) -> list[int]:
    """Return the last of some MOVs if it alone has no guard; else all of them."""
    always = [at for at in moves if guard(int(words[at, 0])) == _ALWAYS]
    return always if always == moves[-1:] else moves


def _set_inside(words: Words, moves: Numbers, start: int, end: int) -> list[int]:
    """Return the MOVs of a function that set its return address; none if one is of other use."""
    rets = np.flatnonzero(opcodes(words) == RET)
    inside = (rets >= start // BYTES) & (rets < end // BYTES)
    goals = {int(word) >> 24 & 0xFF for word in words[rets[inside], 0]}
    own = [int(at) for at in moves if start <= at * BYTES < end]
    if any(_in_another_way(words[start // BYTES : end // BYTES], words[at]) for at in own[:1]):
        return []
    return own if all(_comes_to(words, at, goals) for at in own) else []


def _in_another_way(words: Words, move: Words) -> bool:
    """Whether an IMAD.MOV sets the same value as a MOV: it may be the return address as well."""
    same = (words[:, 0] ^ move[0]) >> np.uint64(32) == 0
    return bool((same & (opcodes(words) == _IMAD_OF_NUMBER)).any())


def _comes_to(words: Words, move: int, goals: set[int]) -> bool:
    """Whether the value of a MOV is in one of some registers within a few instructions."""
    register = _target(words[move])
    for word in words[move + 1 : move + 1 + _SOON]:
        source = _COPIES.get(int(word[0]) & 0xFFF)
        if source and int(word[source[0]]) >> source[1] & 0xFF == register:
            return _target(word) in goals
    return register in goals


def _target(word: Words) -> int:
    return int(word[0]) >> 16 & 0xFF


def _jumps(kernel: Kernel, address: int, target: int) -> bool:
    """Whether the target of a call is inside the same function."""
    return target != 0 and _function(kernel, target) == _function(kernel, address)


def _function(kernel: Kernel, address: int) -> tuple[int, int]:
    """Return the start and the end of the function that holds a code address."""
    ends = [len(kernel.text.data)]
    starts = [0]
    for each in kernel.functions:
        (starts if each.start <= address else ends).append(each.start)
    return max(starts), min(ends)


_PLACES_IN_DEBUGGING = (".debug_loc", ".debug_ranges", ".debug_aranges", ".nv_debug_info_reg_sass")
_ADDRESS = 2  # a relocation's kind: the whole address, 8 bytes


def follow(cubin: Cubin, kernel: Kernel, to: Displacement, size: int) -> None:
    """Update all references to a kernel's code, which now has ``size`` bytes.

    Raises:
        PatchError: a reference is of a form that is not known.
    """
    elf = cubin.elf
    _refuse_debugging(elf, kernel)
    follow_lines(elf, kernel, to)
    follow_frames(elf, kernel, to, size)
    _follow_relocations(elf, kernel, to)
    _follow_symbols(elf, kernel, to, size)
    info = elf.find(f".nv.info.{kernel.name}")
    if info is not None:
        attributes.move(kernel.attributes, to.moved, kernel.name)
        info.data = attributes.write(kernel.attributes)


def _refuse_debugging(elf: Elf, kernel: Kernel) -> None:
    for name in _PLACES_IN_DEBUGGING:
        if (section := elf.find(name)) is not None and section.data:
            raise PatchError(
                f"{kernel.name} was compiled for a debugger (-G): its {name} names places in the "
                "code in ways that are not known here. Compile it without -G; -lineinfo is fine."
            )


def _follow_symbols(elf: Elf, kernel: Kernel, to: Displacement, size: int) -> None:
    symbols = elf.symbols()
    old = to.old_count * BYTES
    for each in np.flatnonzero(symbols["section"] == kernel.index):
        start = int(symbols["value"][each])
        end = start + int(symbols["size"][each])
        symbols["value"][each] = to.landed(start)
        if end > start:
            new_end = size if end == old else to.landed(end)
            symbols["size"][each] = new_end - to.landed(start)
    elf.set_symbols(symbols)


def _follow_relocations(elf: Elf, kernel: Kernel, to: Displacement) -> None:
    symbols = elf.symbols()
    for section, table in elf.relocations():
        if section.info == kernel.index:
            table["offset"] = [to.moved(int(place)) for place in table["offset"]]
        ours = np.flatnonzero(symbols["section"][table["symbol"]] == kernel.index)
        if len(ours) and section.kind == SectionKind.RELA:
            for each in ours:
                _follow_addend(symbols, table, int(each), to)
        elif len(ours):
            _follow_stored(elf, kernel, section, table[ours], symbols, to)
        section.data = table.tobytes()


def _follow_addend(symbols: np.ndarray, table: np.ndarray, at: int, to: Displacement) -> None:
    """Update the addend of a relocation: the distance of its target from its symbol."""
    addend = int(table["addend"][at])
    if addend:
        base = int(symbols["value"][table["symbol"][at]])
        table["addend"][at] = to.begun(base + addend) - to.landed(base)


def _follow_stored(
    elf: Elf,
    kernel: Kernel,
    section: Section,
    table: np.ndarray,
    symbols: np.ndarray,
    to: Displacement,
) -> None:
    """Update relocations whose addend is stored in the relocated bytes (REL)."""
    target = elf.sections[section.info]
    data = bytearray(target.data)
    for each in table:
        at, base = int(each["offset"]), int(symbols["value"][each["symbol"]])
        if each["kind"] != _ADDRESS:
            raise PatchError(
                f"{target.name} refers to the code of {kernel.name} in a way that is not known "
                f"(relocation {each['kind']}). Leave this kernel out."
            )
        (addend,) = struct.unpack_from("<Q", data, at)
        if addend:
            struct.pack_into("<Q", data, at, to.begun(base + addend) - to.landed(base))
    target.data = bytes(data)
