"""Where only some threads leave: what they use is not needed by those who stay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ikp.probes.patch import patch
from ikp.probes.placement import instrumentation
from ikp.probes.placement.entry_and_exits import leaving
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.hazards import ScoreboardHazards
from ikp.sass.disassembly.effects import UR, P, R, bit
from tests.sass.assembled import cubin
from tests.sass.compiled import CASES, machine
from tests.sass.hazards import hazards
from tests.sass.readback import code_of
from tests.sass.test_room import room
from tests.sass.texts import sass

STORES = "@P{0} st.volatile.global.u32 [a4+{1}], r{2};"
PTX = f"""
.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n) .reqntid 128
{{
 .reg .u64 a<6>; .reg .u32 r<40>; .reg .pred P<12>;
 ld.param.u64 a0, [x]; ld.param.u64 a1, [y]; ld.param.u32 r0, [n];
 mov.u32 r1, %tid.x; mov.u32 r2, %ctaid.x; mad.lo.u32 r3, r2, 128, r1;
 mul.wide.u32 a2, r3, 32; add.u64 a3, a0, a2; add.u64 a4, a1, a2;
 ld.global.v4.u32 {{r10, r11, r12, r13}}, [a3]; ld.global.v4.u32 {{r14, r15, r16, r17}}, [a3+16];
 {" ".join(f"setp.gt.s32 P{n}, r{n + 10}, 0;" for n in range(7))}
 {" ".join(STORES.format(n, 4 * n, 1) for n in range(6))}
 @P6 bra STAYS;
 ret;
STAYS:
 {" ".join(STORES.format(n, 4 * n + 4, n + 10) for n in range(6))}
 st.volatile.global.u32 [a4+28], r0;
 ret;
}}
"""
"""Threads leave where all predicates are needed by those who stay."""


PARTING = """
.visible .entry k(.param .u64 x, .param .u32 n) .reqntid 128
{{
 .reg .u64 a; .reg .u32 i, t; .reg .pred P;
 ld.param.u64 a, [x]; {decides}
L:
 .pragma "nounroll";
 st.volatile.global.u32 [a], i; add.u32 i, i, 1; setp.lt.u32 P, i, t; @P bra L;
 ret;
}}
"""


@pytest.mark.compiled
@pytest.mark.any_pins
@pytest.mark.parametrize(
    ("decides", "apart"),
    [("mov.u32 t, %tid.x; mov.u32 i, 0;", True), ("ld.param.u32 t, [n]; mov.u32 i, 0;", False)],
)
def test_whoever_leaves_last_stores_the_whole_header(decides: str, apart: bool) -> None:
    """Two threads have half of it each where all leave together: else, one may be long gone."""
    made = patch(cubin(PARTING.format(decides=decides), "sm_90a"), "k", detail="loops")
    code = code_of(made.cubin, "k").flow.code.instructions
    first, end = made.ours[-1]
    last = [each for each in code if first <= each.address < end]
    assert any("SR_LANEID" in each.operands for each in last) == (not apart)
    assert ("apart" in " ".join(made.notes)) == apart
    assert ("loop" in made.names) == (not apart)


@pytest.mark.any_pins
def test_who_leaves_needs_the_guard_alone() -> None:
    made = replace(
        room(
            ("@P2 EXIT", None, None, 0),
            ("@P1 IADD3 R4, R5, UR6, RZ", None, None, 0),
            ("STG.E desc[UR4][R2.64], R4", None, None, 0),
            ("EXIT", None, None, 0),
        ),
        registers=16,
    )
    stay, leave = made.waited(0), made.left(0)
    assert not {2, 3, 4, 5} & set(stay.registers) and {2, 3, 4, 5} <= set(leave.registers)
    assert (1 in stay.predicates, 1 in leave.predicates, 2 in leave.predicates) == (0, 1, 0)
    assert not {4, 5, 6} & set(leave.uniform_registers)


@pytest.mark.any_pins
def test_who_leaves_minds_what_is_under_way() -> None:
    made = room(
        ("STG.E desc[UR4][R2.64], R6", None, None, 0),  # nothing tells when it has read them
        ("@P2 EXIT", None, None, 0),
        ("IADD3 R7, R7, R7, RZ", None, None, 0),
        ("EXIT", None, None, 0),
    )
    assert not {2, 3, 6} & set(made.left(1).registers) and 7 in made.left(1).registers
    late = room(("IMAD.WIDE R4, R2, R3, R6", None, None, 0), ("@P2 EXIT", None, None, 0))
    assert not {4, 5} & set(late.left(1).registers)


@pytest.mark.any_pins
def test_a_predicate_is_read_when_its_instruction_issues() -> None:
    made = room(
        ("@P1 STG.E desc[UR4][R2.64], R6", None, 1, 0),
        ("NOP", None, None, 0),
        ("EXIT", None, None, 0),
    )
    assert made.free[1][bit("P1")]
    assert not made.free[1][bit("R6")] and not made.free[1][bit("UR4")]


@pytest.mark.compiled
@pytest.mark.any_pins
def test_compilers_rely_on_that() -> None:
    """They overwrite predicates of stores and loads that have not told that they have read all."""
    found = 0
    for name in CASES:
        code = machine(name)
        states, controls = ScoreboardHazards(code).states, code.flow.code.controls
        waits, takes = controls.waits.tolist(), controls.reads.tolist()
        last = [0] * 8  # the predicates that the last one to take each scoreboard reads
        for at, effect in enumerate(code.effects):
            held = (b for b in range(6) if states[at][b] and not waits[at] >> b & 1)
            found += any(effect.kills & last[board] & P.all for board in held)
            last[takes[at]] = effect.reads
    assert found > 20


@pytest.mark.compiled
@pytest.mark.any_pins
def test_an_exit_whose_predicates_others_need_takes_records() -> None:
    plain = cubin(PTX, "sm_90a")
    made = patch(plain, "k", detail="ops")
    assert made.names[0] == "k" and len(made.names) > 1
    before, after = code_of(plain, "k"), code_of(made.cubin, "k")
    assert hazards(after) == hazards(before)
    code = after.flow.code.instructions
    at = next(n for n, each in enumerate(code) if each.op == "EXIT" and each.guard)
    guard = code[at].guard.lstrip("!")
    other = guard if code[at].guard.startswith("!") else f"!{guard}"
    skips = next(n for n in range(at, 0, -1) if code[n].op == "BRA")
    assert code[skips].guard == other and after.flow.after(skips).count(at) == 1
    written = 0
    for effect in after.effects[skips + 1 : at]:
        written |= effect.writes
    assert written & P.all and written & R.all
    assert not written & (1 << bit(guard) | UR.all)


WAITED = """
.visible .entry k(.param .u64 x, .param .u32 n) .reqntid 128
{
 .reg .u64 a; .reg .u32 r<4>; .reg .pred P; .shared .align 8 .b64 barrier;
 ld.param.u64 a, [x]; ld.param.u32 r0, [n]; mov.u32 r1, barrier;
 mbarrier.init.shared.b64 [r1], 1;
 bar.sync 0;
 mbarrier.test_wait.parity.shared.b64 P, [r1], r0;
 @P bra OUT;
 st.volatile.global.u32 [a], r0;
 st.volatile.global.u32 [a+4], r1;
OUT:
 ret;
}
"""
"""Who leaves is known when a scoreboard says so."""


@pytest.mark.compiled
@pytest.mark.any_pins
def test_who_leaves_is_known_before_anybody_skips() -> None:
    plain = cubin(WAITED, "sm_90a")
    code = code_of(plain, "k").flow.code
    at = next(n for n, each in enumerate(code.instructions) if each.op == "EXIT" and each.guard)
    waits = int(code.controls.waits[at])
    assert waits
    made = code_of(patch(plain, "k").cubin, "k").flow.code
    leaves = next(n for n, each in enumerate(made.instructions) if each.op == "EXIT")
    skips = next(n for n in range(leaves, 0, -1) if made.instructions[n].op == "BRA")
    assert int(made.controls.waits[skips]) & waits == waits


TWICE = """
.visible .entry k(.param .u64 x, .param .u32 n) .reqntid 128
{
 .reg .u64 a<2>; .reg .u32 r<4>; .reg .pred P<3>;
 ld.param.u64 a0, [x]; ld.param.u32 r0, [n];
 mov.u32 r1, %tid.x; mul.wide.u32 a1, r1, 4; add.u64 a0, a0, a1;
 ld.global.u32 r2, [a0]; ld.global.u32 r3, [a0+4];
 setp.ne.s32 P0, r0, 0; setp.ne.s32 P1, r1, 0; and.pred P2, P0, P1;
 @P2 ret;
 st.global.u32 [a0+8], r2; st.global.u32 [a0+12], r3;
 ret;
}
"""
"""Threads leave where two predicates hold: torch's reductions do, and faulted on the GPU."""


