"""One more parameter of a kernel: as ptxas makes one, or none; and what a kernel reads of it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from ikp.core import abi
from ikp.core.segment import EVERYTHING, Selection
from ikp.probes.code.entry_code import CELL, CELL_BYTES
from ikp.probes.code.reserved_registers import Cell
from ikp.probes.patch import patch
from ikp.sass.assembly.chips import CHIPS, HOPPER, chip_of
from ikp.sass.cubins import attributes
from ikp.sass.cubins.capacity import MOST_PARAMETERS, add_argument
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.cubins.extra_argument import ExtraArgument
from tests.probes.test_loop_exits import NEVER, SEVERAL
from tests.probes.test_sequences import FRAME, NAMES, launch
from tests.probes.test_sequences import loaded as trace_of
from tests.products import one_by_one
from tests.sass import module
from tests.sass.assembled import cubin
from tests.sass.compiled import code
from tests.sass.hazards import hazards
from tests.sass.readback import code_of, codes, read
from tests.sass.test_capacity import loaded, shape
from tests.sass.whole import run

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

AFTER_9 = ".param .u64 p, .param .u8 n"
TMA = ".param .align 64 .b8 p[128], .param .u16 n"
"""Its first parameter is aligned where it stands, so it does not begin at the beginning."""


def base_of(made: Cubin, name: str) -> int:
    return chip_of(made.sm, made.kernel(name), untested=True).parameters


def with_parameter(plain: bytes, name: str, size: int = CELL_BYTES) -> tuple[bytes, ExtraArgument]:
    made = Cubin.read(plain)
    argument = add_argument(made, name, size, base_of(made, name))
    assert argument is not None
    info = made.elf.find(f".nv.info.{name}")
    assert info is not None
    info.data = described(made, name)
    return made.write(), argument


def described(made: Cubin, name: str) -> bytes:
    return attributes.write(made.kernel(name).attributes)


@pytest.mark.parametrize(
    ("chip", "given", "size"),
    one_by_one(["sm_90a", "sm_80", "sm_90a old"], [AFTER_9, TMA], [16, 72]),
)
def test_a_parameter_looks_as_one_of_ptxas(chip: str, given: str, size: int) -> None:
    head, n = ".entry loop(.param .u64 p, .param .u32 n)", "ld.param.u32 %r0,[n]"
    own = module.PTX.replace(head, f".entry loop({given})")
    own = own.replace(n, n if "n" not in given else "mov.u32 %r0, 9", 1)
    more = own.replace(given, f"{given}, .param .align 16 .b8 told[{size}]")
    plain, theirs = module.cubin(chip, own), Cubin.read(module.cubin(chip, more))
    ours, argument = with_parameter(plain, "loop", size)
    made = Cubin.read(ours)
    wanted, found = theirs.kernel("loop"), made.kernel("loop")
    assert found.parameters == wanted.parameters
    last = wanted.parameters[-1]
    assert argument == ExtraArgument(2, last.offset, last.size)
    assert found.attributes == wanted.attributes
    bank = ".nv.constant0.loop"
    assert shape(made.elf, bank) == shape(theirs.elf, bank)
    sections = [each.elf.find(bank) for each in (made, theirs)]
    assert sections[0] is not None and sections[1] is not None
    assert sections[0].data == sections[1].data
    assert loaded(made.elf, sections[0]) == loaded(theirs.elf, sections[1])
    before = Cubin.read(plain).kernels
    assert {name: each.text.data for name, each in made.kernels.items()} == {
        name: each.text.data for name, each in before.items()
    }
    others = [
        {n: each.attributes for n, each in file.kernels.items() if n != "loop"}
        for file in (made, Cubin.read(plain))
    ]
    assert others[0] == others[1]


def entry(parameters: str) -> bytes:
    return cubin(f".visible .entry k({parameters}) {{ ret; }}", "sm_90a")


@pytest.mark.parametrize(
    ("parameters", "fits"),
    [
        (".param .align 16 .b8 p[4080]", True),
        (".param .align 16 .b8 p[4081]", False),
        (".param .align 16 .b8 p[24000]", False),  # said in another form
        ("", False),  # nothing says where they would stand
        (", ".join(f".param .u8 p{n}" for n in range(MOST_PARAMETERS)), True),
        (", ".join(f".param .u8 p{n}" for n in range(MOST_PARAMETERS + 1)), False),
    ],
)
def test_there_is_none_where_it_has_no_room(parameters: str, fits: bool) -> None:
    plain = entry(parameters)
    made = Cubin.read(plain)
    argument = add_argument(made, "k", CELL_BYTES, HOPPER.parameters)
    assert (argument is not None) == fits
    if argument is None:
        assert made.write() == plain
        patched = patch(plain, "k", argue=True)
        assert patched.argument is None
        assert CELL in Cubin.read(patched.cubin).elf.symbol_names()
        assert patched == patch(plain, "k")


@pytest.mark.parametrize("wrong", ["size", "bank", "section", "gone", "order", "twice", "function"])
def test_there_is_none_where_a_file_contradicts_itself(wrong: str) -> None:
    made = Cubin.read(entry(AFTER_9))
    kernel = made.kernel("k")
    listed = {each.code: each for each in kernel.attributes}
    bank = made.elf.find(".nv.constant0.k")
    assert bank is not None
    if wrong == "size":
        listed[0x19].value = 16
    elif wrong == "bank":
        listed[0x0A].value = bytes(4) + listed[0x0A].data[4:]
    elif wrong == "section":
        bank.data += bytes(4)
    elif wrong == "gone":
        kernel.attributes.remove(listed[0x17])
    elif wrong == "order":
        listed[0x17].value = listed[0x17].data[:6] + b"\x04" + listed[0x17].data[7:]
    elif wrong == "twice":
        kernel.attributes.append(listed[0x19])
    else:
        kernel.entry = False
    before = described(made, "k"), len(bank.data)
    assert add_argument(made, "k", CELL_BYTES, HOPPER.parameters) is None
    assert (described(made, "k"), len(bank.data)) == before


def test_a_kernel_that_stands_there_twice_gets_none() -> None:
    """On Blackwell, Mercury's form has attributes of its own, which nobody changes."""
    made = Cubin.read(module.cubin("sm_100a"))
    assert add_argument(made, "loop", CELL_BYTES, base_of(made, "loop")) is None


