"""Raise a kernel's number of registers, and add constants that the host writes, in a cubin."""

from __future__ import annotations

import math
import struct

import numpy as np

from ikp.errors import PatchError
from ikp.sass.cubins import attributes
from ikp.sass.cubins.attributes import Code
from ikp.sass.cubins.cubin import Cubin, Kernel
from ikp.sass.cubins.elf import Elf, Kind, Section, Segment
from ikp.sass.cubins.register_file import LANES, most_registers_of

_MOST_REGISTERS = 255
_ALIGN = 16
_BANK = 65536  # bytes that a bank of constants has
_USER_BANK = ".nv.constant3"
_MERCURY_BANK = ".nv.merc.nv.constant.user"
_ALLOCATED, _RUN, _READ, _LOAD = 2, 1, 4, 1
_SECTION_SYMBOL, _GLOBAL_OBJECT = 0x03, 0x11


def set_registers(cubin: Cubin, name: str, count: int) -> None:
    """Set the registers of each thread of a kernel; code may use all but the last two.

    MAXREG_COUNT stays: an H100's driver obeys REGCOUNT, even where that is more.

    Raises:
        PatchError: the kernel has more already, or the register file has too few.
    """
    kernel = cubin.kernel(name)
    _check_registers(kernel, count)
    info = cubin.elf.find(".nv.info")
    listed = attributes.parse(info.data) if info is not None else []
    ours = [
        each
        for each in listed
        if each.code == Code.REGCOUNT and each.numbers(1)[0] == kernel.symbol
    ]
    if info is None or len(ours) != 1:
        raise PatchError(
            f"The number of registers of {name} is {len(ours)} times in .nv.info, not once as "
            "every known compiler writes it: which one counts is not known. Leave this kernel out."
        )
    ours[0].value = struct.pack("<II", kernel.symbol, count)
    info.data = attributes.write(listed)
    if kernel.text.info >> 24:  # up to sm_89, the section header has the number, too
        kernel.text.info = kernel.text.info & 0xFFFFFF | count << 24
    kernel.registers = count


def _check_registers(kernel: Kernel, count: int) -> None:
    threads = 1
    for each in kernel.attributes:
        if each.code in (Code.REQNTID, Code.MAX_THREADS) and each.data:
            threads = math.prod(each.words)
    most = min(_MOST_REGISTERS, most_registers_of(-(-threads // LANES)))
    if not kernel.registers <= count <= max(most, kernel.registers):
        raise PatchError(
            f"{kernel.name} has {kernel.registers} registers for each of up to {threads} threads, "
            f"and can't have {count}: no fewer than it has, and at most {most}. Add instructions "
            "that take fewer."
        )


def add_constant(cubin: Cubin, symbol: str, size: int) -> int:
    """Append zeroed constants that the host finds by name; kernels read them as ``c[0x3][...]``.

    Returns:
        Their offset in bank 3, in bytes; a multiple of 16.

    Raises:
        PatchError: the name is taken, or the bank is full.
    """
    elf = cubin.elf
    if symbol in elf.symbol_names():
        raise PatchError(
            f"This cubin has a symbol {symbol} already: the host would find one of the two. Pass "
            "another name, or a cubin that this was not done to before."
        )
    bank = elf.find(_USER_BANK)
    begin = -(-len(bank.data) // _ALIGN) * _ALIGN if bank is not None else 0
    if size <= 0 or begin + size > _BANK:
        raise PatchError(
            f"The constants of this cubin take {begin} of {_BANK} bytes: {size} more can't be "
            "added. Pass a smaller size."
        )
    if bank is None:
        bank = _new_bank(elf)
    _grow(elf, bank, bytes(begin - len(bank.data) + size))
    _add_symbol(elf, symbol, _GLOBAL_OBJECT, elf.sections.index(bank), begin, size)
    return begin


def _grow(elf: Elf, bank: Section, more: bytes) -> None:
    mercury = elf.find(_MERCURY_BANK)
    if mercury is not None and mercury.data == bank.data and mercury.offset == bank.offset:
        mercury.data += more  # the same bytes, listed twice
    bank.data += more
    bank.align = max(bank.align, _ALIGN)


def _new_bank(elf: Elf) -> Section:
    """Make the bank as ptxas does: before the code, and loaded with other banks that lie there.

    Its entry in the table of sections is the last, so that no other's number changes.
    """
    code = next((each for each in elf.segments if each.kind == _LOAD and each.flags & _RUN), None)
    if code is None:
        raise PatchError(
            "This cubin names no segment that holds code, so where constants are loaded is not "
            "known. It was changed or damaged: compile it again."
        )
    host = next((each for each in elf.segments if _holds_banks(elf, each, code)), None)
    name_at = elf.add_text(elf.sections[elf.names], _USER_BANK)
    before = (host or code).offset
    bank = Section(*(_USER_BANK, name_at, Kind.PROGBITS, _ALLOCATED, 0, before, 0, 0, 0, _ALIGN, 0))
    elf.sections.append(bank)
    if host is not None:
        host.first = bank
    else:
        made = Segment(_LOAD, _READ, before, 0, 0, 0, 0, code.align, bank, bank)
        elf.segments.insert(elf.segments.index(code), made)
    _add_symbol(elf, _USER_BANK, _SECTION_SYMBOL, len(elf.sections) - 1, 0, 0)
    return bank


def _holds_banks(elf: Elf, segment: Segment, code: Segment) -> bool:
    """Whether a segment loads constants, and begins no later than the code."""
    end = segment.offset + segment.file_size
    return (
        segment.kind == _LOAD
        and segment.offset <= code.offset
        and any(
            each.name.startswith(".nv.constant") and segment.offset <= each.offset < end
            for each in elf.sections
            if each.room
        )
    )


def _add_symbol(elf: Elf, name: str, info: int, section: int, value: int, size: int) -> None:
    """Append a symbol: others keep their numbers, by which attributes name them."""
    symbols = elf.symbols()
    made = np.zeros(1, symbols.dtype)
    made["name"] = elf.add_text(elf.symbol_texts(), name)
    made["info"], made["section"], made["value"], made["size"] = info, section, value, size
    elf.set_symbols(np.concatenate([symbols, made]))
