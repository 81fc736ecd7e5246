"""In PTX, no clock is read between a barrier and its wait."""

from __future__ import annotations

import re

import pytest

from ikp.ptx.record_insertion import held_back
from tests.sass.assembled import assembled

pytestmark = [pytest.mark.any_pins]
HELD = "bar.warp.sync 0xffffffff;"


def body(code: str) -> str:
    return f"""
.visible .entry k(.param .u64 p)
{{
 .reg .u64 a; .reg .u32 r<9>; .reg .pred P;
 ld.param.u64 a, [p];
 setp.eq.u32 P, r0, 0;
{code}
 st.global.u32 [a], r1;
 ret;
}}
"""


@pytest.mark.parametrize(
    ("code", "held"),
    [
        ("bar.sync 0; mov.u32 r1, %clock;", 1),
        ("barrier.sync.aligned 0; add.u32 r1, r1, 1; mov.u32 r1, %clock;", 1),
        ("barrier.sync 0; mov.u32 r1, %clock;", 0),  # threads may reach it one by one
        ("bar.sync 0; ld.global.u32 r1, [a]; mov.u32 r2, %clock;", 0),
        ("bar.sync 0; @P ld.global.u32 r1, [a]; mov.u32 r2, %clock;", 1),
        ("bar.sync 0; ld.param.u64 a, [p]; mov.u32 r2, %clock;", 1),
        ("bar.sync 0;\nL: mov.u32 r1, %clock;", 1),
        ("bar.sync 0; @P bra L; st.global.u32 [a], r1;\nL: mov.u32 r1, %clock;", 1),
        ("bar.sync 0; add.u32 r1, r1, 1; mov.u32 r2, %laneid;", 0),  # the kernel's own store
        ("bar.arrive 0, 64; mov.u32 r1, %clock;", 0),
    ],
)
def test_what_a_clock_may_follow_is_held_back(code: str, held: int) -> None:
    text = body(code)
    made = held_back(text)
    assert len(re.findall(rf"(?:{HELD} )+", made)) == held
    assert re.sub(rf"\n?(@P )?(?:{HELD} )+\n", "\n", made).split() == text.split()


def test_without_a_clock_nothing_is_changed() -> None:
    text = body("bar.sync 0;\nL: add.u32 r1, r1, 1;")
    assert held_back(text) == text


@pytest.mark.compiled
@pytest.mark.parametrize("chip", ["sm_80", "sm_90a", "sm_100a"])
def test_the_assembler_makes_of_it_what_a_barrier_holds_back(chip: str) -> None:
    """Two of them, at least: the first may issue too soon behind the barrier."""
    made = [text for text, _ in assembled(held_back(body("bar.sync 0; mov.u32 r1, %clock;")), chip)]
    barrier = next(at for at, text in enumerate(made) if text.startswith("BAR.SYNC"))
    clock = next(at for at, text in enumerate(made) if "SR_CLOCKLO" in text)
    assert sum(text.startswith("NOP") for text in made[barrier:clock]) >= 2
