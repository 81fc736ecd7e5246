"""A copy of a module shares the plain one's memory, and one of its functions is read alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from ikp.errors import PatchError
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.cubins.module_memory import _settle, constants, shared, variables
from ikp.sass.disassembly.listing import parse
from ikp.sass.disassembly.tool_paths import tool
from ikp.sass.disassembly.tools import disassemble
from tests.sass.assembled import cubin

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

PTX = """
.global .align 4 .b32 counter;
.global .align 4 .b32 other;
.global .align 1 .b8 $str[5] = {102, 105, 120, 101, 100};
.global .align 1 .b8 __unnamed_1[5] = {111, 119, 110, 101, 114};
.const .align 16 .b8 scale[32];
.visible .entry counts(.param .u64 p)
{
 .reg .u64 a; .reg .u32 t, u; .reg .f32 f;
 ld.param.u64 a, [p]; mov.u64 a, counter; atom.global.add.u32 t, [a], 1;
 ld.const.f32 f, [scale+16]; st.global.f32 [a+4], f; ret;
}
.visible .entry looks(.param .u64 p)
{
 .reg .u64 a, b; .reg .u32 t;
 ld.param.u64 a, [p]; mov.u64 b, other; ld.global.u32 t, [b]; st.global.u32 [a], t; ret;
}
"""
PLACE = 0x7F0012345678


def test_a_kernel_refers_to_the_plain_modules_variables() -> None:
    plain = cubin(PTX, "sm_90a")
    asked: list[str] = []

    def find(name: str) -> int:
        asked.append(name)
        return PLACE

    made = Cubin.read(shared(plain, "counts", find))
    assert "counter" in asked
    before = Cubin.read(plain)
    bank = next(each for each in made.elf.sections if each.name.startswith(".nv.constant4"))
    assert PLACE.to_bytes(8, "little") in bank.data
    names = before.elf.symbol_names()
    left = {names[n] for _, table in made.elf.relocations() for n in table["symbol"]}
    assert "counter" not in left
    assert made.kernels.keys() == before.kernels.keys()


def test_a_variable_that_nobody_finds_is_refused_in_words() -> None:
    with pytest.raises(PatchError, match=r"memory of its own, (counter|other)"):
        shared(cubin(PTX, "sm_90a"), "counts", lambda _: None)


def test_constants_are_known_by_name_and_size() -> None:
    assert constants(cubin(PTX, "sm_90a")) == [("scale", 32)]


def test_variables_are_known_by_name_and_size_but_no_texts() -> None:
    assert sorted(variables(cubin(PTX, "sm_90a"))) == [("counter", 4), ("other", 4)]


def test_one_function_reads_as_it_does_among_all(tmp_path: Path) -> None:
    data = cubin(PTX, "sm_90a")
    (tmp_path / "k.cubin").write_bytes(data)
    symbol = str(Cubin.read(data).kernel("looks").symbol)
    command = [tool("nvdisasm"), "-c", "-fun", symbol, "-hex", "-gi", tmp_path / "k.cubin"]
    alone = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (code,) = parse(alone)
    among = next(each for each in parse(disassemble(data)) if each.name == "looks")
    assert [i.text for i in code.instructions] == [i.text for i in among.instructions]


ENTRY = np.dtype([("offset", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
WITHOUT = np.dtype([("offset", "<u8"), ("kind", "<u4"), ("symbol", "<u4")])


def settled(kind: int, addend: int | None, before: bytes = bytes(8)) -> bytes:
    """Return eight bytes, at offset 8 of a section, behind a relocation."""
    data = bytearray(bytes(8) + before + bytes(8))
    row = (8, kind, 1) if addend is None else (8, kind, 1, addend)
    entry = np.array([row], WITHOUT if addend is None else ENTRY)[0]
    _settle(data, entry, PLACE, "counter")
    assert data[:8] == data[16:] == bytes(8)
    return bytes(data[8:16])


def test_a_relocation_writes_the_address_or_one_of_its_halves() -> None:
    whole = (PLACE + 16).to_bytes(8, "little")
    assert settled(2, 16) == settled(2, None, (16).to_bytes(8, "little")) == whole
    assert settled(2, 16, b"overseen") == whole, "with an addend, the bytes don't count"
    assert settled(56, 16, b"kept\0\0\0\0") == b"kept" + whole[:4]
    assert settled(57, 16, b"kept\0\0\0\0") == b"kept" + whole[4:]
    assert settled(57, None, b"kept\0\0\0\0") == b"kept" + PLACE.to_bytes(8, "little")[4:]


@pytest.mark.parametrize(
    ("kind", "addend", "before", "why"),
    [
        (3, 0, bytes(8), "kind 3"),
        (56, None, bytes(7) + b"\1", "form that is not known"),
        (56, None, bytes(4) + b"\1" + bytes(3), "form that is not known"),
        (2, -PLACE - 1, bytes(8), "damaged"),
        (2, None, b"\xff" * 8, "damaged"),
    ],
)
def test_a_relocation_that_is_not_known_or_damaged_is_refused(
    kind: int, addend: int | None, before: bytes, why: str
) -> None:
    with pytest.raises(PatchError, match=why):
        settled(kind, addend, before)


def test_a_relocation_behind_its_sections_end_is_refused() -> None:
    entry = np.array([(1, 2, 1, 0)], ENTRY)[0]
    _settle(bytearray(9), entry, PLACE, "counter")
    with pytest.raises(PatchError, match="behind its section's end"):
        _settle(bytearray(8), entry, PLACE, "counter")


def test_references_in_code_are_settled_for_the_launched_kernel_alone() -> None:
    """Code itself refers to memory where no bank of constants holds the address."""
    file = Cubin.read(cubin(PTX, "sm_90a"))
    text = file.kernel("looks").text
    table = next(
        each
        for each, _ in file.elf.relocations()
        if file.elf.sections[each.info].name.startswith(".nv.constant4")
    )
    table.info = file.elf.sections.index(text)
    moved = file.write()

    def code(name: str) -> bytes:
        made = Cubin.read(shared(moved, name, lambda _: PLACE))
        return made.kernel("looks").text.data

    assert code("counts") == text.data
    assert PLACE.to_bytes(8, "little") in code("looks")
