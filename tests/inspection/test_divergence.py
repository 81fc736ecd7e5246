"""Code that lanes of a warp run apart: because of their data, and not because they count."""

from __future__ import annotations

import pytest

from ikp.inspection._accesses import Accesses
from ikp.inspection._work import Divergence
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.lane_state import Shape
from tests.sass.texts import sass

pytestmark = pytest.mark.any_pins

BODY = [f"FADD R{20 + n}, R{20 + n}, R9" for n in range(16)]


def apart(step: str, leaves: str, *ahead: str) -> int:
    """Return the instructions run apart of a loop over what each lane begins with."""
    begin = ("S2R R0, SR_TID.X", "MOV R1, R0", "MOV R2, 0x40", *ahead, ".L_x_0:")
    flow = Flow(sass(*begin, *BODY, step, leaves, "@P0 BRA `(.L_x_0)", "EXIT"))
    return len(Divergence(flow, Accesses(flow, Shape(), 0x210).values).apart)


ENDS = "ISETP.LT.AND P0, PT, R1, R2, PT"


def test_lanes_that_count_from_their_index_are_not_apart() -> None:
    """They leave at borders alone: of an image, or of a row."""
    assert apart("IADD3 R1, R1, 0x1, RZ", ENDS) == 0
    assert apart("VIADD R1, R1, 0x1", ENDS, "VIADDMNMX R2, R0, 0x5, R2, PT") == 0


def test_lanes_that_calculate_until_a_number_says_so_are_apart() -> None:
    assert apart("FMUL R1, R1, R1", "FSETP.LT.AND P0, PT, R1, 4, PT") >= len(BODY)


def test_lanes_that_count_to_what_they_loaded_are_apart() -> None:
    assert apart("IADD3 R1, R1, 0x1, RZ", ENDS, "LDG.E R2, desc[UR4][R0.64]") >= len(BODY)
