"""What the facts of machine code cost grows with the code, no faster: lines of Python, counted."""

from __future__ import annotations

import json

import pytest

from ikp.inspection.summary_of_code import code_facts
from ikp.plugins import Image
from ikp.probes.kept_code import MACHINE_MARK
from ikp.probes.patch import patch
from ikp.sass.disassembly.tools import assemble
from tests.growth import lines
from tests.sass.compiled import KERNEL

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

_FEW, _TIMES = 12, 6
_HEAD = """.reg .b64 %a<3>; .reg .f32 %f<4>; .reg .b32 %n<2>; .reg .pred %q, %r;
ld.param.u64 %a0, [p]; cvta.to.global.u64 %a1, %a0; mov.f32 %f1, 0f00000000; mov.u32 %n1, 0;
again: .pragma "nounroll";
"""
_END = "add.u32 %n1, %n1, 1; setp.lt.u32 %q, %n1, 100; @%q bra again; ret;"
_STRAIGHT = """ld.volatile.global.f32 %f0, [%a1+{at}]; add.f32 %f1, %f1, %f0;
st.volatile.global.f32 [%a1+{at}], %f1; bar.sync 0;
"""
_BRANCHES = """ld.volatile.global.f32 %f0, [%a1+{at}]; setp.gt.f32 %r, %f0, %f1; @%r bra over{at};
add.f32 %f1, %f1, %f0; st.volatile.global.f32 [%a1+{at}], %f1; over{at}:
bar.sync 0;
"""


def _image(step: str, steps: int) -> Image:
    """Patch a loop of so many loads, barriers and stores, each a range."""
    body = _HEAD + "".join(step.format(at=4 * each) for each in range(steps)) + _END
    head = ".version 8.0\n.target sm_90a\n.address_size 64\n"
    made = patch(assemble(head + KERNEL.format(body=body), "a test"), "k", detail="ops")
    said = {"names": made.names, "ours": made.ours, "plain": made.plain}
    return Image(made.cubin, f"{MACHINE_MARK} {json.dumps(said)}\n", "")


@pytest.mark.parametrize("step", [_STRAIGHT, _BRANCHES], ids=["straight", "branches"])
def test_facts_grow_with_the_code(step: str) -> None:
    small, large = _image(step, _FEW), _image(step, _FEW * _TIMES)
    few, many = (lines(lambda each=each: code_facts(each)) for each in (small, large))
    worst = {where: (few[where], n) for where, n in many.items() if n > 500}
    faster = {where: n for where, n in worst.items() if n[1] > 1.5 * _TIMES * max(n[0], 50)}
    assert not faster
