"""Where no uniform registers can be kept for global memory, each run is lent some."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ikp.errors import PatchError
from ikp.probes.code.reserved_registers import LENT, ConstantOffsets
from ikp.probes.made_patch import Patch
from ikp.probes.patch import patch
from ikp.probes.placement import register_choice
from ikp.probes.placement.register_choice import Lender, lent
from ikp.probes.points.sese_regions import Regions
from ikp.sass.assembly import forms
from ikp.sass.assembly.assembler import NOP
from ikp.sass.cubins.instruction import BYTES
from ikp.sass.dataflow.free_registers import FreeRegisters
from ikp.sass.disassembly.effects import UR, span
from tests.probes.test_loop_exits import NESTED, SEVERAL
from tests.products import one_by_one
from tests.sass import hazards
from tests.sass.assembled import cubin
from tests.sass.compiled import code, machine
from tests.sass.readback import code_of
from tests.sass.test_room import room
from tests.sass.whole import run

pytestmark = pytest.mark.any_pins

_LOADED = f"c[0x0][{ConstantOffsets().descriptor:#x}]"


WARP, THREAD = (61, 59), ()
"""The uniform registers that a warp's count may be in; where there are none, threads count."""


@pytest.fixture(params=[WARP, THREAD], ids=["count of a warp", "count of a thread"])
def forced(request, monkeypatch) -> tuple[int, ...]:
    """Leave all kernels few uniform registers, and none that they keep for global memory."""
    monkeypatch.setattr(FreeRegisters, "unused_uniform", request.param)
    monkeypatch.setattr(register_choice, "_descriptors", lambda room, chip: [])
    return request.param


def test_a_pair_is_free_there_and_no_others_of_the_warp_may_need_it() -> None:
    made = room(
        ("ULDC.64 UR8, c[0x0][0x210]", None, None, 0),
        ("STG.E desc[UR8][R2.64], R4", None, None, 0),
        ("EXIT", None, None, 0),
    )
    assert made.unused_uniform == (4, 5, 6, 7, *range(10, 63))
    before, behind = made.at(1), made.at(2)
    assert Lender(made, {}).pair(1, before) is None, "8 is needed, others are kept"
    made.__dict__["unused_uniform"] = (61,)
    assert Lender(made, {}).pair(1, before) == 58
    few = replace(before, uniform_registers=(2, 3, 4, 7, 10, 11))
    assert Lender(made, {}).pair(1, few) == 10
    assert Lender(made, {}).pair(1, replace(few, uniform_registers=(2, 3, 4, 7))) is None
    assert Lender(made, {0: {0}}).pair(2, behind) == 58
    assert Lender(made, {}).pair(3, behind) == 58, "behind the last instruction"


PARTED = (
    ("S2R R6, SR_TID.X", 0, None, 0),
    ("ISETP.NE.AND P0, PT, R6, RZ, PT", None, None, 1),
    ("@P0 BRA `(.L_x_1)", None, None, 0),
    ("STG.E desc[UR8][R2.64], R4", None, 0, 0),
    ("NOP", None, None, 1),
    ("EXIT", None, None, 0),
    (".L_x_1:", None, None, 0),
    ("UMOV UR10, 0x5", None, None, 0),
    ("MOV R5, UR10", None, None, 0),
    ("STG.E [R2], R5", None, 1, 0),
    ("EXIT", None, None, 0),
)


def test_where_threads_are_apart_the_rest_of_the_warp_must_not_name_it() -> None:
    made = room(*PARTED)
    made.__dict__["unused_uniform"] = ()
    apart = Regions(made.liveness.flow).others
    assert len(apart) > 1
    spare = made.at(5)
    assert {8, 9, 10, 11, 12, 13} <= set(spare.uniform_registers)
    found = [
        Lender(made, apart).pair(5, replace(spare, uniform_registers=few))
        for few in ((8, 9), (10, 11), (8, 9, 10, 11, 12, 13))
    ]
    assert found == [None, None, 12]
    called = room(*PARTED[:-1], ("CALL.REL.NOINC `(.L_x_1)", None, None, 0), PARTED[-1])
    called.__dict__["unused_uniform"] = ()
    apart = Regions(called.liveness.flow).others
    assert apart and Lender(called, apart).pair(5, called.at(5)) is None


def test_a_run_loads_it_once_behind_its_clock() -> None:
    clock, first = forms.clock(4), forms.store(2, 0, 4, 2, LENT)
    made = lent([clock, first, first.when(1)], 10)
    assert made[:2] == [clock, forms.constant(10, 0, 0x208, pair=True)]
    assert made[2] == forms.store(2, 0, 4, 2, 10)
    assert made[3] == forms.store(2, 0, 4, 2, 10).when(1)
    counted = lent([NOP, forms.count_up(2, 8, 4, LENT)], 10)
    assert counted[2] == forms.count_up(2, 8, 4, 10)
    assert lent([clock, NOP], 10) == [clock, NOP]