@pytest.mark.parametrize("select", [False, True])
@pytest.mark.parametrize("name", ["rms_norm", "matmul TMA", "gathered", "matmul sm_80"])
def test_the_code_is_the_same_but_for_what_it_reads(name: str, select: bool) -> None:
    compiled = code(name).compiled
    plain, label = compiled.asm["cubin"], compiled.name
    how = {"detail": "ops", "ptx": compiled.asm["ptx"], "untested": True, "select": select}
    by_cell, by_argument = (patch(plain, label, argue=argue, **how) for argue in (False, True))
    argument = by_argument.argument
    assert argument is not None and by_cell.argument is None
    assert CELL not in Cubin.read(by_argument.cubin).elf.symbol_names()
    made = Cubin.read(by_argument.cubin)
    known = made.kernel(label).parameters
    assert (known[-1].ordinal, known[-1].offset) == (argument.ordinal, argument.offset)
    assert known[:-1] == Cubin.read(plain).kernel(label).parameters
    begin = base_of(made, label) + argument.offset
    file = Cubin.read(by_cell.cubin).elf
    at = dict(zip(file.symbol_names(), file.symbols()["value"].tolist(), strict=True))[CELL]

    def told(text: str) -> str:
        return re.sub(
            r"c\[0x3\]\[(R\d+\+)?(0x[0-9a-f]+)\]",
            lambda found: f"c[0x0][{found[1] or ''}{int(found[2], 16) - at + begin:#x}]",
            text.replace("c[0x3][RZ]", "c[0x3][0x0]"),
        )

    old, new = (read(codes(each.cubin)[label]) for each in (by_cell, by_argument))
    assert (
        [told(each.text) for each in old]
        == [each.text for each in new]
        != [each.text for each in old]
    )
    assert len(hazards(code_of(plain, label))) == len(hazards(code_of(by_argument.cubin, label)))
    assert by_argument.ours == by_cell.ours and by_argument.names == by_cell.names


