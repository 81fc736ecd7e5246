"""DWARF of a kernel, updated to the displaced code: its line tables and call frame information.

The line tables (``.debug_line``, ``.nv_debug_line_sass``) are kept, not dropped, so that a profiler
still names the lines of a patched kernel. Inserted code belongs to the line of the instruction
behind it. The call frame information is in ``.debug_frame``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from ikp.errors import PatchError
from ikp.sass.cubins import source_lines
from ikp.sass.cubins.cubin import Kernel
from ikp.sass.cubins.elf import Elf, Section, SectionKind
from ikp.sass.cubins.instruction import BYTES
from ikp.sass.insertion.displacement import Displacement

_SECTIONS = (".debug_line", ".nv_debug_line_sass")
_HEADER = struct.Struct("<IHIBBbBB")
_ADVANCE, _ADD_CONSTANT, _ADVANCE_FIXED = 2, 8, 9  # operations that move the address
_SET_ADDRESS, _END = 2, 1  # extended operations
_LEB = rb"[\x80-\xff]*+[\x00-\x7f]"


def follow_lines(elf: Elf, kernel: Kernel, to: Displacement) -> None:
    """Rewrite the line tables of a kernel, while symbols and addends are still the old ones.

    Raises:
        PatchError: a table is of a form that is not known.
    """
    for name in _SECTIONS:
        section = elf.find(name)
        if section is not None and section.data:
            _Table(elf, kernel, section, to).rewrite()


@dataclass(frozen=True)
class _Form:
    """The fields of a unit's header that decode its operations."""

    unit: int
    base: int
    range: int
    first: int  # the first special operation
    lengths: bytes  # how many operands each standard operation has


class _Table:
    def __init__(self, elf: Elf, kernel: Kernel, section: Section, to: Displacement) -> None:
        self.section, self.to = section, to
        self.starts: list[int] = (to.start * 16).tolist()
        index = elf.sections.index(section)
        self.relocations = [*elf.relocations(index)]
        symbols = elf.symbols()
        self.ours: dict[int, int] = {}
        for table, entries in self.relocations:
            mine = np.flatnonzero(symbols["section"][entries["symbol"]] == kernel.index)
            for each in entries[mine]:
                at = int(each["offset"])
                addend = (
                    each["addend"] if table.kind == SectionKind.RELA else _stored(section.data, at)
                )
                self.ours[at] = int(symbols["value"][each["symbol"]]) + int(addend)
        self.moved: dict[int, int] = {}

    def rewrite(self) -> None:
        if not self.ours:
            return
        data, out, at = self.section.data, bytearray(), 0
        while at + _HEADER.size < len(data):
            at = self._unit(data, at, out)
        self.section.data = bytes(out) + data[at:]
        for table, entries in self.relocations:
            entries["offset"] = [self.moved.get(int(each), int(each)) for each in entries["offset"]]
            table.data = entries.tobytes()

    def _unit(self, data: bytes, at: int, out: bytearray) -> int:
        """Rewrite one unit; return the offset of its end."""
        size, version, header, unit, _, base, span, first = _HEADER.unpack_from(data, at)
        end, begin = at + 4 + size, at + 10 + header
        if version not in (2, 3) or size >= 0xFFFFFFF0 or end > len(data) or not span:
            raise PatchError(
                f"The table of source lines {self.section.name} is of a form that is not known "
                f"here (version {version}). Compile without -lineinfo, or with CUDA 11 to 13."
            )
        lengths = data[at + _HEADER.size : at + _HEADER.size + first - 1]
        start = len(out)
        out += data[at:begin]
        form = _Form(unit, base, span, first, lengths)
        while begin < end:
            begin = self._sequence(data, begin, end, form, out)
        struct.pack_into("<I", out, start, len(out) - start - 4)
        return int(end)

    def _sequence(self, data: bytes, at: int, end: int, form: _Form, out: bytearray) -> int:
        """Copy up to the next address or the unit's end; rewrite the sequence of this kernel."""
        uninteresting = _uninteresting(form, moving=True)
        while at < end:
            begin, at = at, _passed(uninteresting, data, at, end)
            out += data[begin:at]
            if at >= end:
                break
            begin, op = at, data[at]
            at = _line_operation_end(data, at, form)
            out += data[begin:at]
            if op == 0 and data[begin + 2] == _SET_ADDRESS and at - begin == 11:
                self.moved[at - 8] = len(out) - 8
                if at - 8 in self.ours:
                    return self._ours(data, at, end, form, out, self.ours[at - 8])
        return at

    def _ours(self, data: bytes, at: int, end: int, form: _Form, out: bytearray, old: int) -> int:
        """Rewrite the operations from an address on, to the end of its sequence."""
        new, copied, uninteresting = self.to.begun(old), at, _uninteresting(form)
        while (at := _passed(uninteresting, data, at, end)) < end:
            begin, op = at, data[at]
            step, at = _step(data, at, op, form)
            if step is None:
                if op == 0 and data[begin + 2] == _END:
                    break
                continue
            old += step
            target = self.starts[old >> 4] if not old & 15 else self.to.begun(old)
            if target - new != step:
                out += data[copied:begin]
                _emit(out, op, target - new, form)
                copied = at
            new = target
        out += data[copied:at]
        return at


