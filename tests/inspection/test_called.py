"""Functions within a kernel's code: as often as they are called, and at the line of their call."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ikp.inspection._called import Called, with_lines_of_calls
from ikp.inspection._work import Often
from ikp.sass.control_flow.flow import Flow
from ikp.sass.disassembly.listing import Code, Instruction, Line
from tests.sass.texts import sass

pytestmark = pytest.mark.any_pins

POWER = "$k$__internal_accurate_pow"
SLOW = "$__internal_0_$__cuda_sm20_div_rn_f64_full"


def calling(name: str) -> Code:
    """Return a kernel that calls a function twice; the function has two ways to its end."""
    return sass(
        "MOV R4, 0x10",
        f"CALL.REL.NOINC `({name})",
        "MOV R4, 0x20",
        f"CALL.REL.NOINC `({name})",
        "EXIT",
        f"{name}:",
        "DFMA R8, R8, R8, R8",
        "@P0 BRA `(.L_x_9)",
        "DADD R8, R8, 1",
        ".L_x_9:",
        "RET.REL.NODEC R4 `(k)",
    )


def lined(code: Code) -> Code:
    """Return code whose lines count up."""
    made = (
        Instruction(one.address, one.guard, one.opcode, one.rest, (Line("/src/k.cu", at),))
        for at, one in enumerate(code.instructions)
    )
    return replace(code, instructions=tuple(made))


def test_a_function_runs_as_often_as_it_is_called() -> None:
    called = Called(Flow(calling(POWER)))
    found = called.with_functions({at: Often(3.0) for at in range(5)})
    assert called.inside == {5, 6, 7, 8}
    assert found[5] == Often(6.0) and found[8] == Often(6.0)
    assert found[7] == Often(6.0, maybe=True), "one way passes it by"
    assert found[1] == Often(3.0)


def test_a_slow_path_hardly_runs() -> None:
    found = Called(Flow(calling(SLOW))).with_functions({at: Often(3.0) for at in range(5)})
    assert not found[5].expected


@pytest.mark.parametrize(("name", "line"), [(POWER, 1), ("helper", 5)])
def test_a_function_of_the_library_has_the_line_of_its_call(name: str, line: int) -> None:
    """A function of the source has lines of its own."""
    code = with_lines_of_calls(lined(calling(name)))
    assert code.instructions[5].lines == (Line("/src/k.cu", line),)
