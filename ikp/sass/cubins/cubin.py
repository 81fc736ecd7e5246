"""``Cubin`` and ``Kernel``: a cubin's ELF file parsed into kernels, with code and attributes."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ikp.errors import PatchError
from ikp.sass.cubins import attributes
from ikp.sass.cubins.attributes import Attribute, AttributeCode, Parameter
from ikp.sass.cubins.elf import Elf, Section
from ikp.sass.cubins.instruction import BYTES, Words

_MOST_REGISTERS = 255
_ENTRY = 0x10  # of a symbol's other bits: a kernel
_FUNCTION = 2  # a symbol's type
_CUDA = 190  # the machine that an ELF file is for
_ACCELERATED_7 = 0x800  # of the flags, under ABI 7
_ACCELERATED_8 = 0x8
_ACCELERATED = 9  # the attribute of .nv.compat, in newer files


@dataclass(frozen=True)
class Function:
    """A function inside a kernel's code: bytes from the start of the code."""

    name: str
    start: int
    size: int


@dataclass
class Kernel:
    """One kernel, or one function with a code section of its own."""

    name: str
    entry: bool  # it can be launched
    text: Section
    index: int  # of its code section
    symbol: int  # the index of its own symbol
    registers: int
    functions: tuple[Function, ...] = ()  # the others in its code
    attributes: list[Attribute] = field(default_factory=list)

    @property
    def words(self) -> Words:
        """Its instructions, copied."""
        return np.frombuffer(self.text.data, np.uint64).reshape(-1, 2).copy()

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters that it is launched with."""
        return attributes.parameters(self.attributes)


@dataclass
class Cubin:
    """A cubin whose kernels can be changed; ``write`` returns the file."""

    elf: Elf
    sm: int  # 90 of sm_90a
    suffix: str  # "a" of sm_90a, where the file says so
    kernels: dict[str, Kernel]

    @classmethod
    def read(cls, data: bytes) -> Cubin:
        """Parse a cubin.

        Raises:
            PatchError: the file is no cubin, or of a form that is not known.
        """
        elf = Elf.read(data)
        _check(elf)
        sm = elf.flags & 0xFF if elf.abi == 7 else elf.flags >> 8 & 0xFFFF
        try:
            return cls(elf, sm, _suffix(elf), {each.name: each for each in _kernels(elf)})
        except (struct.error, ValueError, LookupError, OverflowError) as error:
            raise PatchError(
                f"This cubin is damaged: what it says of its kernels can't be read ({error}). "
                "Compile it again."
            ) from error

    def kernel(self, name: str) -> Kernel:
        """Return a kernel.

        Raises:
            PatchError: there is none of that name.
        """
        if name not in self.kernels:
            raise PatchError(
                f"This cubin has no kernel {name!r}. It has {', '.join(sorted(self.kernels))}: "
                "pass one of these, as the compiler wrote it."
            )
        return self.kernels[name]

    def relocated(self, kernel: Kernel) -> NDArray[np.int64]:
        """Return the numbers of the instructions of a kernel that the loader writes into."""
        own = [
            table["offset"].astype(np.int64) // BYTES
            for _, table in self.elf.relocations(kernel.index)
        ]
        return np.concatenate([np.empty(0, np.int64), *own])

    def write(self) -> bytes:
        """Return the file."""
        return self.elf.write()


def _check(elf: Elf) -> None:
    machine = int.from_bytes(elf.original[18:20], "little")
    if machine != _CUDA or elf.abi not in (7, 8):
        raise PatchError(
            f"This ELF file is for machine {machine} with ABI {elf.abi}; known are NVIDIA's (190) "
            "with ABI 7 and 8, as CUDA 11 to 13 write them. Compile the kernel with one of these."
        )


def _suffix(elf: Elf) -> str:
    if elf.abi == 7:
        return "a" if elf.flags & _ACCELERATED_7 else ""
    compat = elf.find(".nv.compat")
    listed = attributes.parse(compat.data) if compat is not None else []
    newer = any(each.code == _ACCELERATED and each.value == 1 for each in listed)
    return "a" if newer or elf.flags & _ACCELERATED_8 else ""


def _kernels(elf: Elf) -> Iterator[Kernel]:
    symbols, names = elf.symbols(), elf.symbol_names()
    registers = _registers(elf)
    infos = {each.name: each for each in elf.sections if each.name.startswith(".nv.info.")}
    functions = _functions(symbols)
    for index, text in enumerate(elf.sections):
        if not text.name.startswith(".text.") or not text.data:
            continue
        name = text.name.removeprefix(".text.")
        inside = functions[index]
        own = _named(name, inside, names)
        info = infos.get(f".nv.info.{name}")
        yield Kernel(
            name,
            bool(symbols["other"][own] & _ENTRY),
            *(text, index, own, registers.get(own) or text.info >> 24),
            tuple(_function(symbols, names, each) for each in inside if each != own),
            attributes.parse(info.data) if info is not None else [],
        )


def _functions(symbols: np.ndarray) -> Mapping[int, list[int]]:
    """Return the symbols of functions, by the section that has their code."""
    found = defaultdict[int, list[int]](list)
    for each in np.flatnonzero((symbols["info"] & 15) == _FUNCTION).tolist():
        found[int(symbols["section"][each])].append(each)
    return found


def _named(name: str, some: Iterable[int], names: Sequence[str]) -> int:
    """Return the one of some symbols that has a name.

    Raises:
        PatchError: none has.
    """
    for each in some:
        if names[each] == name:
            return each
    raise PatchError(
        f"The code of {name} has no symbol of that name: what calls it is not known. "
        "The cubin was stripped; take the file that the compiler wrote."
    )


def _function(symbols: np.ndarray, names: Sequence[str], at: int) -> Function:
    return Function(names[at], int(symbols["value"][at]), int(symbols["size"][at]))


def _registers(elf: Elf) -> dict[int, int]:
    """Return how many registers each function takes, by its symbol."""
    info = elf.find(".nv.info")
    listed = attributes.parse(info.data) if info is not None else []
    words = [each.numbers(2) for each in listed if each.code == AttributeCode.REGCOUNT]
    if any(count > _MOST_REGISTERS for _, count in words):
        raise ValueError(f"a function has more than {_MOST_REGISTERS} registers")
    return {each[0]: each[1] for each in words}
