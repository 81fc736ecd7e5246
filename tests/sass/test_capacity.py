"""Registers and constants, in the form that ptxas gives them."""

from __future__ import annotations

import pytest

from ikp.errors import PatchError
from ikp.sass.cubins.capacity import add_constant, set_registers
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.cubins.elf import Elf, Section
from tests.sass.module import CHIPS, PTX, cubin
from tests.sass.readback import codes, read

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

BUFFER = ".visible .const .align 16 .b8 ikp_buffer[16];\n"
TABLE = ".visible .const .align 4 .b8 table[20] = {1, 2, 3};\n"
USE = " ld.const.u32 %r2, [table]; add.u32 %r1, %r1, %r2;\n"


def with_constants(*added: str, use: str = "") -> str:
    head, mark, rest = PTX.partition(".global")
    rest = rest.replace(" ld.global.u32 %r1,[%rd0];\n", " ld.global.u32 %r1,[%rd0];\n" + use, 1)
    return head + "".join(added) + mark + rest


def shape(elf: Elf, name: str) -> tuple[int, ...]:
    found = elf.find(name)
    assert found is not None
    return found.kind, found.flags, found.address, found.link, found.info, found.align, found.entry


def loaded(elf: Elf, section: Section) -> list[tuple[int, ...]]:
    """Return what loads a section, as far as it says nothing of places in the file."""
    end = section.offset + len(section.data)
    return [
        (each.kind, each.flags, each.virtual, each.physical, each.align)
        for each in elf.segments
        if each.offset <= section.offset and end <= each.offset + each.file_size
    ]


@pytest.mark.parametrize("chip", CHIPS)
def test_a_constant_looks_as_one_of_ptxas(chip: str) -> None:
    used = with_constants(BUFFER, use=USE.replace("table", "ikp_buffer"))
    theirs = Elf.read(cubin(chip, used))
    made = Cubin.read(cubin(chip))
    assert add_constant(made, "ikp_buffer", 16) == 0
    ours = Elf.read(made.write())
    assert shape(ours, ".nv.constant3") == shape(theirs, ".nv.constant3")
    for elf in (ours, theirs):
        names, symbols = elf.symbol_names(), elf.symbols()
        bank = elf.find(".nv.constant3")
        index = elf.sections.index(bank)
        own = symbols[names.index("ikp_buffer")]
        assert own["info"] == 0x11 and own["other"] == 0
        assert (own["section"], own["value"], own["size"]) == (index, 0, 16)
        assert symbols[names.index(".nv.constant3")]["info"] == 3
        assert bank.data == bytes(16)
    assert loaded(ours, ours.find(".nv.constant3")) == loaded(theirs, theirs.find(".nv.constant3"))
    assert len(ours.segments) == len(theirs.segments)
    before, after = codes(cubin(chip)), codes(made.write())
    assert {name: read(code) for name, code in after.items()} == {
        name: read(code) for name, code in before.items()
    }


def test_a_new_bank_has_a_symbol_of_its_own_and_one_of_its_constant() -> None:
    made = Cubin.read(cubin())
    add_constant(made, "ikp_buffer", 16)
    again = Elf.read(made.write())
    number = [each.name for each in again.sections].index(".nv.constant3")
    fields = ("info", "other", "section", "value", "size")
    found = {
        name: tuple(int(each[field]) for field in fields)
        for name, each in zip(again.symbol_names(), again.symbols(), strict=True)
    }
    assert found[".nv.constant3"] == (3, 0, number, 0, 0), "a local section"
    assert found["ikp_buffer"] == (0x11, 0, number, 0, 16), "a global object"


def test_a_constant_stands_behind_others() -> None:
    ptx = with_constants(TABLE, use=USE)
    made = Cubin.read(cubin("sm_90a", ptx))
    assert add_constant(made, "ikp_buffer", 16) == 32
    assert add_constant(made, "another", 8) == 48
    again = Elf.read(made.write())
    bank = again.find(".nv.constant3")
    assert bank.data == bytes([1, 2, 3]) + bytes(53) and bank.align == 16
    values = dict(zip(again.symbol_names(), again.symbols()["value"].tolist(), strict=True))
    assert (values["table"], values["ikp_buffer"], values["another"]) == (0, 32, 48)
    plain = Elf.read(cubin("sm_90a", ptx))
    assert loaded(again, bank) == loaded(plain, plain.find(".nv.constant3")) != []


def test_a_constant_listed_twice_grows_twice() -> None:
    """On Blackwell, Mercury's sections share the bytes of the bank."""
    made = Cubin.read(cubin("sm_100a", with_constants(TABLE, use=USE)))
    add_constant(made, "ikp_buffer", 16)
    again = Elf.read(made.write())
    assert len(again.find(".nv.constant3").data) == 48
    assert again.find(".nv.merc.nv.constant.user").data == again.find(".nv.constant3").data


def test_constants_that_cannot_be_added_are_refused() -> None:
    made = Cubin.read(cubin())
    for size in (0, 65537):
        with pytest.raises(PatchError, match="smaller size"):
            add_constant(made, "ikp_buffer", size)
    add_constant(made, "ikp_buffer", 16)
    with pytest.raises(PatchError, match="already"):
        add_constant(made, "ikp_buffer", 16)


@pytest.mark.parametrize("chip", CHIPS)
def test_registers(chip: str) -> None:
    made = Cubin.read(cubin(chip))
    had = made.kernel("loop").registers
    set_registers(made, "loop", had + 9)
    again = Cubin.read(made.write())
    assert again.kernel("loop").registers == had + 9
    others = {name: each.registers for name, each in again.kernels.items() if name != "loop"}
    plain = Cubin.read(cubin(chip)).kernels
    assert others == {name: plain[name].registers for name in others}
    low = again.kernel("loop").text.info >> 24
    assert low == (had + 9 if chip == "sm_80" else 0)
    assert again.kernel("loop").text.info & 0xFFFFFF == again.kernel("loop").symbol


def test_registers_that_cannot_be_had_are_refused() -> None:
    ptx = PTX.replace(
        ".entry loop(.param .u64 p, .param .u32 n)",
        ".entry loop(.param .u64 p, .param .u32 n) .reqntid 1024",
    )
    made = Cubin.read(cubin("sm_90a", ptx))
    for count in (made.kernel("loop").registers - 1, 65):
        with pytest.raises(PatchError, match="up to 1024 threads"):
            set_registers(made, "loop", count)
    set_registers(made, "loop", 64)
    with pytest.raises(PatchError, match="at most 255"):
        set_registers(made, "calls", 256)
