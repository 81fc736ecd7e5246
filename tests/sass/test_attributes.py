"""What a cubin says of its kernels: read, written, and moved where it names places."""

from __future__ import annotations

import struct

import pytest

from ikp.errors import PatchError
from ikp.sass.cubins.attributes import (
    HOLDS_PLACES,
    Attribute,
    AttributeCode,
    Format,
    Table,
    indirect_branches,
    move,
    parse,
    write,
)
from ikp.sass.cubins.elf import Elf
from tests.sass.module import CHIPS, cubin

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]


@pytest.mark.parametrize("chip", CHIPS)
def test_written_as_they_were_read(chip: str) -> None:
    infos = [each for each in Elf.read(cubin(chip)).sections if each.name.startswith(".nv.info")]
    assert len(infos) > 5
    for each in infos:
        assert write(parse(each.data)) == each.data


def sized(code: int, *words: int) -> Attribute:
    return Attribute(Format.SIZED, code, struct.pack(f"<{len(words)}I", *words))


def test_places_move_and_nothing_else() -> None:
    given = [
        Attribute(Format.HALF, 0x1B, 0x50),
        sized(AttributeCode.EXIT_INSTR_OFFSETS, 0x10, 0x50),
        sized(0x39, 0x20, 0xFF, 0x60B0, 0x30),
        sized(0x2E, 0x40, 5),
        sized(0x44, 0x40, 7),
        sized(0x55, 1, 0x30),
        sized(AttributeCode.REQNTID, 0x10, 0x20, 1),
    ]
    move(given, lambda place: place + 0x1000, "k")
    assert [each.value if each.format == Format.HALF else each.words for each in given] == [
        0x50,
        [0x1010, 0x1050],
        [0x1020, 0xFF, 0x60B0, 0x30],
        [0x1040, 5],
        [0x1040, 7],
        [1, 0x1030],
        [0x10, 0x20, 1],
    ]


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(PatchError, match=r"0x2d.*emulated atomics.*left as it is"):
        move([sized(0x2D, 0x40)], lambda place: place, "k")
    with pytest.raises(PatchError, match=r"k has the attribute 0x7f.*not known here"):
        move([sized(0x7F, 0x40)], lambda place: place, "k")
    for wrong in (sized(0x39, 0x40), sized(0x55, 2, 0x40)):
        with pytest.raises(PatchError, match="not the entries of"):
            move([wrong], lambda place: place, "k")
    with pytest.raises(PatchError, match="ends in the middle"):
        parse(write([sized(0x1C, 16)])[:-1])


def test_targets_of_indirect_branches() -> None:
    listed = sized(AttributeCode.INDIRECT_BRANCH_TARGETS, 0x40, 0, 2, 0x50, 0x60, 0x90, 0, 1, 0xA0)
    assert indirect_branches(listed) == [Table(0x40, (0x50, 0x60)), Table(0x90, (0xA0,))]


def test_those_with_places_have_a_size() -> None:
    """The smaller formats have 16 bits: too few for a place."""
    for chip in CHIPS:
        for section in Elf.read(cubin(chip)).sections:
            if section.name.startswith(".nv.info"):
                found = [each for each in parse(section.data) if each.code in HOLDS_PLACES]
                assert all(each.format == Format.SIZED for each in found)


LISTS = {
    "EXIT_INSTR_OFFSETS": 0x1C,
    "S2RCTAID_INSTR_OFFSETS": 0x1D,
    "LD_CACHEMOD_INSTR_OFFSETS": 0x25,
    "ATOM_SYS_INSTR_OFFSETS": 0x27,
    "COOP_GROUP_INSTR_OFFSETS": 0x28,
    "INT_WARP_WIDE_INSTR_OFFSETS": 0x31,
    "SYSCALL_OFFSETS": 0x46,
    "SW_WAR_MEMBAR_SYS_INSTR_OFFSETS": 0x47,
}


@pytest.mark.parametrize("code", LISTS.values(), ids=LISTS)
def test_each_list_of_places_moves(code: int) -> None:
    given = sized(code, 0x10, 0x50)
    move([given], lambda place: place + 0x1000, "k")
    assert given.words == [0x1010, 0x1050]


NO_PLACES = {
    "PARAM_CBANK": 0x0A,
    "CBANK_PARAM_OFFSETS": 0x0C,
    "EXTERNS": 0x0F,
    "REQNTID": 0x10,
    "FRAME_SIZE": 0x11,
    "MIN_STACK_SIZE": 0x12,
    "MAX_THREADS": 0x05,
    "KPARAM_INFO": 0x17,
    "CRS_STACK_SIZE": 0x1E,
    "MAX_STACK_SIZE": 0x23,
    "LOAD_CACHE_REQUEST": 0x26,
    "COOP_GROUP_MASK_REGIDS": 0x29,
    "REGCOUNT": 0x2F,
    "SW2393858_WAR": 0x30,
    "SW_WAR": 0x36,
    "CUDA_API_VERSION": 0x37,
    "CTA_PER_CLUSTER": 0x3D,
    "MAX_CLUSTER_RANK": 0x3F,
}


@pytest.mark.parametrize("code", NO_PLACES.values(), ids=NO_PLACES)
def test_what_names_no_place_stays(code: int) -> None:
    given = sized(code, 0x10, 0x50)
    move([given], lambda place: place + 0x1000, "k")
    assert given.words == [0x10, 0x50]
