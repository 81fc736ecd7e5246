"""Which instructions of a range are of the lines in its name, by calls that the PTX alone knows."""

from __future__ import annotations

import pytest

from ikp.inspection._holding import Holding
from ikp.inspection._record import Record, Span
from ikp.sass.control_flow.flow import Flow
from tests.sass.texts import sass

pytestmark = pytest.mark.any_pins

PTX = """\
.file 1 "/x/kernel.py"
.file 2 "/x/helper.py"
.visible .entry k(
)
{
.loc 2 5 0 // helper.py:5:9 @[ kernel.py:63:4 ]
.loc 2 5 0 // helper.py:5:9 @[ kernel.py:66:4 ]
}
"""
CODE = (
    '\t//## File "/x/helper.py", line 5',
    "LDG.E R4, desc[UR4][R2.64]",
    '\t//## File "/x/kernel.py", line 70',
    "LDG.E R5, desc[UR4][R2.64]",
    "EXIT",
)
"""A load in a function that is called twice: the machine code does not say from where."""


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("load @kernel.py:66", (0,)),
        ("load @kernel.py:63", (0,)),
        ("load @helper.py:5", (0,)),
        ("load @kernel.py:70", (1,)),
        ("load @kernel.py:64", ()),
    ],
)
def test_a_function_called_twice_is_of_the_lines_of_both_calls(
    name: str, own: tuple[int, ...]
) -> None:
    holding = Holding(Flow(sass(*CODE)), PTX, ours=())
    held = holding.of(name, Record((2,), 0, (Span(0, 1, (0, 1)),)))
    assert held is not None and held.own == own
    assert held.others == tuple(at for at in (0, 1) if at not in own)
