"""What a kernel may use: registers, and constants that the host writes."""

from __future__ import annotations

import math
import struct

import numpy as np

from ikp.errors import PatchError
from ikp.sass.cubins import attributes
from ikp.sass.cubins.attributes import Code
from ikp.sass.cubins.cubin import Cubin, Kernel
from ikp.sass.cubins.elf import Elf, Kind, Section, Segment

_MOST_REGISTERS = 255
_ON_AN_SM = 65536
_PORTION = 8  # registers are handed out to threads in portions
_ALIGN = 16
_BANK = 65536  # bytes that a bank of constants has
_USER_BANK = ".nv.constant3"
_MERCURY_BANK = ".nv.merc.nv.constant.user"
_ALLOCATED, _RUN, _READ, _LOAD = 2, 1, 4, 1
_SECTION_SYMBOL, _GLOBAL_OBJECT = 0x03, 0x11


def set_registers(cubin: Cubin, name: str, count: int) -> None:
    """Let each thread of a kernel have so many registers; code may use all but the last two.

    MAXREG_COUNT stays: an H100's driver gives what REGCOUNT says, also where that is more.

    Raises:
        PatchError: it has more already, or so many can't be had.
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
            f"The number of registers of {name} stands {len(ours)} times in .nv.info, not once as "
            "every known compiler writes it: which one counts is not known. Leave this kernel out."
        )
    ours[0].value = struct.pack("<II", kernel.symbol, count)
    info.data = attributes.write(listed)
    if kernel.text.info >> 24:  # up to sm_89 it stands here as well
        kernel.text.info = kernel.text.info & 0xFFFFFF | count << 24
    kernel.registers = count


def _check_registers(kernel: Kernel, count: int) -> None:
    threads = 1
    for each in kernel.attributes:
        if each.code in (Code.REQNTID, Code.MAX_THREADS) and each.data:
            threads = math.prod(each.words)
    handed_out = -(-count // _PORTION) * _PORTION * threads
    if not kernel.registers <= count <= _MOST_REGISTERS or handed_out > _ON_AN_SM:
        raise PatchError(
            f"{kernel.name} has {kernel.registers} registers for each of up to {threads} threads, "
            f"and can't have {count}: no fewer than it has, at most {_MOST_REGISTERS}, and at most "
            f"{_ON_AN_SM} for all threads of a block. Add instructions that take fewer."
        )


def add_constant(cubin: Cubin, symbol: str, size: int) -> int:
    """Append zeroed constants that the host finds by name; kernels read them as ``c[0x3][...]``.

    Returns:
        Where they begin in bank 3, in bytes; a multiple of 16.

    Raises:
        PatchError: the name is taken, or the bank is full.
    """
    elf = cubin.elf
    if symbol in elf.symbol_names():
        raise PatchError(
            f"This cubin has a symbol {symbol} already, so the host couldn't tell the two. Pass "
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
    twin = elf.find(_MERCURY_BANK)
    if twin is not None and twin.data == bank.data and twin.offset == bank.offset:
        twin.data += more  # the same bytes, listed twice
    bank.data += more
    bank.align = max(bank.align, _ALIGN)


def _new_bank(elf: Elf) -> Section:
    """Make the bank as ptxas does: before the code, and loaded with other banks that stand there.

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
    """Whether a segment loads constants, not behind the code."""
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
