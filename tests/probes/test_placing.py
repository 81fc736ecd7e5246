"""Where records are side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ikp.core.abi import Language
from ikp.probes.code.reserved_registers import Cell
from ikp.probes.placement.instrumentation import Instrumenter
from ikp.probes.placement.register_choice import frame
from ikp.probes.points.probe_points import Level, ProbeRegions
from tests.sass.test_room import room

pytestmark = pytest.mark.any_pins

LOADS = [(f"LDG.E R{20 + n}, desc[UR4][R2.64]", n, None, 0) for n in range(6)]


@pytest.mark.parametrize("between", [0, 1])
def test_a_record_shares_no_scoreboard_with_a_wait_that_has_a_range(between: int) -> None:
    """It would wait for the loads itself, before that range begins."""
    others = [("NOP", None, None, 0)] * between
    waits = ("IADD3 R6, R20, R21, R22", None, None, 0b111111)
    made = replace(room(*LOADS, *others, waits, ("EXIT", None, None, 0)), registers=64)
    kept = frame(made, None, Cell(3, 0))
    assert kept
    instrumenter = Instrumenter(made, kept, ProbeRegions(made.liveness.flow).at(Level.OPS))
    instrumenter.insertions("k", Language.OTHER)
    assert instrumenter.names == ["k", "wait for load"]
    assert instrumenter.notes == ["load x6 is not recorded: no scoreboard is free there."]


def test_a_store_is_waited_for_before_what_stands_before_an_exit() -> None:
    """The EXIT itself would wait for it, behind what is put there."""
    load = ("LDG.E R20, desc[UR4][R2.64]", 0, None, 0)
    waits = ("IADD3 R6, R20, R20, RZ", None, None, 1)
    leave = ("@P0 EXIT", None, None, 0b111111)
    made = replace(room(load, waits, leave, ("EXIT", None, None, 0)), registers=64)
    kept = frame(made, None, Cell(3, 0))
    assert kept
    instrumenter = Instrumenter(made, kept, ProbeRegions(made.liveness.flow).at(Level.OPS))
    put = instrumenter.insertions("k", Language.OTHER)
    assert "wait for load" in instrumenter.names
    *_, store = (word for each in put if each.index == 1 for word in each.words if _stores(word))
    first, *_ = next(each.words for each in put if each.index == 2)
    assert first >> 116 >> (store >> 113 & 7) & 1


def _stores(word: int) -> bool:
    return word & 0xFFF == 0x986
