"""The attributes of a cubin's kernels (``.nv.info``): parsed, written, and moved with the code.

Some hold code addresses, which change when code is inserted. A table lists which, and in what form,
from what NVIDIA's compilers write and its disassembler prints. An unknown
attribute with a size is refused; one without has 16 bits, too few for an address.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from ikp.errors import PatchError


class AttributeCode(IntEnum):
    """The attributes that are read or written here, by NVIDIA's names."""

    MAX_THREADS = 0x05
    PARAM_CBANK = 0x0A
    REQNTID = 0x10
    FRAME_SIZE = 0x11
    KPARAM_INFO = 0x17
    CBANK_PARAM_SIZE = 0x19
    MAXREG_COUNT = 0x1B
    EXIT_INSTR_OFFSETS = 0x1C
    EMULATED_ATOMICS = 0x2E
    REGCOUNT = 0x2F
    INDIRECT_BRANCH_TARGETS = 0x34
    KPARAM_INFO_V2 = 0x45


class Format(IntEnum):
    """How an attribute's value is stored."""

    NONE = 1
    BYTE = 2
    HALF = 3
    SIZED = 4


_HEAD = 4  # bytes in front of a sized attribute's value; any other attribute has no more
MOST_BYTES = 0xFFFF
"""Bytes of a sized attribute, at the most: its size is a number of 16 bits."""


@dataclass
class Attribute:
    """One attribute: its value is a number, or bytes where the format has a size."""

    format: int
    code: int
    value: int | bytes

    @property
    def data(self) -> bytes:
        """The value of a sized attribute."""
        return self.value if isinstance(self.value, bytes) else b""

    def numbers(self, count: int) -> list[int]:
        """Return the first 32-bit numbers of a sized attribute.

        Raises:
            PatchError: it has fewer.
        """
        if len(self.words) < count:
            raise PatchError(
                f"The attribute {self.code:#04x} in .nv.info has {len(self.data)} bytes and not "
                f"{4 * count} or more, as every known compiler writes it: the cubin is damaged. "
                "Compile it again."
            )
        return self.words[:count]

    @property
    def words(self) -> list[int]:
        """The value of a sized attribute, as 32-bit numbers."""
        whole = len(self.data) // 4 * 4
        return [each for (each,) in struct.iter_unpack("<I", self.data[:whole])]


@dataclass(frozen=True)
class _Places:
    """How an attribute holds code addresses: entries of so many bytes, an address at ``at``.

    Where entries are of several kinds, only those that begin with ``kind`` are known.
    """

    entry: int
    at: int = 0
    kind: int | None = None


HOLDS_PLACES = {
    0x1C: _Places(4),  # EXIT_INSTR_OFFSETS
    0x1D: _Places(4),  # S2RCTAID_INSTR_OFFSETS
    0x25: _Places(4),  # LD_CACHEMOD_INSTR_OFFSETS
    0x27: _Places(4),  # ATOM_SYS_INSTR_OFFSETS
    0x28: _Places(4),  # COOP_GROUP_INSTR_OFFSETS
    0x2E: _Places(8),  # ATOM16_EMUL_INSTR_REG_MAP: a register follows
    0x31: _Places(4),  # INT_WARP_WIDE_INSTR_OFFSETS
    0x39: _Places(16),  # MBARRIER_INSTR_OFFSETS
    0x44: _Places(8),  # UNUSED_LOAD_BYTE_OFFSET
    0x46: _Places(4),  # SYSCALL_OFFSETS
    0x47: _Places(4),  # SW_WAR_MEMBAR_SYS_INSTR_OFFSETS
    0x55: _Places(8, 4, kind=1),  # ANNOTATIONS: of loads and stores of spilled registers
}

_HOLDS_NONE = frozenset(
    {
        0x0A,  # PARAM_CBANK
        0x0C,  # CBANK_PARAM_OFFSETS
        0x0F,  # EXTERNS
        0x10,  # REQNTID
        0x11,  # FRAME_SIZE
        0x12,  # MIN_STACK_SIZE
        0x05,  # MAX_THREADS
        0x17,  # KPARAM_INFO
        0x1E,  # CRS_STACK_SIZE
        0x23,  # MAX_STACK_SIZE
        0x26,  # LOAD_CACHE_REQUEST
        0x29,  # COOP_GROUP_MASK_REGIDS
        0x2F,  # REGCOUNT
        0x30,  # SW2393858_WAR
        0x36,  # SW_WAR
        0x37,  # CUDA_API_VERSION
        0x3B,  # SAM_REGION_STACK_SIZE
        0x3D,  # CTA_PER_CLUSTER
        0x3F,  # MAX_CLUSTER_RANK
        0x42,  # RESERVED_SMEM_0_SIZE
        0x45,  # KPARAM_INFO_V2
        0x4F,  # AT_ENTRY_FRAGMENTS
        0x5E,  # CUDA_REQ
        0x66,  # nameless in the disassembler; 3 in every cubin that was seen
    }
)
"""Sized attributes with no code address. Any other has at most 16 bits, too few for an address."""

