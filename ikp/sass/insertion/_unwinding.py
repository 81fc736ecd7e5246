"""DWARF call frame information (``.debug_frame``), updated to the displaced code."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ikp.errors import PatchError
from ikp.sass.cubins import leb
from ikp.sass.cubins.cubin import Kernel
from ikp.sass.cubins.elf import Elf, Kind
from ikp.sass.cubins.instruction import BYTES
from ikp.sass.insertion.displacement import Displacement

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
            rela = section.kind == Kind.RELA
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
            at = _operation_end(data, at)
            continue
        new = to.begun(old)


def _no_room() -> PatchError:
    return PatchError(
        "A step in .debug_frame has no room for the kernel's new extent: the compiler stored it in "
        "less than four bytes. Strip that section, or add fewer instructions."
    )


def _operation_end(data: bytes | bytearray, at: int) -> int:
    op = data[at]
    if op >> 6:  # an offset of a register, or its restoring
        return leb.end(data, at + 1) if op >> 6 == 2 else at + 1
    if op not in _OPERANDS:
        raise PatchError(
            f"The operation {op:#x} in .debug_frame is not known here, so what follows it can't be "
            "read. Strip that section."
        )
    at += 1
    for _ in range(_OPERANDS[op]):
        at = leb.end(data, at)
    if op in _WITH_BLOCK:
        size, at = leb.unsigned(data, at)
        at += size
    return at
