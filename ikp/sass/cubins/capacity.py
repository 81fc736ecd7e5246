"""Additions to a kernel of a cubin: registers, constants that the host writes, one more parameter.

An SM has four parts (sm_70 to sm_120), each with a quarter of its registers and a quarter of its
warps. Of a block of 19 warps, five are in one part; with 104 registers for each thread, only four
fit there. So the driver does not launch the block, though all its registers are fewer than 65,536.

In the added parameter, the kernel's launcher passes a buffer. The parameter lies behind all others,
as ``ptxas`` would put it: the offsets of the others stay. From then on, every launch of the kernel
has to pass it.
"""

from __future__ import annotations

import math
import struct
from typing import Final

import numpy as np

from ikp.errors import PatchError
from ikp.sass.cubins import attributes
from ikp.sass.cubins.attributes import Attribute, AttributeCode, Format, Parameter
from ikp.sass.cubins.cubin import Cubin, Kernel
from ikp.sass.cubins.elf import Elf, ProgramHeader, Section, SectionKind
from ikp.sass.cubins.extra_argument import ExtraArgument

PORTION: Final = 8
"""Registers are handed out to threads in portions."""
LANES: Final = 32
_PARTS: Final = 4
_IN_A_PART: Final = 16384


def warps_with(registers: int) -> int:
    """Return the most resident warps of an SM, by the registers of each thread."""
    return _IN_A_PART // (-(-registers // PORTION) * PORTION * LANES) * _PARTS


def most_registers_of(warps: int) -> int:
    """Return the most registers that each thread of a block may have, by the warps of the block."""
    return _IN_A_PART // (-(-warps // _PARTS) * LANES) // PORTION * PORTION


MOST_PARAMETERS: Final = 255
"""Parameters that a program may pass itself: ``hook/launches.c`` has an array for one more."""
_MOST_BYTES: Final = 4096
"""Bytes of parameters that every driver takes; for more, cubins have another attribute."""
_PARAMETERS_ALIGN: Final = 16
_IN_CONSTANTS: Final = 0x1F << 12
"""The bits of KPARAM_INFO beside the size: the parameter is in the constants."""
_SIZE_AT: Final = 18


def add_argument(cubin: Cubin, name: str, size: int, base: int) -> ExtraArgument | None:
    """Give a kernel one more parameter; None, and no change, where its attributes are not known.

    Args:
        cubin: the file.
        name: the kernel's name.
        size: the parameter's bytes.
        base: the offset of parameters in the constant bank 0.
    """
    kernel = cubin.kernel(name)
    bank = cubin.elf.find(f".nv.constant0.{name}")
    if bank is None or not kernel.entry or cubin.elf.find(f".nv.merc.nv.info.{name}") is not None:
        return None  # the last section has the same attributes for the kernel's Mercury form
    end = _end(kernel, bank, base, cubin)
    if end is None:
        return None
    made = ExtraArgument(
        len(kernel.parameters),
        -(-(base + end) // _PARAMETERS_ALIGN) * _PARAMETERS_ALIGN - base,
        size,
    )
    last = made.offset + size
    if made.ordinal > MOST_PARAMETERS or last > _MOST_BYTES:
        return None
    _describe(kernel, made, last, base)
    bank.data += bytes(base + last - len(bank.data))
    return made


def _of(kernel: Kernel, *codes: int) -> list[Attribute]:
    """Return a kernel's attributes of some kinds."""
    return [each for each in kernel.attributes if each.code in codes]


def _end(kernel: Kernel, bank: Section, base: int, cubin: Cubin) -> int | None:
    """Return the end of a kernel's parameters, in bytes; None where attributes are not known."""
    sizes = [each.value for each in _of(kernel, AttributeCode.CBANK_PARAM_SIZE)]
    banks = [each.numbers(2) for each in _of(kernel, AttributeCode.PARAM_CBANK)]
    if _of(kernel, *_OTHERS) or len(sizes) != 1 or len(banks) != 1:
        return None
    (end,) = sizes
    if not isinstance(end, int):
        return None
    symbols = cubin.elf.symbols()["section"].tolist()
    symbol, extent = banks[0]
    if symbol >= len(symbols) or symbols[symbol] != cubin.elf.sections.index(bank):
        return None
    fits = extent == base | end << 16 and len(bank.data) == base + end
    return end if fits and _in_order(kernel.parameters, end) else None


_OTHERS: Final = frozenset({0x0C, 0x45})
"""Attributes of parameters that are not written here: CBANK_PARAM_OFFSETS, KPARAM_INFO_V2."""


def _in_order(known: list[Parameter], end: int) -> bool:
    """Whether the list of parameters is complete, in ascending order up to an end."""
    ends = [each.offset + each.size for each in known]
    return (
        bool(known)
        and [each.ordinal for each in known] == [*range(len(known))]
        and all(ends[at] <= known[at + 1].offset for at in range(len(known) - 1))
        and ends[-1] == end
    )


def _describe(kernel: Kernel, made: ExtraArgument, last: int, base: int) -> None:
    """Write the new parameter into a kernel's attributes."""
    listed = kernel.attributes
    for each in listed:
        if each.code == AttributeCode.CBANK_PARAM_SIZE:
            each.value = last
        elif each.code == AttributeCode.PARAM_CBANK:
            each.value = struct.pack("<II", each.words[0], base | last << 16)
    first = next(at for at, each in enumerate(listed) if each.code == AttributeCode.KPARAM_INFO)
    data = struct.pack("<IHHI", 0, made.ordinal, made.offset, _IN_CONSTANTS | made.size << _SIZE_AT)
    listed.insert(first, Attribute(Format.SIZED, AttributeCode.KPARAM_INFO, data))


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
        if each.code == AttributeCode.REGCOUNT and each.numbers(1)[0] == kernel.symbol
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
        if each.code in (AttributeCode.REQNTID, AttributeCode.MAX_THREADS) and each.data:
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
    bank = Section(
        *(_USER_BANK, name_at, SectionKind.PROGBITS, _ALLOCATED, 0, before, 0, 0, 0, _ALIGN, 0)
    )
    elf.sections.append(bank)
    if host is not None:
        host.first = bank
    else:
        made = ProgramHeader(_LOAD, _READ, before, 0, 0, 0, 0, code.align, bank, bank)
        elf.segments.insert(elf.segments.index(code), made)
    _add_symbol(elf, _USER_BANK, _SECTION_SYMBOL, len(elf.sections) - 1, 0, 0)
    return bank


def _holds_banks(elf: Elf, segment: ProgramHeader, code: ProgramHeader) -> bool:
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