_LEFT_ALONE = _HOLDS_NONE | {AttributeCode.INDIRECT_BRANCH_TARGETS}

_REFUSED = {
    0x2D: "places of emulated atomics",
    0x3A: "places where a coroutine goes on",
    0x57: "places of stack canaries",
    0x59: "places of stores between blocks of a cluster",
}


def parse(data: bytes) -> list[Attribute]:
    """Return the attributes of a section.

    Raises:
        PatchError: it ends in the middle of one.
    """
    made, at = [], 0
    while at + _HEAD <= len(data):
        form, code, value = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == Format.SIZED:
            made.append(Attribute(form, code, data[at : at + value]))
            at += value
        else:
            made.append(Attribute(form, code, value))
    if at != len(data):
        raise PatchError(
            "The list of attributes of this kernel (.nv.info) ends in the middle of one: the cubin "
            "is damaged. Compile it again."
        )
    return made


def write(attributes: list[Attribute]) -> bytes:
    """Return the section of these attributes."""
    out = bytearray()
    for each in attributes:
        sized = isinstance(each.value, bytes)
        count = len(each.value) if isinstance(each.value, bytes) else each.value
        out += struct.pack("<BBH", each.format, each.code, count)
        out += each.data if sized else b""
    return bytes(out)


def move(attributes: list[Attribute], new: Callable[[int], int], kernel: str) -> None:
    """Replace each code address by its new value, ``new(old)``; branch targets are left alone.

    Raises:
        PatchError: an attribute is not known.
    """
    for each in attributes:
        if (places := HOLDS_PLACES.get(each.code)) is not None:
            each.value = _moved(each, places, new, kernel)
        elif each.format == Format.SIZED and each.code not in _LEFT_ALONE:
            raise PatchError(
                f"{kernel} has the attribute {each.code:#04x} in .nv.info, "
                f"{_REFUSED.get(each.code, 'which is not known here')}: moving its instructions "
                "could make that wrong, so it is left as it is."
            )


def _moved(
    attribute: Attribute, places: _Places, new: Callable[[int], int], kernel: str
) -> int | bytes:
    kinds = {attribute.data[at : at + 4] for at in range(0, len(attribute.data), places.entry)}
    known = places.kind is None or kinds <= {struct.pack("<I", places.kind)}
    if len(attribute.data) % places.entry or not known:
        raise PatchError(
            f"The attribute {attribute.code:#04x} of {kernel} has {len(attribute.data)} bytes that "
            f"are not the entries of {places.entry} bytes each that are known here, so it is left "
            "as it is."
        )
    out = bytearray(attribute.data)
    for at in range(places.at, len(out), places.entry):
        (old,) = struct.unpack_from("<I", out, at)
        struct.pack_into("<I", out, at, new(old))
    return bytes(out)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel, by its offset among the parameters in the constant bank."""

    ordinal: int
    offset: int
    size: int


def parameters(attributes: list[Attribute]) -> list[Parameter]:
    """Return a kernel's parameters, in their order.

    Raises:
        PatchError: an attribute of a parameter is damaged.
    """
    found = []
    for each in attributes:
        if each.code in (AttributeCode.KPARAM_INFO, AttributeCode.KPARAM_INFO_V2):
            _, place, size = each.numbers(3)
            if each.code == AttributeCode.KPARAM_INFO:  # V2 is of kernels with very many bytes
                size >>= 18
            found.append(Parameter(place & 0xFFFF, place >> 16, size))
    return sorted(found, key=lambda each: each.ordinal)


@dataclass(frozen=True)
class Table:
    """An indirect branch and its targets, as code addresses."""

    branch: int
    targets: tuple[int, ...]


def indirect_branches(attribute: Attribute) -> list[Table]:
    """Return the indirect branches that an attribute lists."""
    words, at, made = attribute.words, 0, []
    while at + 3 <= len(words):
        branch, _, count = words[at : at + 3]
        made.append(Table(branch, tuple(words[at + 3 : at + 3 + count])))
        at += 3 + count
    return made
