"""How a debugger finds a function's caller (``.debug_frame``): it follows the code."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ikp.errors import PatchError
from ikp.machine import _leb
from ikp.machine.cubin import Kernel
from ikp.machine.elf import Elf, Kind
from ikp.machine.shift import Shift

_LONG = struct.Struct("<IQQ")  # the mark of 64 bits, the size, what it describes
_MARK = 0xFFFFFFFF
_CODE_UNIT = 4  # bytes that a step in the code counts; CUDA's compilers know no other
_STEPS = {0x02: "<B", 0x03: "<H", 0x04: "<I"}
_OPERANDS = {
    **dict.fromkeys((0x06, 0x07, 0x08, 0x0D, 0x0E, 0x13), 1),
    **dict.fromkeys((0x05, 0x09, 0x0C, 0x11, 0x12, 0x14, 0x15), 2),
    **dict.fromkeys((0x00, 0x0A, 0x0B), 0),
}


def follow_frames(elf: Elf, kernel: Kernel, to: Shift, size: int) -> None:
    """Give a kernel's entries their new extent; symbols and addends are still the old ones.

    Raises:
        PatchError: an entry is of a form that is not known.
    """
    section = elf.find(".debug_frame")
    if section is None or not section.data:
        return
    data = bytearray(section.data)
    for at, begin in _entries(elf, kernel, elf.sections.index(section)):
        mark, length, common = _LONG.unpack_from(data, at - _LONG.size)
        (extent,) = struct.unpack_from("<Q", data, at + 8)
        if mark != _MARK or data[common + 21 : common + 23] != bytes([0, _CODE_UNIT]):
            raise PatchError(
                f"The entry for {kernel.name} in .debug_frame is of a form that is not known here. "
                "Compile the kernel with CUDA 11 to 13, or strip that section."
            )
        last = begin + extent == to.old_count * 16
        new = (size if last else to.landed(begin + extent)) - to.landed(begin)
        struct.pack_into("<Q", data, at + 8, new)
        stop = at - _LONG.size + 12 + length
        _follow_steps(data, at + 16, stop, begin, to)
    section.data = bytes(data)


def _entries(elf: Elf, kernel: Kernel, index: int) -> Iterator[tuple[int, int]]:
    """Yield where the address of each of a kernel's functions stands, and that address."""
    symbols = elf.symbols()
    for section, table in elf.relocations():
        if section.info != index:
            continue
        for each in table[symbols["section"][table["symbol"]] == kernel.index]:
            at = int(each["offset"])
            stored = elf.sections[index].data[at : at + 8]
            addend = (
                each["addend"] if section.kind == Kind.RELA else int.from_bytes(stored, "little")
            )
            yield at, int(symbols["value"][each["symbol"]]) + int(addend)


def _follow_steps(data: bytearray, at: int, stop: int, begin: int, to: Shift) -> None:
    """Rewrite the steps from one place in the code to the next, where they stand."""
    old, new = begin, to.landed(begin)
    while at < stop:
        op = data[at]
        if op in _STEPS:
            form = _STEPS[op]
            old += struct.unpack_from(form, data, at + 1)[0] * _CODE_UNIT
            step, new = to.begun(old) - new, to.begun(old)
            _store(data, at + 1, form, step // _CODE_UNIT)
            at += 1 + struct.calcsize(form)
        elif op >> 6 == 1:
            old += (op & 63) * _CODE_UNIT
            step, new = to.begun(old) - new, to.begun(old)
            _store_short(data, at, step // _CODE_UNIT)
            at += 1
        else:
            at = _operation_end(data, at)


def _store(data: bytearray, at: int, form: str, step: int) -> None:
    if step >> 8 * struct.calcsize(form):
        raise _no_room()
    struct.pack_into(form, data, at, step)


def _store_short(data: bytearray, at: int, step: int) -> None:
    if step > 63:
        raise _no_room()
    data[at] = 0x40 | step


def _no_room() -> PatchError:
    return PatchError(
        "A step in .debug_frame has no room for the kernel's new extent: the compiler stored it in "
        "less than four bytes. Strip that section, or add fewer instructions."
    )


def _operation_end(data: bytes | bytearray, at: int) -> int:
    op = data[at]
    if op >> 6:  # an offset of a register, or its restoring
        return _leb.end(data, at + 1) if op >> 6 == 2 else at + 1
    if op not in _OPERANDS:
        raise PatchError(
            f"The operation {op:#x} in .debug_frame is not known here, so what follows it can't be "
            "read. Strip that section."
        )
    at += 1
    for _ in range(_OPERANDS[op]):
        at = _leb.end(data, at)
    return at
