"""What is kept throughout, where uniform registers are used up."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from ikp.core import abi
from ikp.errors import PatchError
from ikp.probes.code import reserved_registers
from ikp.probes.code.reserved_registers import FIRST, LENT, Cell, Frame
from ikp.probes.patch import patch
from ikp.probes.placement import register_choice
from ikp.probes.placement.register_choice import frame
from ikp.sass.assembly import forms
from ikp.sass.assembly.chips import CHIPS
from ikp.sass.dataflow.free_registers import FreeRegisters
from ikp.sass.disassembly.effects import UR, R
from tests.probes.test_sequences import launch, loaded
from tests.sass.compiled import code, machine
from tests.sass.hazards import hazards
from tests.sass.readback import code_of
from tests.sass.test_room import room

pytestmark = pytest.mark.any_pins

LOADS = ("ULDC.64 UR4, c[0x0][0x208]", None, None, 0)
LEA = re.compile(r"LEA R(\d+), R(\d+), R(\d+), (0x\w+)")
LEAVES = ("EXIT", None, None, 0)


def names(*uniform: int):
    """Return instructions that name uniform registers."""
    return [(f"UIADD3 UR{each}, UR{each}, 0x1, URZ", None, None, 0) for each in uniform]


def full(*left: int) -> FreeRegisters:
    """Return a kernel that names all uniform registers but some, and R0 to R9."""
    used = [each for each in range(6, 63) if each not in left]
    own = [(f"MOV R{each}, R{each}", None, None, 0) for each in range(10)]
    made = room(LOADS, *names(*used), *own, LEAVES)
    return replace(made, registers=16)


def test_where_enough_are_left_nothing_else_is_taken() -> None:
    made = full(20, 21, 30, 31, 32, 33, 34)
    assert frame(made, None, Cell(3, 0)) == Frame(20, 30, 31, 32, 34, 33)


def test_the_kernel_s_own_pair_is_shared() -> None:
    made = full(20, 30, 32, 34, 36)
    assert frame(made, None, Cell(3, 0)) == Frame(4, 20, 30, 32, 36, 34)


@pytest.mark.parametrize("half", [4, 5])
def test_a_pair_of_which_either_half_is_written_is_not_shared(half: int) -> None:
    other = room(LOADS, *names(half, *range(6, 63)), LEAVES)
    assert register_choice._descriptors(other, register_choice.HOPPER) == []


def test_what_never_changes_may_be_in_threads_registers() -> None:
    made = full(30, 33)
    kept = frame(made, None, Cell(3, 0))
    assert kept == Frame(4, 33, FIRST, FIRST + 1, 30, FIRST + 2, own=(13, 14, 15))
    assert not made.free[:, [R.first + 13, R.first + 14, R.first + 15]].any()
    assert frame(replace(full(30, 33), registers=11), None, Cell(3, 0)) is None


def test_the_count_is_each_thread_s_where_no_uniform_register_is_left() -> None:
    kept = frame(full(), None, Cell(3, 0))
    numbers = (FIRST, FIRST + 1, FIRST + 2, FIRST + 4, FIRST + 3)
    assert kept == Frame(4, *numbers, own=(11, 12, 13, 14, 15))
    assert frame(replace(full(), registers=14), None, Cell(3, 0)) is None


def test_records_are_lent_a_pair_where_the_kernel_keeps_none() -> None:
    own = [(f"MOV R{each}, R{each}", None, None, 0) for each in range(10)]
    used = [each for each in range(4, 63) if each != 30]
    made = replace(room(*names(*used), *own, LEAVES), registers=16)
    kept = frame(made, None, Cell(3, 0))
    assert kept == Frame(LENT, FIRST, FIRST + 1, FIRST + 2, 30, FIRST + 3, own=(12, 13, 14, 15))
    single = replace(room(*names(*range(4, 53)), LEAVES), registers=16)
    single.__dict__["unused_uniform"] = (53, 55, 57, 59, 61)
    assert frame(single, None, Cell(3, 0)) == Frame(LENT, 55, 57, 59, 53, 61)


def test_each_instruction_reads_a_thread_s_register_instead() -> None:
    f, own = reserved_registers, (12, 13)
    plain = [
        forms.to_uniform(FIRST, 7),
        forms.from_uniform(3, FIRST + 1),
        forms.below(2, 5, FIRST, where=1).when(3),
        forms.scaled(3, 5, FIRST + 1, 4).after(2),
        forms.add_uniform(20, 20, 1),
    ]
    made = f.fitted_to_threads(plain, own)
    assert made[:2] == [forms.copy(12, 7), forms.copy(3, 13)]
    assert made[2].reads == {("R", 5), ("R", 12), ("P", 1), ("P", 3)} and made[2].guard == 3
    assert (made[2].low, made[2].high) == (
        forms.below_other(2, 5, 12).low,
        forms.below_other(2, 5, 12).high & ~(7 << 23) | 1 << 23,
    )
    assert made[3].waits == 2 and made[4] == plain[4]
    counts = [forms.copy_uniform(FIRST, forms.URZ), forms.add_uniform(FIRST, FIRST, 1)]
    assert f.fitted_to_threads(counts, own) == [forms.immediate(12, 0), forms.add(12, 12, 1)]
    assert f.fitted_to_threads(plain[:0], own) == []


@pytest.mark.compiled
def test_these_are_what_the_assembler_writes() -> None:
    found = 0
    for name in ("matmul", "attention", "gathered"):
        for each in machine(name).flow.code.instructions:
            if made := LEA.fullmatch(each.text):
                into, source, other, bits = (int(number, 0) for number in made.groups())
                (step,) = reserved_registers.fitted_to_threads(
                    [forms.scaled(into, source, FIRST, bits)], (other,)
                )
                low, high = each.word
                assert (step.low & ~0xF000, step.high) == (low & ~0xF000, high & (1 << 41) - 1)
                found += 1
    assert found > 3


@pytest.mark.parametrize(("warps", "block"), [(None, (40, 2, 1)), (3, (96, 1, 1))])
@pytest.mark.parametrize("count", [45, FIRST + 4])
@pytest.mark.parametrize("chip", [c for c in CHIPS if not c.late], ids=lambda chip: chip.name)
def test_records_are_the_same(chip, count, warps, block, monkeypatch) -> None:
    own = (59, 60, 61, 62, 63)
    numbers = (FIRST, FIRST + 1, FIRST + 2, count, FIRST + 3)
    kept = Frame(40, *numbers, cell=Cell(3, 16), warps=warps, own=own)
    fitted = type(chip).fitted
    monkeypatch.setattr(
        type(chip),
        "fitted",
        lambda self, steps: fitted(self, reserved_registers.fitted_to_threads(steps, own)),
    )
    size = abi.segment_bytes(12, 8)
    data, _, _ = launch(kept, (2, 1, 2), block, size, 2, chip=chip)
    trace = loaded(data)
    assert (trace.launches[0].grid, trace.launches[0].dropped) == ((2, 1, 2), 0)
    names = Counter(trace.regions[i].name for i in trace.events.region)
    assert names == {"inner": 24, "outer": 12, "whole": 12}


@pytest.mark.compiled
@pytest.mark.parametrize("name", ["matmul", "gathered"])
def test_a_whole_kernel(name: str, monkeypatch) -> None:
    made = code(name).compiled
    plain = patch(made.asm["cubin"], made.name, detail="ops", ptx=made.asm["ptx"])
    monkeypatch.setattr(FreeRegisters, "unused_uniform", (61,))
    ours = patch(made.asm["cubin"], made.name, detail="ops", ptx=made.asm["ptx"])
    assert ours.names == plain.names
    before, after = (code_of(each, made.name) for each in (made.asm["cubin"], ours.cubin))
    assert hazards(after) == hazards(before)
    uniform = [after.liveness.used & UR.all for after in map(FreeRegisters, (before, after))]
    assert uniform[1] & ~uniform[0] == 1 << UR.first + 61
    monkeypatch.setattr(FreeRegisters, "unused_uniform", ())
    monkeypatch.setattr(FreeRegisters, "unused_own", ())
    with pytest.raises(PatchError, match="all its uniform registers but 0"):
        patch(made.asm["cubin"], made.name, detail="ops", ptx=made.asm["ptx"])


@pytest.mark.compiled
def test_where_even_threads_have_too_few_they_get_more(monkeypatch) -> None:
    made, tried = code("matmul").compiled, list[int]()

    def own(room: FreeRegisters) -> tuple[int, ...]:
        tried.append(room.registers)
        return () if room.registers == tried[0] else tuple(range(tried[0], room.registers))

    monkeypatch.setattr(FreeRegisters, "unused_uniform", ())
    monkeypatch.setattr(FreeRegisters, "unused_own", property(own))
    ours = patch(made.asm["cubin"], made.name, detail="ops", ptx=made.asm["ptx"], untested=True)
    assert ours.registers[1] - 2 == tried[-1] > tried[0]
    assert any("in place of" in note for note in ours.notes)


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize(
    "left",
    [(20, 21, 30, 31, 33), (20, 21, 30), (20, 21), (20, 22), (20, 30, 32, 34, 36), (20,), ()],
)
def test_no_register_of_a_frame_has_two_purposes(
    left: tuple[int, ...], shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shares:
        monkeypatch.setattr(register_choice, "_descriptors", lambda *_: [])
    made = frame(full(*left), None, Cell(3, 0))
    if made is None:
        return
    own = [made.records, made.high, made.room, made.count, made.header, *made.entered]
    pair = [] if made.lends else [made.descriptor, made.descriptor + 1]
    assert len({*own, *pair}) == len(own) + len(pair)
    assert {each for each in own if each < FIRST} <= {*left}
    assert [each - FIRST for each in sorted(own) if each >= FIRST] == [*range(len(made.own))]
