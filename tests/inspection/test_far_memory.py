"""Memory that is not the device's: from a launch's pointers to the accesses that go there."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from ikp.backends import checked
from ikp.inspection import facts_of_trace
from ikp.inspection._accesses import Accesses
from ikp.inspection._work import Often
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.lane_state import Shape
from tests.sass.texts import sass

pytestmark = pytest.mark.any_pins

HOST, DEVICE, SIZE = 0x7F00_0000_0000, 0x7F80_0000_0000, 1 << 20


def test_parameters_that_point_to_memory_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def whose(pointer: int) -> tuple[str, int, int] | None:
        asked.append(pointer)
        return ("host", HOST, SIZE) if HOST <= pointer < HOST + SIZE else None

    monkeypatch.setattr(checked.cuda_memory, "far_memory", whose)
    values = [struct.pack("<Q", each) for each in (HOST + 64, DEVICE, 0)]
    values.append(struct.pack("<I", 7))
    text = json.dumps({str(8 * at): value.hex() for at, value in enumerate(values)})
    assert json.loads(checked._far_memory(text)) == {"0": ["host", HOST, SIZE]}
    assert asked == [HOST + 64, DEVICE], "no zero, and no number of four bytes"


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"0": 1}', '{"0": ["host", "x", 1]}'])
def test_no_memory_is_far_without_a_text_that_says_so(text: str | None) -> None:
    assert facts_of_trace._far(text) == ()


def depends(pointer: int, far: Any) -> str:
    """Return what the address of a load depends on, from a parameter's pointer."""
    flow = Flow(
        sass(
            *("S2R R0, SR_TID.X", "MOV R4, c[0x0][0x210]", "MOV R5, c[0x0][0x214]"),
            *("IMAD.WIDE.U32 R2, R0, 0x4, R4", "LDG.E R6, desc[UR4][R2.64]", "EXIT"),
        )
    )
    shape = Shape((128, 1, 1), (8, 1, 1), 4, 8, far=far)
    known = {0x210: pointer & 0xFFFF_FFFF, 0x214: pointer >> 32}
    (one,) = Accesses(flow, shape, 0x210, known).of({4: Often(1.0)})
    return one.depends


def behind_an_index(pointer: int, index: int, far: Any) -> str:
    """Return the same of a load whose index another one brings, from memory of the device."""
    words = [f"MOV R{at}, c[0x0][{0x210 + 4 * at - 16:#x}]" for at in range(4, 8)]
    flow = Flow(
        sass(
            *(*words, "LDG.E R2, desc[UR4][R6.64]", "IMAD.WIDE R8, R2, 0x4, R4"),
            *("LDG.E R9, desc[UR4][R8.64]", "EXIT"),
        )
    )
    both = [pointer & 0xFFFF_FFFF, pointer >> 32, index & 0xFFFF_FFFF, index >> 32]
    known = {0x210 + 4 * at: word for at, word in enumerate(both)}
    shape = Shape((128, 1, 1), (8, 1, 1), 4, 8, far=far)
    (one,) = Accesses(flow, shape, 0x210, known).of({6: Often(1.0)})
    return one.depends


def test_an_element_that_data_choose_is_of_the_memory_that_its_pointer_is_of() -> None:
    far = facts_of_trace._far(json.dumps({"0": ["host", HOST, SIZE]}))
    assert {*behind_an_index(HOST + 64, DEVICE, far)} >= {"d", "h"}
    assert "h" not in behind_an_index(DEVICE, DEVICE, far)
    assert "h" not in behind_an_index(DEVICE, HOST + 64, far), "the index is there, not this"


def test_accesses_to_it_have_a_letter() -> None:
    far = facts_of_trace._far(json.dumps({"0": ["host", HOST, SIZE]}))
    assert "h" in depends(HOST + 64, far)
    assert "h" not in depends(DEVICE, far) and "h" not in depends(HOST + 64, ())
