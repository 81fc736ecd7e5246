"""Cubins that say what no compiler says: each is refused in words."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from ikp.errors import PatchError
from ikp.sass.assembly.chips import chip_of
from ikp.sass.cubins import attributes
from ikp.sass.cubins.attributes import Attribute, AttributeCode, Format
from ikp.sass.cubins.capacity import add_argument, add_constant, set_registers
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.cubins.elf import Elf, Section, SectionKind
from ikp.sass.cubins.module_memory import shared
from ikp.sass.disassembly.listing import parse
from tests.sass import module

pytest.importorskip("triton")
pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]


@pytest.fixture
def file() -> Cubin:
    return Cubin.read(module.cubin())


def short(code: AttributeCode) -> Attribute:
    return Attribute(Format.SIZED, code, b"\1\0\0")


def test_an_attribute_with_too_few_bytes_is_refused(file: Cubin) -> None:
    kernel = file.kernel("loop")
    kernel.attributes.append(short(AttributeCode.KPARAM_INFO))
    with pytest.raises(PatchError, match="has 3 bytes and not 12 or more"):
        _ = kernel.parameters
    kernel.attributes[:] = [short(AttributeCode.PARAM_CBANK)]
    for use in (lambda: chip_of(90, kernel), lambda: add_argument(file, "loop", 16, 0x210)):
        with pytest.raises(PatchError, match="not 8 or more"):
            use()


def test_registers_that_an_attribute_gives_to_no_one_are_refused(file: Cubin) -> None:
    info = file.elf.find(".nv.info")
    assert info is not None
    info.data = attributes.write([short(AttributeCode.REGCOUNT), *attributes.parse(info.data)])
    with pytest.raises(PatchError, match="not 4 or more"):
        set_registers(file, "loop", 64)
    with pytest.raises(PatchError, match="not 8 or more"):
        Cubin.read(file.write())


def test_more_registers_than_instructions_can_name_are_refused(file: Cubin) -> None:
    info = file.elf.find(".nv.info")
    assert info is not None
    listed = attributes.parse(info.data)
    for each in listed:
        if each.code == AttributeCode.REGCOUNT:
            each.value = struct.pack("<II", each.numbers(1)[0], 256)
    info.data = attributes.write(listed)
    with pytest.raises(PatchError, match="more than 255 registers"):
        Cubin.read(file.write())


def test_more_threads_than_64_bits_count_are_too_many(file: Cubin) -> None:
    kernel = file.kernel("loop")
    kernel.attributes.append(
        Attribute(Format.SIZED, AttributeCode.REQNTID, struct.pack("<III", *(1 << 31,) * 3))
    )
    with pytest.raises(PatchError, match="can't have 64"):
        set_registers(file, "loop", 64)


def test_a_list_of_attributes_that_ends_in_a_head_is_refused() -> None:
    with pytest.raises(PatchError, match="ends in the middle"):
        attributes.parse(b"\4\x11\0")


def test_a_file_without_a_segment_of_code_gets_no_constants(file: Cubin) -> None:
    for each in file.elf.segments:
        each.flags = 0
    with pytest.raises(PatchError, match="no segment that holds code"):
        add_constant(file, "mine", 16)


def _odd_symbols(elf: Elf) -> None:
    section = next(each for each in elf.sections if each.kind == SectionKind.SYMTAB)
    section.data = section.data[:-1]


def _no_texts(elf: Elf) -> None:
    elf.symbol_texts().data = b"x" * 9999


def _far_names(elf: Elf) -> None:
    next(each for each in elf.sections if each.kind == SectionKind.SYMTAB).link = 9999


def _relocations(elf: Elf) -> Section:
    return next(
        each
        for each in elf.sections
        if each.kind in (SectionKind.REL, SectionKind.RELA) and each.data
    )


def _odd_relocations(elf: Elf) -> None:
    section = _relocations(elf)
    section.data = section.data[:-1]


def _relocations_of_nothing(elf: Elf) -> None:
    section = _relocations(elf)
    section.info = 9999


def _unknown_symbols(elf: Elf) -> None:
    section = _relocations(elf)
    section.data = section.data[:12] + b"\xff\xff" + section.data[14:]


@pytest.mark.parametrize(
    "change",
    [
        _odd_symbols,
        _no_texts,
        _far_names,
        _odd_relocations,
        _relocations_of_nothing,
        _unknown_symbols,
    ],
)
def test_tables_that_can_not_be_read_are_refused(change: Callable[[Elf], None]) -> None:
    elf = Elf.read(module.cubin())
    change(elf)
    with pytest.raises(PatchError, match=r"damaged: its .* can't be read"):
        _ = elf.symbol_names(), list(elf.relocations())


def test_a_size_that_no_header_holds_is_refused(file: Cubin) -> None:
    file.elf.segments[0].memory_size = 1 << 64
    with pytest.raises(PatchError, match="damaged: its table of sections or of segments"):
        file.write()


def test_memory_that_lies_behind_the_code_s_end_is_refused(file: Cubin) -> None:
    for table, entries in file.elf.relocations():
        entries["offset"] = 1 << 40
        table.data = entries.tobytes()
    with pytest.raises(PatchError, match="lies behind its section's end"):
        shared(file.write(), "prints", lambda _: 1 << 40)


@pytest.mark.parametrize("beyond", [-(1 << 41), (1 << 63) - 1])
def test_memory_beyond_all_addresses_is_refused(file: Cubin, beyond: int) -> None:
    for table, entries in file.elf.relocations():
        if "addend" in (entries.dtype.names or ()):
            entries["addend"] = beyond
            table.data = entries.tobytes()
    with pytest.raises(PatchError, match="it is damaged"):
        shared(file.write(), "prints", lambda _: (1 << 64) - 1 if beyond > 0 else 1 << 40)


def test_a_comment_that_names_no_line_is_no_line() -> None:
    (code,) = parse(
        "//--------------------- .text.k --------------------------\n"
        '\t//## File "a"b\n'
        "        /*0000*/                   EXIT ;  /* 0x000000000000794d */\n"
        "                                           /* 0x000fea0003800000 */\n"
    )
    assert code.instructions[0].lines == ()


@pytest.mark.parametrize("at", [32, 40])
def test_tables_beyond_all_files_are_refused(at: int) -> None:
    """The header says where the tables of segments and sections begin."""
    data = bytearray(module.cubin())
    struct.pack_into("<Q", data, at, (1 << 64) - 1)
    with pytest.raises(PatchError, match="damaged"):
        Elf.read(bytes(data))
