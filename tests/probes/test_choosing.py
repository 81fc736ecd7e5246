"""What a record is made with, where much is free and where little is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ikp.probes.code.reserved_registers import Scratch, Shared
from ikp.probes.placement.scratch_registers import Latest, ScratchChooser, used
from ikp.sass.dataflow.free_registers import FreeRegisters
from tests.sass.test_room import room
from tests.sass.texts import names

pytestmark = pytest.mark.any_pins

WAITS = ("NOP", None, None, 1 << 2)
LEAVES = ("EXIT", None, None, 0)
STORES = "STG.E.128 desc[UR4][R{}.64], R{}"


def chooser(made: FreeRegisters, *ours: int) -> ScratchChooser:
    """Return one that takes all ways there are."""
    return ScratchChooser(made, frozenset(ours))


def chosen(registers: int, *lines, ours=frozenset(), alone=True) -> Scratch | str:
    """Return what a record before the first instruction is made with."""
    made = replace(room(*lines), registers=registers)
    return chooser(made, *ours).for_record(0, alone)


def test_a_record_is_in_a_row_if_there_is_one() -> None:
    made = chosen(12, LEAVES)
    assert isinstance(made, Scratch) and made.in_a_row and made.saved is None
    assert names(used(made)) == ["R6", "R7", "R8", "R9", "R10", "R11"]


def test_a_store_of_a_row_reads_nothing_that_a_load_has_yet_to_write() -> None:
    """It takes four registers, and the last of them is free for no record."""
    loads = [(f"LDG.E R{n}, desc[UR4][R2.64]", 0, None, 0) for n in (7, 11)]
    one, two = (
        chooser(replace(room(*some, LEAVES), registers=12)).for_record(len(some), alone=True)
        for some in (loads[1:], loads)
    )
    assert isinstance(one, Scratch) and one.in_a_row and one.first == 4
    assert isinstance(two, Scratch) and not two.in_a_row
    read = room(("STG.E desc[UR4][R2.64], R11", None, 0, 0), LEAVES)
    assert read.flight.late(1) >> 11 & 1 and not read.flight.late(0)


def test_words_that_happen_to_be_in_a_row_are_none_either() -> None:
    later = ("STG.E desc[UR4][R2.64], RZ", None, None, 0)
    for load, row in ((7, False), (8, True)):
        lines = (f"LDG.E R{load}, desc[UR4][R2.64]", 0, None, 0), later, LEAVES
        made = replace(room(*lines), registers=7)
        found = ScratchChooser(made, frozenset(), near=True).for_record(1, alone=True)
        assert isinstance(found, Scratch) and found.in_a_row == row, found


@pytest.mark.parametrize(
    ("registers", "pieces"),
    [(8, False), (6, False), (5, True), (4, True)],  # R1 is the stack's
)
def test_with_few_registers_words_come_one_after_another(registers: int, pieces: bool) -> None:
    made = chosen(registers, LEAVES)
    assert isinstance(made, Scratch) and made.piecemeal == pieces
    assert chosen(3, LEAVES) == "only 2 registers are"
    odd = [(f"STG.E desc[UR4][R20.64], R{n}", None, None, 0) for n in (3, 5, 7, 9, 11)]
    assert chosen(12, *odd, LEAVES) == "no two registers in a row are"


def all_taken(*last):
    """Return code before which every scoreboard is taken, and a place in it."""
    takes = [(f"LDG.E R{20 + n}, desc[UR4][R2.64]", n, None, 0) for n in range(6)]
    return room(*takes, ("NOP", None, None, 0), *last)


def test_a_scoreboard_may_be_one_that_the_kernel_waits_for() -> None:
    made = replace(all_taken(WAITS, LEAVES), registers=18)
    found = chooser(made).for_record(6, alone=True)
    assert isinstance(found, Scratch) and found.scoreboard == 2
    assert chooser(made).for_record(6, alone=False) == "no scoreboard is"
    assert chooser(made, 7).for_record(6, alone=True) == "no scoreboard is"
    other = replace(all_taken(LEAVES), registers=18)
    assert chooser(other).for_record(6, alone=True) == "no scoreboard is"


@pytest.mark.parametrize(
    "gives",
    [
        ("WARPGROUP.ARRIVE", "HGMMA.64x8x16.F32 R24, gdesc[UR8], RZ, !UPT, gsb0"),
        ("USETMAXREG.DEALLOC.CTAPOOL 0x18",),
    ],
)
def test_registers_that_a_warp_gives_away_are_others_from_there_on(gives: tuple[str, ...]) -> None:
    made = room(*[(line, None, None, 0) for line in ("NOP", *gives)], LEAVES)
    needed = [chooser(made).needs(at, 1 << 24) for at in (0, 1)]
    assert needed == [False, True] and not chooser(made).needs(1, 1 << 23)


def test_where_no_predicate_is_free_one_is_saved() -> None:
    needs = [(f"@P{n} MOV R20, R2", None, None, 0) for n in range(7)]
    made = chosen(16, *needs, LEAVES)
    assert isinstance(made, Scratch) and made.saved is not None
    assert f"R{made.saved}" not in names(used(made))
    late = [("ISETP.NE.AND P6, PT, R2, RZ, PT", None, None, 0), *needs, LEAVES]
    found = chooser(replace(room(*late), registers=16)).for_record(1, alone=True)
    assert isinstance(found, Scratch) and found.predicate == 5  # P6 is only just on its way


def test_what_is_lacking_beside_a_predicate_is_told() -> None:
    """One of flash-linear-attention's had 36 registers to save one in, and no scoreboard."""
    takes = [(f"LDG.E R{20 + n}, desc[UR4][R2.64]", n, None, 0) for n in range(6)]
    needs = [(f"@P{n} MOV R30, R2", None, None, 0) for n in range(7)]
    made = replace(room(*takes, *needs, LEAVES), registers=18)
    assert chooser(made).for_record(6, alone=True) == "no scoreboard is"


def test_a_batch_has_no_record_that_costs_more_than_it_would_alone() -> None:
    """Its address is in what the batch shares: no row is left beside that."""
    made = replace(room(LEAVES), registers=8)
    alone = chooser(made).for_record(0, alone=True)
    assert isinstance(alone, Scratch) and alone.in_a_row
    assert chooser(made).for_member(0, Shared(4, 0), Latest()) is None
    beside = chooser(made).for_member(0, Shared(2, 0), Latest())
    assert beside is not None and beside.in_a_row and beside.address == 2


def test_a_predicate_is_found_behind_the_last_instruction_too() -> None:
    """Where a jump's edge leads to the code's end."""
    needs = [(f"@P{n} MOV R20, R2", None, None, 0) for n in range(7)]
    made = chooser(replace(room(*needs, LEAVES), registers=16))
    assert made.guard(0) == (6, True)
    assert made.guard(len(needs)) == made.guard(len(needs) + 1) == made.guard(len(needs) + 9)
