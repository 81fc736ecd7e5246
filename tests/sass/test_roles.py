"""Kernels whose warps hand registers over, by their roles: where each begins, and its records."""

from __future__ import annotations

from collections import Counter

import pytest

from ikp.core.segment import Selection
from ikp.errors import PatchError
from ikp.probes import patch as patching
from ikp.probes.made_patch import Patch
from ikp.probes.patch import patch
from ikp.probes.placement import register_choice
from ikp.sass.dataflow.free_registers import RESERVED, FreeRegisters
from ikp.sass.dataflow.liveness import Liveness
from ikp.sass.dataflow.register_handover import registers_at, roles
from ikp.sass.disassembly.effects import UR, R
from tests.sass import hazards
from tests.sass.assembled import cubin
from tests.sass.readback import code_of
from tests.sass.test_handed import flow
from tests.sass.whole import run

pytestmark = pytest.mark.any_pins

HEAD = """
.file 1 "k.py"
.visible .entry k(.param .u64 x, .param .u32 n, .param .u32 m) .reqntid 256 .minnctapersm 1
{
 .reg .u64 a; .reg .u32 t, i, c, d; .reg .pred P;
 .loc 1 1 0
 ld.param.u64 a, [x]; ld.param.u32 c, [n]; ld.param.u32 d, [m]; mov.u32 t, %tid.x;
 mov.u32 i, 0; setp.eq.u32 P, d, 9; @P ret;
F:
 .pragma "nounroll";
 .loc 1 2 0
 st.volatile.global.u32 [a], i; add.u32 i, i, 1; setp.lt.u32 P, i, d; @P bra F;
 shr.u32 t, t, 7; setp.ne.u32 P, t, 0; mov.u32 i, 0; @P bra SECOND;
"""
LOADS = """
 .loc 1 5 0
 st.volatile.global.u32 [a+12], i;
 setmaxnreg.dec.sync.aligned.u32 40;
L:
 .pragma "nounroll";
 .loc 1 3 0
 st.volatile.global.u32 [a+4], i; add.u32 i, i, 1; setp.lt.u32 P, i, c; @P bra L;
 ret;
"""
MULTIPLIES = """
 setmaxnreg.inc.sync.aligned.u32 232;
M:
 .pragma "nounroll";
 .loc 1 4 0
 st.volatile.global.u32 [a+8], i; add.u32 i, i, 1; setp.lt.u32 P, i, c; @P bra M;
 ret;
"""
_AT_ONCE = LOADS[LOADS.index(" setmax") :]
KERNELS = {
    "who loads falls through": f"{HEAD}{LOADS}SECOND:\n{MULTIPLIES}}}\n",
    "who loads jumps": f"{HEAD}{MULTIPLIES}SECOND:\n{LOADS}}}\n",
    "who loads jumps right there": f"{HEAD}{MULTIPLIES}SECOND:\n{_AT_ONCE}}}\n",
}
"""Warps of two roles, and code before these."""


@pytest.fixture(params=KERNELS.values(), ids=list(KERNELS))
def file(request: pytest.FixtureRequest) -> bytes:
    """Return such a kernel."""
    return cubin(request.param, "sm_90a")


@pytest.fixture(params=["uniform", "own but the count", "own"])
def forced(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave a kernel as a whole none of its registers, and its roles few uniform ones."""
    made = register_choice.frame

    def frame(room: FreeRegisters, *args: object, **kwargs: object) -> object:
        if room.rows is None:
            return None
        if 0 not in room.rows:  # a role's
            kept = {"uniform": room.unused_uniform[2:], "own but the count": (60,), "own": ()}
            vars(room)["unused_uniform"] = kept[request.param]
        return made(room, *args, **kwargs)

    monkeypatch.setattr(patching, "frame", frame)


def test_each_begins_where_registers_are_handed_over() -> None:
    lines = [
        "@P0 BRA `(.L_x_0)",
        "USETMAXREG.DEALLOC.CTAPOOL 0x28",
        ".L_x_2:",
        "NOP",
        "@P1 BRA `(.L_x_2)",
        "EXIT",
        ".L_x_0:",
        "USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xe8",
        "PLOP3.LUT P0, PT, PT, PT, UP0, 0x80, 0x0",
        "@!P0 BRA `(.L_x_0)",
        ".L_x_3:",
        "NOP",
        "@P1 BRA `(.L_x_3)",
        "EXIT",
    ]
    first, second = roles(flow(*lines))
    assert (first.entrance, first.rows, first.falls) == (1, frozenset(range(1, 5)), False)
    assert (second.entrance, second.rows, second.falls) == (8, frozenset(range(8, 11)), True)
    joined = [*lines[:5], "BRA `(.L_x_3)", *lines[6:]]
    again = [*lines[:4], "@P1 BRA `(.L_x_4)", "EXIT", *lines[6:]]
    again.insert(1, ".L_x_4:")
    jumped = ["@P2 BRA `(.L_x_3)", *lines]
    assert [roles(flow(*each)) for each in (joined, again, jumped)] == [[], [], []]


@pytest.mark.compiled
@pytest.mark.parametrize("parameters", [(3, 2), (1, 1), (2, 9)], ids=["more", "once", "none"])
@pytest.mark.parametrize("sample", [None, Selection(block_step=2, others=True)])
def test_records_and_results_are_the_same(
    file: bytes, parameters, sample, forced, monkeypatch
) -> None:
    ours = patch(file, "k", detail="ops", blocks=sample)
    monkeypatch.undo()
    plain = patch(file, "k", detail="ops", blocks=sample)
    assert sorted(ours.names) == sorted(plain.names) and ours.cubin != plain.cubin
    chosen = {} if sample is None else {"chosen": sample, "blocks": 3}
    ranges, results = run(plain, "k", 8, parameters, **chosen)
    assert run(ours, "k", 8, parameters, **chosen) == (ranges, results)
    assert len(set(map(tuple, ranges))) == (1 if parameters[1] == 9 else 2)


@pytest.mark.compiled
def test_nothing_in_flight_or_given_back_is_touched(file: bytes, forced, monkeypatch) -> None:
    monkeypatch.setattr(hazards, "_REGISTERS", hazards._REGISTERS | UR.all)
    before, made = code_of(file, "k"), patch(file, "k", detail="ops")
    after = code_of(made.cubin, "k")
    assert Counter(hazards.hazards(after)) == Counter(hazards.hazards(before))
    allowed = registers_at(before.flow, made.registers[1])
    for at, touched in _touched(after, made):
        assert touched >> (allowed[at] - RESERVED) == 0


def _touched(after: Liveness, made: Patch) -> list[tuple[int, int]]:
    """Return the threads' registers that what was put in names: before which plain instruction."""
    ours = {at // 16 for first, end in made.ours for at in range(first, end, 16)}
    found, plain = [], 0
    for at, effect in enumerate(after.effects):
        if at in ours:
            found.append((plain, (effect.reads | effect.writes) & R.all))
        plain += at not in ours
    return [each for each in found if each[0] < plain]


@pytest.mark.compiled
def test_where_a_role_has_too_few_it_is_refused(file: bytes, monkeypatch) -> None:
    monkeypatch.setattr(FreeRegisters, "unused_uniform", ())
    monkeypatch.setattr(FreeRegisters, "unused_own", (9, 10))
    with pytest.raises(PatchError, match="k uses all its uniform registers but 0"):
        patch(file, "k")
