"""DWARF line tables (``.debug_line``, ``.nv_debug_line_sass``), rewritten for the displaced code.

They are kept, not dropped, so that a profiler still names the lines of a patched kernel. Inserted
code belongs to the line of the instruction behind it.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import cache

import numpy as np

from ikp.errors import PatchError
from ikp.sass.cubins import leb
from ikp.sass.cubins.cubin import Kernel
from ikp.sass.cubins.elf import Elf, Kind, Section
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
        self.relocations = [each for each in elf.relocations() if each[0].info == index]
        symbols = elf.symbols()
        self.ours: dict[int, int] = {}
        for table, entries in self.relocations:
            mine = np.flatnonzero(symbols["section"][entries["symbol"]] == kernel.index)
            for each in entries[mine]:
                at = int(each["offset"])
                addend = each["addend"] if table.kind == Kind.RELA else _stored(section.data, at)
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
            at = _operation_end(data, at, form)
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
    out += leb.encoded(step // form.unit)
    if op >= form.first:  # a special one: it appends a row too, and moves the line
        out.append(form.first + (op - form.first) % form.range)


def _step(data: bytes, at: int, op: int, form: _Form) -> tuple[int | None, int]:
    """Return by how many bytes an operation advances the address, None for one that doesn't, and
    the offset of its end.
    """
    if op >= form.first:
        return (op - form.first) // form.range * form.unit, at + 1
    if op == _ADVANCE:
        units, end = leb.unsigned(data, at + 1)
        return units * form.unit, end
    end, step = _operation_end(data, at, form), None
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


def _operation_end(data: bytes, at: int, form: _Form) -> int:
    op = data[at]
    if op >= form.first:
        return at + 1
    if op == 0:
        size, at = leb.unsigned(data, at + 1)
        return at + size
    if op == _ADVANCE_FIXED:
        return at + 3
    at += 1
    for _ in range(form.lengths[op - 1]):
        at = leb.end(data, at)
    return at


def _stored(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<Q", data, at)[0])
