"""What it takes to patch a kernel grows with its code, no faster."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType

import pytest

from ikp.probes.patch import patch
from ikp.sass.disassembly.form_texts import texts_of
from ikp.sass.disassembly.tools import assemble
from tests.sass.compiled import KERNEL

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

_FEW, _TIMES = 30, 8
_HEAD = """.reg .b64 %a<3>; .reg .f32 %f<4>; .reg .b32 %n<2>; .reg .pred %q;
ld.param.u64 %a0, [p]; cvta.to.global.u64 %a1, %a0; mov.f32 %f1, 0f00000000; mov.u32 %n1, 0;
again:
"""
_STEP = """ld.volatile.global.f32 %f0, [%a1+{at}]; add.f32 %f1, %f1, %f0;
st.volatile.global.f32 [%a1+{at}], %f1; bar.sync 0;
"""
_END = "add.u32 %n1, %n1, 1; setp.lt.u32 %q, %n1, 100; @%q bra again; ret;"


def cubin(steps: int) -> bytes:
    """Assemble a loop of so many loads, barriers and stores."""
    body = _HEAD + "".join(_STEP.format(at=4 * each) for each in range(steps)) + _END
    head = ".version 8.0\n.target sm_90a\n.address_size 64\n"
    return assemble(head + KERNEL.format(body=body), "a test")


def _calls(cubin: bytes, block: tuple[int, int, int] | None) -> Counter[tuple[str, int]]:
    """Return how often each function and generator of ikp runs, or goes on, by its first line."""
    found: Counter[tuple[str, int]] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            found[frame.f_code.co_filename, frame.f_lineno] += 1

    texts_of.cache_clear()  # else texts of words that other tests have read cost nothing
    texts_of(90)
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        patch(cubin, "k", detail="ops", block=block)
    finally:
        sys.setprofile(before)
    return found


def test_it_grows_with_the_code() -> None:
    """Records are stored at once where the block is known, and in batches where it is not."""
    small, large = cubin(_FEW), cubin(_FEW * _TIMES)
    for block in ((128, 1, 1), None):
        few, many = _calls(small, block), _calls(large, block)
        worst = {where: (few[where], n) for where, n in many.items() if n > 1_000}
        faster = {where: n for where, n in worst.items() if n[1] > 1.5 * _TIMES * max(n[0], 100)}
        assert not faster
