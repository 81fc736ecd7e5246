"""No clock that ikp puts into a kernel is read between a barrier and its wait."""

from __future__ import annotations

import re

import pytest

from ikp.probes.patch import patch
from ikp.sass.control_flow.graph import Graph
from ikp.sass.dataflow.free_registers import pending
from tests.sass.assembled import cubin, read
from tests.sass.readback import codes

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

PTX = """
.visible .entry k(.param .u64 p, .param .u32 n) .reqntid 128
{
 .reg .u64 a<4>; .reg .u32 r<12>; .reg .pred P<4>;
 ld.param.u64 a0, [p]; ld.param.u32 r0, [n];
 mov.u32 r1, %tid.x; mul.wide.u32 a1, r1, 4; add.u64 a0, a0, a1; mov.u32 r4, 0; mov.u32 r5, r0;
L:
 .pragma "nounroll";
 ld.global.u32 r2, [a0]; add.u32 r5, r5, r2;
 bar.sync 0;
 add.u32 r4, r4, 1; setp.lt.u32 P1, r4, r0; @P1 bra L;
 bar.sync 1, 128;
 st.global.u32 [a0], r5;
 setp.ne.u32 P2, r5, 0; bar.red.popc.u32 r6, 0, P2;
 st.global.u32 [a0+4], r6;
 bar.sync 0;
 ret;
}
"""
"""Barriers before a branch back to a load, before a store, with a result, and before the end."""
CHIPS = ["sm_80", "sm_90a", "sm_100a"]
_CLOCK = re.compile(r"CS2R.*SR_CLOCKLO")
_MEMORY = re.compile(r"(?!LDC|LDGDEPBAR)(LD|ST|ATOM|RED|B2R)")


def early(code: bytes) -> list[str]:
    """Return the clock reads that stand behind a barrier, and whose wait nothing makes."""
    texts, found = [text for text, _ in read(code)], []
    for at, text in enumerate(texts):
        if not re.search(r"BAR\.(SYNC|RED)", text):
            continue
        held = 0
        for behind in texts[at + 1 :]:
            held += behind.startswith("NOP")
            if held > 1 or _MEMORY.match(behind):
                break
            if _CLOCK.search(behind):
                found.append(f"{text}: {behind}")
    return found


@pytest.mark.parametrize("detail", ["kernel", "loops", "waits", "ops"])
@pytest.mark.parametrize("chip", CHIPS)
def test_a_clock_behind_a_barrier_is_read_behind_its_wait(chip: str, detail: str) -> None:
    made = patch(cubin(PTX, chip), "k", detail=detail, untested=True)
    assert sum("CLOCKLO" in text for text, _ in read(made.cubin)) >= 2
    assert not early(made.cubin)


def test_the_rule_sees_clocks_that_are_read_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ikp.sass.dataflow.free_registers.pending", lambda _: frozenset())
    assert early(patch(cubin(PTX, "sm_90a"), "k", detail="ops").cubin)


def test_a_wait_is_to_come_until_memory_is_reached() -> None:
    code = codes(cubin(PTX, "sm_90a"))["k"]
    found = pending(Graph(code))
    (loop, named, result, last) = code.having(lambda each: each.startswith("BAR."))
    (load,) = code.having(lambda each: each.startswith("LDG"))
    assert loop not in found and loop + 1 in found
    assert load in found and load + 1 not in found  # the branch leads there
    assert named in found  # the loop's last one is still to come where it ends
    assert result + 1 in found and last not in found
    assert last + 1 in found and code.of("EXIT")[0] in found
