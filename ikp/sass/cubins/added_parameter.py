"""``add_argument``: give a kernel one more parameter, in which its launcher passes a buffer.

The parameter lies behind all others, as ``ptxas`` would put it: the offsets of the others stay.
From then on, every launch of the kernel has to pass it.
"""

from __future__ import annotations

import struct
from typing import Final

from ikp.sass.cubins.attributes import Attribute, Code, Format, Parameter
from ikp.sass.cubins.cubin import Cubin, Kernel
from ikp.sass.cubins.elf import Section
from ikp.sass.cubins.extra_argument import Argument

MOST_PARAMETERS: Final = 255
"""Parameters that a program may pass itself: ``hook/launches.c`` has an array for one more."""
_MOST_BYTES: Final = 4096
"""Bytes of parameters that every driver takes; for more, cubins have another attribute."""
_ALIGN: Final = 16
_IN_CONSTANTS: Final = 0x1F << 12
"""The bits of KPARAM_INFO beside the size: the parameter is in the constants."""
_SIZE_AT: Final = 18


def add_argument(cubin: Cubin, name: str, size: int, base: int) -> Argument | None:
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
    made = Argument(len(kernel.parameters), -(-(base + end) // _ALIGN) * _ALIGN - base, size)
    last = made.offset + size
    if made.ordinal > MOST_PARAMETERS or last > _MOST_BYTES:
        return None
    _describe(kernel, made, last, base)
    bank.data += bytes(base + last - len(bank.data))
    return made


def _end(kernel: Kernel, bank: Section, base: int, cubin: Cubin) -> int | None:
    """Return the end of a kernel's parameters, in bytes; None where attributes are not known."""
    sizes = [each.value for each in kernel.attributes if each.code == Code.CBANK_PARAM_SIZE]
    banks = [each.numbers(2) for each in kernel.attributes if each.code == Code.PARAM_CBANK]
    other = any(each.code in _OTHERS for each in kernel.attributes)
    if other or len(sizes) != 1 or len(banks) != 1 or not isinstance(sizes[0], int):
        return None
    end = sizes[0]
    symbols = cubin.elf.symbols()["section"].tolist()
    extent, known = banks[0][1], kernel.parameters
    if (
        banks[0][0] >= len(symbols)
        or symbols[banks[0][0]] != cubin.elf.sections.index(bank)
        or extent != base | end << 16
    ):
        return None
    if len(bank.data) != base + end or not _in_order(known, end):
        return None
    return end


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


def _describe(kernel: Kernel, made: Argument, last: int, base: int) -> None:
    """Write the new parameter into a kernel's attributes."""
    listed = kernel.attributes
    for each in listed:
        if each.code == Code.CBANK_PARAM_SIZE:
            each.value = last
        elif each.code == Code.PARAM_CBANK:
            each.value = struct.pack("<II", each.words[0], base | last << 16)
    first = next(at for at, each in enumerate(listed) if each.code == Code.KPARAM_INFO)
    data = struct.pack("<IHHI", 0, made.ordinal, made.offset, _IN_CONSTANTS | made.size << _SIZE_AT)
    listed.insert(first, Attribute(Format.SIZED, Code.KPARAM_INFO, data))