@pytest.mark.compiled
@pytest.mark.parametrize("text", [SEVERAL, NESTED], ids=["several", "nested"])
@pytest.mark.parametrize("parameters", [(3, 9, 9, 9), (9, 2, 9, 9), (9, 9, 2, 9), (9, 9, 9, 4)])
def test_records_and_results_are_the_same(text: str, parameters, forced, monkeypatch) -> None:
    file, detail = cubin(text, "sm_90a"), "loops" if text is NESTED else "ops"
    ours = patch(file, "k", detail=detail)
    monkeypatch.undo()
    plain = patch(file, "k", detail=detail)
    assert ours.names == plain.names and ours.cubin != plain.cubin
    ranges, results = run(plain, "k", 2, parameters)
    lent_ranges, lent_results = run(ours, "k", 2, parameters)
    assert (lent_ranges, lent_results) == (ranges, results)
    assert sum(map(len, ranges)) > 2


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("name", "forced"), one_by_one(["matmul", "gathered", "attention"], [WARP, THREAD]),
    indirect=["forced"],
)  # fmt: skip
def test_what_a_whole_kernel_lends_it_needs_no_more(name: str, forced, monkeypatch) -> None:
    made = code(name).compiled
    ours = patch(made.asm["cubin"], made.name, detail="ops", ptx=made.asm["ptx"])
    monkeypatch.undo()
    before, after = machine(name), code_of(ours.cubin, made.name)
    monkeypatch.setattr(hazards, "_REGISTERS", hazards._REGISTERS | UR.all)
    assert Counter(hazards.hazards(after)) == Counter(hazards.hazards(before))
    found = _loads(after, ours)
    assert len(found) > 3
    for at, pair in found:
        free = FreeRegisters(before).free[at, UR.first + pair : UR.first + pair + 2]
        assert np.all(free), f"UR{pair} is needed at {at}"
    kept = sum(1 << UR.first + each for each in forced)
    lends = sum({span(UR.first + pair, 2) for _, pair in found})
    assert not lends & kept and not after.used & ~before.used & ~lends & ~kept & UR.all


APART = """
.visible .entry k(.param .u64 x, .param .u32 n) .reqntid 64
{
 .reg .u64 a, b; .reg .u32 i, t, v, m; .reg .pred P, Q;
 ld.param.u64 a, [x]; ld.param.u32 m, [n]; mov.u32 t, %tid.x; mul.wide.u32 b, t, 4;
 add.u64 a, a, b; mov.u32 v, 0; mov.u32 i, 0;
L:
 .pragma "nounroll";
 add.u32 v, v, t; st.volatile.global.u32 [a], v;
 add.u32 i, i, 1; setp.lt.u32 P, i, m; @P bra L;
 and.b32 i, t, 1; setp.eq.u32 Q, i, 0; @Q bra E;
 st.volatile.global.u32 [a], t; and.b32 i, t, 2; setp.eq.u32 Q, i, 0; @Q bra F; ret;
E: add.u32 v, v, 1000; st.volatile.global.u32 [a], v; ret;
F: mul.lo.u32 v, v, m; st.volatile.global.u32 [a], v; ret;
}
"""
"""Threads of each warp end in three places."""


@pytest.mark.compiled
def test_where_threads_end_apart_each_is_lent_what_the_rest_does_not_name(forced) -> None:
    file = cubin(APART, "sm_90a")
    plain, ours = code_of(file, "k"), patch(file, "k", detail="loops")
    others, found = Regions(plain.flow).others, _loads(code_of(ours.cubin, "k"), ours)
    apart = {(plain.flow.graph.block(at), pair) for at, pair in found} & {
        (block, pair) for block in others for _, pair in found
    }
    assert len(apart) > 1
    for block, pair in apart:
        for at in plain.flow.instructions(frozenset(others[block])):
            effect = plain.effects[at]
            assert not (effect.reads | effect.writes) & span(UR.first + pair, 2)


@pytest.mark.compiled
def test_where_whole_warps_part_what_others_name_is_lent(forced, monkeypatch) -> None:
    """As warps that specialise do: each uses nearly all there is, and ends where others do not."""
    monkeypatch.setattr(Lender, "_unnamed", lambda lender, blocks: set())
    with pytest.raises(PatchError, match=r"where the kernel ends.* no two in a row are free"):
        patch(cubin(APART, "sm_90a"), "k", detail="loops")
    whole = APART.replace("and.b32 i, t, 1;", "shr.u32 i, t, 5;").replace("and.b32 i, t, 2;", "")
    plain = code_of(file := cubin(whole, "sm_90a"), "k")
    ours = patch(file, "k", detail="loops")
    ends = {at for at, each in enumerate(plain.flow.code.instructions) if each.op == "EXIT"}
    assert len(ends) > 1
    assert ends <= {at for at, _ in _loads(code_of(ours.cubin, "k"), ours)}


def _loads(after, made: Patch) -> list[tuple[int, int]]:
    """Return each load of a pair that was put in: before which plain instruction, which pair."""
    ours = {at for first, end in made.ours for at in range(first // BYTES, end // BYTES)}
    found, plain = [], 0
    for at, each in enumerate(after.flow.code.instructions):
        if at not in ours:
            plain += 1
        elif each.opcode == "ULDC.64" and _LOADED in each.operands:
            found.append((plain, int(each.operands[0][2:])))
    return found
