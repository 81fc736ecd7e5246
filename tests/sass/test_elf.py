"""Files written back as they were, and with a part that grew."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.errors import PatchError
from ikp.sass.cubins.elf import Elf, SectionKind
from tests.sass.module import CHIPS, cubin

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]


@pytest.mark.parametrize("chip", CHIPS)
def test_unchanged_is_byte_for_byte_the_same(chip: str) -> None:
    assert Elf.read(cubin(chip)).write() == cubin(chip)


@given(st.data())
def test_what_follows_a_part_that_grew_moves(data: st.DataObject) -> None:
    plain = Elf.read(cubin(data.draw(st.sampled_from(CHIPS))))
    elf = Elf.read(plain.original)
    places = [(each.offset, len(each.data)) for each in elf.sections]
    alone = [at for at, each in enumerate(places) if each[1] and places.count(each) == 1]
    for at in data.draw(st.sets(st.sampled_from(alone), max_size=4)):
        elf.sections[at].data += bytes(data.draw(st.integers(1, 700)))
    again = Elf.read(elf.write())
    assert [each.data for each in again.sections] == [each.data for each in elf.sections]
    assert [each.name for each in again.sections] == [each.name for each in plain.sections]
    for each in again.sections:
        assert each.kind == 0 or each.offset % max(each.align, 1) == 0
    for old, new in zip(plain.segments, again.segments, strict=True):
        assert covered(again, new) >= covered(plain, old)
        assert new.memory_size - new.file_size == old.memory_size - old.file_size
    ends = sorted(
        (each.offset, each.offset + len(each.data)) for each in again.sections if each.data
    )
    assert all(first[1] <= second[0] or first == second for first, second in pairwise(ends))


def covered(elf: Elf, segment: object) -> set[str]:
    start, size = segment.offset, segment.file_size  # type: ignore[attr-defined]
    return {
        each.name
        for each in elf.sections
        if each.data and start <= each.offset and each.offset + len(each.data) <= start + size
    }


def test_symbols_and_relocations() -> None:
    elf = Elf.read(cubin())
    names = elf.symbol_names()
    assert {"loop", "divides", "vprintf", "text"} <= set(names)
    sections = {section.name for section, _ in elf.relocations()}
    assert {".rela.debug_frame", ".rela.debug_line"} <= sections
    elf.set_symbols(elf.symbols())
    assert elf.write() == cubin()


def test_relocations_of_a_section_that_there_is_not_are_refused() -> None:
    elf = Elf.read(cubin())
    table = next(section for section, _ in elf.relocations())
    table.info = len(elf.sections) - 1
    assert any(section is table for section, _ in elf.relocations())
    table.info += 1
    with pytest.raises(PatchError, match="damaged"):
        list(elf.relocations())


def test_what_is_no_cubin_is_refused() -> None:
    whole = cubin()
    for data in (b"", b"{}", whole[:40], b"\x7fELF\x01\x01" + whole[6:]):
        with pytest.raises(PatchError, match="no cubin"):
            Elf.read(data)
    for cut in (64, len(whole) // 2, len(whole) - 400):
        with pytest.raises(PatchError, match="damaged"):
            Elf.read(whole[:cut])


def test_parts_that_overlap_are_refused() -> None:
    elf = Elf.read(cubin())
    first, second = [each for each in elf.sections if each.kind == SectionKind.PROGBITS][:2]
    second.offset = first.offset + 1
    with pytest.raises(PatchError, match="overlap"):
        elf.write()


def test_of_two_that_share_bytes_one_moves_out() -> None:
    """Blackwell's Mercury sections share theirs with those that they stand beside."""
    plain = Elf.read(cubin("sm_100a"))
    one, other = plain.find(".nv.global.init"), plain.find(".nv.merc.nv.global.init")
    assert one is not None and other is not None and one.offset == other.offset
    before = one.data
    one.data += bytes(16)
    again = Elf.read(plain.write())
    assert again.find(".nv.global.init").data == before + bytes(16)
    assert again.find(".nv.merc.nv.global.init").data == before


def test_a_file_without_segments_has_no_size_of_one_either() -> None:
    plain = bytearray(cubin())
    for at, size in ((32, 8), (54, 2), (56, 2)):  # where the table is, an entry's size, how many
        plain[at : at + size] = bytes(size)
    elf = Elf.read(bytes(plain))
    assert elf.segments == [] and elf.write() == bytes(plain)
