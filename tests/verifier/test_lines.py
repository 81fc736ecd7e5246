"""What verifying costs: lines of Python, counted, for each instruction that is left as it was."""

from __future__ import annotations

import pytest

from ikp.probes.patch import patch
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.dataflow.reading import code_of
from ikp.sass.disassembly.effects import effects
from ikp.verifier.verify import verify
from tests.growth import lines
from tests.sass.assembled import cubin

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

_FEW, _MANY, _MOST = 200, 1200, 45
_KERNEL = """.visible .entry k(.param .u64 p) .reqntid 128 {{
.reg .u64 %a; .reg .f32 %f<3>; ld.param.u64 %a, [p];
ld.global.f32 %f1, [%a]; ld.global.f32 %f2, [%a+4];
{body} st.global.f32 [%a], %f1; ret; }}
"""


def _counted(steps: int) -> tuple[int, int]:
    """Return the instructions of a kernel of so many products, and the lines that verify it."""
    plain = cubin(_KERNEL.format(body="fma.rn.f32 %f1, %f1, %f2, %f1;\n" * steps), "sm_90a")
    made = patch(plain, "k", detail="kernel")
    code = code_of(plain, Cubin.read(plain), "k")
    declared = made.declared
    assert declared is not None
    assert all(effects(each) for each in code.instructions)  # as the patcher has asked
    found = lines(lambda: verify(plain, made.cubin, code, declared))
    return len(code.instructions), sum(found.values())


def test_an_instruction_that_is_left_as_it_was_costs_few_lines() -> None:
    few, many = _counted(_FEW), _counted(_MANY)
    assert (many[1] - few[1]) / (many[0] - few[0]) < _MOST