@pytest.mark.compiled
@pytest.mark.any_pins
@pytest.mark.parametrize("detail", ["kernel", "ops"])
@pytest.mark.parametrize("chip", ["sm_90a", "sm_80"])
def test_who_lacks_one_of_two_predicates_stays(chip: str, detail: str) -> None:
    plain = cubin(TWICE, chip)
    before = code_of(plain, "k")
    at = next(
        n
        for n, each in enumerate(before.flow.code.instructions)
        if len(each.conditions) > 1 and each.op == "EXIT"
    )
    leaves = before.flow.code.instructions[at]
    assert (leaves.op, leaves.guard, leaves.operands) == ("EXIT", "P0", ("P1",))
    made = patch(plain, "k", detail=detail, untested=True)
    code = code_of(made.cubin, "k").flow.code
    exits = next(n for n, each in enumerate(code.instructions) if each.text == leaves.text)
    skips = {
        each.guard: code.labels[each.targets[0]]
        for each in code.instructions[:exits]
        if each.op == "BRA" and code.labels[each.targets[0]] == exits
    }
    assert skips == {"!P0": exits, "!P1": exits}


@pytest.mark.any_pins
def test_what_an_exit_s_predicates_say() -> None:
    def ways(text: str) -> list[tuple[int, str]]:
        return Flow(sass(text, "NOP", "EXIT")).graph.jumps.leaving[0]

    assert ways("EXIT") == ways("@PT EXIT") == []
    assert ways("@P0 EXIT") == ways("EXIT P0") == [(1, "!P0")]
    assert ways("@!P0 EXIT") == [(1, "P0")]
    assert ways("@P0 EXIT P1") == ways("@P0 EXIT !P1") == [(1, "!?")]
    assert ways("@!PT EXIT") == [(1, "PT")]


_EXITS = """
.visible .entry k(.param .u64 p) .reqntid 128
{{
 .reg .u64 a; .reg .u32 t; .reg .pred q;
 ld.param.u64 a, [p]; mov.u32 t, %tid.x; {}
 st.global.u32 [a], t; ret;
}}
"""


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("early", "together"),
    [("", [True]), ("setp.lt.u32 q, t, 5; @q ret;", [False, False])],
)
def test_a_warp_leaves_together_only_where_there_is_one_exit(
    early: str, together: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[bool]()

    def noting(*given: Any) -> Any:
        told.append(given[3])
        return leaving(*given)

    monkeypatch.setattr(instrumentation, "leaving", noting)
    patch(cubin(_EXITS.format(early), "sm_90a"), "k", detail="kernel")
    assert told[-len(together) :] == together and {*told} == {*together}
