"""One more parameter of a kernel, by which whoever launches it says where it is to record.

It stands behind all others, as ``ptxas`` would put it: what the kernel reads stays where it is. Who
launches the kernel has to pass it; nobody else can launch it any more.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from ikp.sass.cubins.attributes import Attribute, Code, Format, Parameter
from ikp.sass.cubins.cubin import Cubin, Kernel
from ikp.sass.cubins.elf import Section

MOST_PARAMETERS: Final = 255
"""How many a program may pass itself: ``hook/launches.c`` has an array for so many, and one."""
_MOST_BYTES: Final = 4096
"""What every driver takes; newer ones take more, which a kernel says in another form."""
_ALIGN: Final = 16
_IN_CONSTANTS: Final = 0x1F << 12
"""What is said of a parameter beside its size: that it is in the constants."""
_SIZE_AT: Final = 18


@dataclass(frozen=True, slots=True)
class Argument:
    """One more argument of a launch."""

    ordinal: int  # how many the program itself passes
    offset: int  # bytes behind the first one's
    size: int


def add_argument(cubin: Cubin, name: str, size: int, base: int) -> Argument | None:
    """Give a kernel one more parameter; None, and nothing changed, where that is not understood.

    Args:
        cubin: the file.
        name: the kernel's.
        size: in bytes.
        base: where parameters stand in the constant bank 0.
    """
    kernel = cubin.kernel(name)
    bank = cubin.elf.find(f".nv.constant0.{name}")
    if bank is None or not kernel.entry or cubin.elf.find(f".nv.merc.nv.info.{name}") is not None:
        return None  # the last one says it all again, of the kernel's other form
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
    """Return where a kernel's parameters end; None where what is said of them is not all known."""
    sizes = [each.value for each in kernel.attributes if each.code == Code.CBANK_PARAM_SIZE]
    places = [each.numbers(2) for each in kernel.attributes if each.code == Code.PARAM_CBANK]
    other = any(each.code in _OTHERS for each in kernel.attributes)
    if other or len(sizes) != 1 or len(places) != 1 or not isinstance(sizes[0], int):
        return None
    end = sizes[0]
    symbols = cubin.elf.symbols()["section"].tolist()
    stands, known = places[0][1], kernel.parameters
    if (
        places[0][0] >= len(symbols)
        or symbols[places[0][0]] != cubin.elf.sections.index(bank)
        or stands != base | end << 16
    ):
        return None
    if len(bank.data) != base + end or not _in_order(known, end):
        return None
    return end


_OTHERS: Final = frozenset({0x0C, 0x45})
"""Other forms of the same, which are not written here: CBANK_PARAM_OFFSETS, KPARAM_INFO_V2."""


def _in_order(known: list[Parameter], end: int) -> bool:
    """Whether parameters are all there, one behind the other up to an end."""
    ends = [each.offset + each.size for each in known]
    return (
        bool(known)
        and [each.ordinal for each in known] == [*range(len(known))]
        and all(ends[at] <= known[at + 1].offset for at in range(len(known) - 1))
        and ends[-1] == end
    )


def _describe(kernel: Kernel, made: Argument, last: int, base: int) -> None:
    """Say of a kernel what it has now."""
    listed = kernel.attributes
    for each in listed:
        if each.code == Code.CBANK_PARAM_SIZE:
            each.value = last
        elif each.code == Code.PARAM_CBANK:
            each.value = struct.pack("<II", each.words[0], base | last << 16)
    first = next(at for at, each in enumerate(listed) if each.code == Code.KPARAM_INFO)
    told = struct.pack("<IHHI", 0, made.ordinal, made.offset, _IN_CONSTANTS | made.size << _SIZE_AT)
    listed.insert(first, Attribute(Format.SIZED, Code.KPARAM_INFO, told))