def _emit(out: bytearray, op: int, step: int, form: _Form) -> None:
    """Append an operation that moves the address by another step."""
    out.append(_ADVANCE)
    out += source_lines.encoded_leb(step // form.unit)
    if op >= form.first:  # a special one: it appends a row too, and moves the line
        out.append(form.first + (op - form.first) % form.range)


def _step(data: bytes, at: int, op: int, form: _Form) -> tuple[int | None, int]:
    """Return by how many bytes an operation advances the address, None for one that doesn't, and
    the offset of its end.
    """
    if op >= form.first:
        return (op - form.first) // form.range * form.unit, at + 1
    if op == _ADVANCE:
        units, end = source_lines.read_uleb(data, at + 1)
        return units * form.unit, end
    end, step = _line_operation_end(data, at, form), None
    if op == _ADD_CONSTANT:
        step = (255 - form.first) // form.range * form.unit
    if op == _ADVANCE_FIXED:
        step = int(struct.unpack_from("<H", data, at + 1)[0])
    return step, end


def _passed(operations: re.Pattern[bytes], data: bytes, at: int, end: int) -> int:
    """Return the end of a run of matching operations, from an offset on."""
    found = operations.match(data, at, end)
    return found.end() if found else at


@cache
def _uninteresting(form: _Form, *, moving: bool = False) -> re.Pattern[bytes]:
    """Return a pattern of operations that neither set nor advance an address; with ``moving``, also
    of those that advance it.
    """
    kinds = [
        re.escape(bytes([op])) + (b".." if op == _ADVANCE_FIXED else _LEB * form.lengths[op - 1])
        for op in range(1, form.first)
        if moving or op not in (_ADVANCE, _ADD_CONSTANT, _ADVANCE_FIXED)
    ]
    kinds += [b"[" + re.escape(bytes([form.first])) + rb"-\xff]"] if moving else []
    return re.compile(b"(?:" + b"|".join(kinds) + b")*+", re.DOTALL)


def _line_operation_end(data: bytes, at: int, form: _Form) -> int:
    op = data[at]
    if op >= form.first:
        return at + 1
    if op == 0:
        size, at = source_lines.read_uleb(data, at + 1)
        return at + size
    if op == _ADVANCE_FIXED:
        return at + 3
    at += 1
    for _ in range(form.lengths[op - 1]):
        at = source_lines.end_of_leb(data, at)
    return at


def _stored(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<Q", data, at)[0])


_LONG = struct.Struct("<IQQ")  # the mark of 64 bits, the size, the common entry (CIE)
_MARK = 0xFFFFFFFF
_AROUND = 0xFFFFFFFF
_COMMON = 0xFFFFFFFFFFFFFFFF  # marks a common entry (CIE), which others share
_CODE_UNIT = 4  # bytes that a step in the code counts; CUDA's compilers know no other
_STEPS = {0x02: "<B", 0x03: "<H", 0x04: "<I"}
_WITH_BLOCK = (0x0F, 0x10, 0x16)
_OPERANDS = {
    **dict(zip(_WITH_BLOCK, (0, 1, 1), strict=True)),
    **dict.fromkeys((0x06, 0x07, 0x08, 0x0D, 0x0E, 0x13), 1),
    **dict.fromkeys((0x05, 0x09, 0x0C, 0x11, 0x12, 0x14, 0x15), 2),
    **dict.fromkeys((0x00, 0x0A, 0x0B), 0),
}


def follow_frames(elf: Elf, kernel: Kernel, to: Displacement, size: int) -> None:
    """Update a kernel's frame entries, while symbols and addends are still the old ones.

    Raises:
        PatchError: an entry is of a form that is not known.
    """
    section = elf.find(".debug_frame")
    if section is None or not section.data:
        return
    data = bytearray(section.data)
    begins = _begins(elf, kernel, elf.sections.index(section))
    for at, stop in _descriptions(section.data, kernel) if begins else ():
        if (begin := begins.get(at)) is None:
            continue
        (extent,) = struct.unpack_from("<Q", data, at + 8)
        last = begin + extent == to.old_count * BYTES
        new = (size if last else to.landed(begin + extent)) - to.landed(begin)
        struct.pack_into("<Q", data, at + 8, new)
        _follow_steps(data, at + 16, stop, begin, to)
    section.data = bytes(data)


def _descriptions(data: bytes, kernel: Kernel) -> Iterator[tuple[int, int]]:
    """Yield the offset of each function's address, and the end of its entry (FDE)."""
    at = 0
    while at < len(data):
        mark, length, common = _LONG.unpack_from(data, at)
        stop = at + 12 + length
        if mark != _MARK or stop > len(data):
            raise _unknown(kernel)
        if common != _COMMON:  # the common entry isn't looked up: linkers leave its offset wrong
            yield at + _LONG.size, stop
        elif data[at + 21 : at + 23] != bytes([0, _CODE_UNIT]):
            raise _unknown(kernel)
        at = stop


def _unknown(kernel: Kernel) -> PatchError:
    return PatchError(
        f"What .debug_frame says of {kernel.name} is of a form that is not known here. Compile the "
        "kernel with CUDA 11 to 13, or strip that section."
    )


def _begins(elf: Elf, kernel: Kernel, index: int) -> dict[int, int]:
    """Return the code addresses of a kernel in the section, by their offsets."""
    symbols, made = elf.symbols(), {}
    for section, table in elf.relocations():
        if section.info != index:
            continue
        for each in table[symbols["section"][table["symbol"]] == kernel.index]:
            at = int(each["offset"])
            stored = elf.sections[index].data[at : at + 8]
            rela = section.kind == SectionKind.RELA
            addend = int(each["addend"]) if rela else int.from_bytes(stored, "little")
            made[at] = int(symbols["value"][each["symbol"]]) + addend
    return made


def _follow_steps(data: bytearray, at: int, stop: int, begin: int, to: Displacement) -> None:
    """Rewrite the steps from one code address to the next, in place.

    Addresses wrap at 32 bits: compilers step back by stepping over the end.
    """
    old, new = begin, to.landed(begin)
    while at < stop:
        op = data[at]
        if op in _STEPS:
            form = _STEPS[op]
            old = old + struct.unpack_from(form, data, at + 1)[0] * _CODE_UNIT & _AROUND
            step = (to.begun(old) - new & _AROUND) // _CODE_UNIT
            if step >> 8 * struct.calcsize(form):
                raise _no_room()
            struct.pack_into(form, data, at + 1, step)
            at += 1 + struct.calcsize(form)
        elif op >> 6 == 1:
            old = old + (op & 63) * _CODE_UNIT & _AROUND
            step = (to.begun(old) - new & _AROUND) // _CODE_UNIT
            if step > 63:
                raise _no_room()
            data[at] = 0x40 | step
            at += 1
        else:
            at = _unwinding_operation_end(data, at)
            continue
        new = to.begun(old)


def _no_room() -> PatchError:
    return PatchError(
        "A step in .debug_frame has no room for the kernel's new extent: the compiler stored it in "
        "less than four bytes. Strip that section, or add fewer instructions."
    )


def _unwinding_operation_end(data: bytes | bytearray, at: int) -> int:
    op = data[at]
    if op >> 6:  # an offset of a register, or its restoring
        return source_lines.end_of_leb(data, at + 1) if op >> 6 == 2 else at + 1
    if op not in _OPERANDS:
        raise PatchError(
            f"The operation {op:#x} in .debug_frame is not known here, so what follows it can't be "
            "read. Strip that section."
        )
    at += 1
    for _ in range(_OPERANDS[op]):
        at = source_lines.end_of_leb(data, at)
    if op in _WITH_BLOCK:
        size, at = source_lines.read_uleb(data, at)
        at += size
    return at