@pytest.mark.parametrize("chosen", [EVERYTHING, Selection(0b10)])
def test_a_whole_kernel_records_where_its_argument_says(chosen: Selection) -> None:
    plain, turns = cubin(SEVERAL, "sm_90a"), [3, NEVER, NEVER, 9]
    some = chosen != EVERYTHING
    by_cell, by_argument = (patch(plain, "k", select=some, argue=argue) for argue in (False, True))
    assert by_argument.argument == ExtraArgument(5, 32, 72 if some else 16)
    made = run(by_argument, "k", 2, turns, chosen)
    assert made == run(by_cell, "k", 2, turns, chosen)
    assert any("iteration" in each for each in made[0][-1])


@pytest.mark.parametrize("offset", [0, 0x20, 0xA0, 0xF80])
@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
def test_on_every_chip_it_is_read_where_that_has_its_parameters(chip, offset: int) -> None:
    """Also on one where that is a place that sm_90 keeps something else at."""
    frame = replace(FRAME, cell=Cell(0, HOPPER.parameters + offset))
    data, *_ = launch(frame, (3, 1, 1), (64, 1, 1), abi.segment_bytes(6, 8), 2, chip=chip)
    trace = trace_of(data)
    assert len(trace.slots) == 6 and trace.slots.finished.all()
    assert sorted({each.name for each in trace.regions}) == sorted(NAMES.values())


SPARE = SEVERAL.replace(".param .u32 q", ".param .u32 q, .param .u64 mine, .param .u64 its")
"""With two addresses behind its own arguments, as Triton's kernels have."""


def test_a_whole_kernel_is_told_by_what_it_never_reads() -> None:
    plain, turns = cubin(SPARE, "sm_90a"), [3, NEVER, NEVER, 9]
    by_cell, told = (patch(plain, "k", detail="ops", spare=spare) for spare in (False, True))
    assert (by_cell.argument, told.argument) == (None, ExtraArgument(5, 24, 16))
    assert Cubin.read(told.cubin).kernel("k").parameters == Cubin.read(plain).kernel("k").parameters
    assert run(told, "k", 2, turns) == run(by_cell, "k", 2, turns)


@pytest.mark.parametrize(
    ("target", "read"),
    one_by_one(
        ["sm_90a", "sm_100a", "sm_120a"],
        [
            "ld.param.u64 s, [mine]; st.global.u64 [a+64], s;",
            "ld.param.u64 s, [its]; st.global.u64 [a+64], s;",
            "ld.param.u32 t, [its+4]; st.global.u32 [a+64], t;",
        ],
    ),
)
def test_what_a_kernel_reads_is_left_to_it(target: str, read: str) -> None:
    first, rest = SPARE.split("L:", 1)
    text = f"{first} .reg .u64 s; .reg .u32 t; {read}\nL:{rest}"
    made = patch(cubin(text, target), "k", spare=True, untested=True)
    other = patch(cubin(SPARE, target), "k", spare=True, untested=True)
    assert (made.argument, other.argument) == (None, ExtraArgument(5, 24, 16))


@pytest.mark.parametrize(
    "given", [".param .u64 p", ".param .u64 p, .param .u64 n, .param .u32 m", TMA]
)
def test_other_parameters_are_no_place_to_tell_it(given: str) -> None:
    text = f".visible .entry k({given}) {{ ret; }}"
    assert patch(cubin(text, "sm_90a"), "k", spare=True).argument is None


def test_there_is_no_room_for_a_choice_of_warps() -> None:
    assert patch(cubin(SPARE, "sm_90a"), "k", spare=True, select=True).argument is None
