"""Loops that are left at several places: each way out, taken in the emulator."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from ikp.probes.made_patch import Patch
from ikp.probes.patch import patch
from ikp.probes.points.loops import LoopExits, Open
from ikp.probes.points.probe_points import ProbeRegions
from ikp.probes.points.sese_regions import Point, Regions
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.uniformity import Alike
from tests.probes.test_places import alternates, walk
from tests.products import one_by_one
from tests.sass.assembled import cubin
from tests.sass.hazards import hazards
from tests.sass.readback import code_of
from tests.sass.texts import sass
from tests.sass.whole import run

pytestmark = pytest.mark.any_pins

HEAD = """
.visible .entry k(.param .u64 p, .param .u32 n, .param .u32 m, .param .u32 z, .param .u32 q)
 .reqntid 64
{
 .reg .u64 a; .reg .u32 i, j, rn, rm, rz, rq; .reg .pred P;
 ld.param.u64 a, [p]; ld.param.u32 rn, [n]; ld.param.u32 rm, [m];
 ld.param.u32 rz, [z]; ld.param.u32 rq, [q];
 mov.u32 i, 0;
"""
SEVERAL = f""".file 1 "k.py"
{HEAD}
L:
 .loc 1 5 0
 st.volatile.global.u32 [a], i;
 add.u32 i, i, 1;
 setp.eq.u32 P, i, rn; @P bra A;
 st.volatile.global.u32 [a+4], i;
 setp.eq.u32 P, i, rm; @P bra B;
 st.volatile.global.u32 [a+8], i;
 setp.eq.u32 P, i, rz; @P ret;
 setp.lt.u32 P, i, rq; @P bra L;
 st.volatile.global.u32 [a+12], i;
B:
 st.volatile.global.u32 [a+16], i;
 ret;
A:
 st.volatile.global.u32 [a+20], i;
 ret;
}}
"""
"""Left to a place of its own, to one where others come, by an EXIT, and by falling through."""

NESTED = f""".file 1 "k.py"
{HEAD}
O:
 .loc 1 5 0
 mov.u32 j, 0;
I:
 .loc 1 7 0
 st.volatile.global.u32 [a], j;
 add.u32 j, j, 1;
 setp.eq.u32 P, j, rn; @P bra OUT;
 st.volatile.global.u32 [a+4], j;
 setp.eq.u32 P, j, rm; @P bra NEXT;
 st.volatile.global.u32 [a+8], j;
 setp.lt.u32 P, j, 4; @P bra I;
 st.volatile.global.u32 [a+12], j;
NEXT:
 .loc 1 5 0
 st.volatile.global.u32 [a+16], i;
 add.u32 i, i, 1;
 setp.eq.u32 P, i, rz; @P ret;
 setp.lt.u32 P, i, rq; @P bra O;
 st.volatile.global.u32 [a+20], i;
OUT:
 st.volatile.global.u32 [a+24], i;
 ret;
}}
"""
"""One way leads out of both loops."""

NEVER = 99


@cache
def patched(ptx: str, detail: str = "loops") -> Patch:
    return patch(cubin(ptx, "sm_90a"), "k", detail=detail, untested=True)


@pytest.mark.compiled
@pytest.mark.parametrize("detail", ["loops", "ops"])
@pytest.mark.parametrize(
    ("parameters", "turns"),
    [
        ((3, NEVER, NEVER, 9), 3),
        ((1, NEVER, NEVER, 9), 1),
        ((NEVER, 4, NEVER, 9), 4),
        ((NEVER, NEVER, 2, 9), 2),
        ((NEVER, NEVER, 1, 9), 1),
        ((NEVER, NEVER, NEVER, 5), 5),
        ((4, 3, 5, 9), 3),
    ],
)
def test_each_way_out_ends_a_loop_once(
    parameters: tuple[int, ...], turns: int, detail: str
) -> None:
    made = patched(SEVERAL, detail)
    assert not made.notes
    ranges, results = run(made, "k", 2, parameters)
    loops = ["iteration @k.py:5"] * turns + ["loop @k.py:5"]
    for names in ranges:
        assert [each for each in names if "@k.py:5" in each and "store" not in each] == loops
        assert names[-1] == "k" and (detail == "ops") == any("store" in each for each in names)
    assert int.from_bytes(results[:4], "little") == turns - 1


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("parameters", "inner", "outer", "whole"),
    [
        ((3, NEVER, NEVER, 2), [3], 1, True),  # out of both, in the first turn
        ((NEVER, 2, NEVER, 3), [2, 2, 2], 3, False),
        ((NEVER, NEVER, NEVER, 2), [4, 4], 2, False),
        ((NEVER, NEVER, 2, 9), [4, 4], 2, False),  # leaves the kernel
    ],
)
def test_one_way_may_lead_out_of_two_loops(
    parameters: tuple[int, ...], inner: list[int], outer: int, whole: bool
) -> None:
    ranges, results = run(patched(NESTED), "k", 2, parameters)
    wanted: list[str] = []
    for turns in inner:
        wanted += ["iteration @k.py:7"] * turns + ["loop @k.py:7", "iteration @k.py:5"]
    assert ranges == [[*wanted, "loop @k.py:5", "k"]] * 2
    assert wanted.count("iteration @k.py:5") == outer
    assert bool(int.from_bytes(results[16:20], "little")) is (not whole and outer > 1)


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("ptx", "chip"),
    one_by_one([SEVERAL, NESTED], ["sm_90a", "sm_80", "sm_100a", "sm_120a"]),
)
def test_all_else_stands_as_it_did(ptx: str, chip: str) -> None:
    plain = cubin(ptx, chip)
    made = patch(plain, "k", detail="ops", untested=True)
    before, after = code_of(plain, "k"), code_of(made.cubin, "k")
    assert hazards(after) == hazards(before)
    own = [
        each
        for each in after.flow.code.instructions
        if not any(first <= each.address < end for first, end in made.ours)
    ]
    old = before.flow.code.instructions
    assert [(each.opcode, each.guard) for each in own[: len(old)]] == [
        (each.opcode, each.guard) for each in old
    ]
    assert Counter(made.names).most_common(1)[0][1] == 1 and len(made.names) > 3


@pytest.mark.compiled
@pytest.mark.parametrize("ptx", [SEVERAL, NESTED])
def test_they_alternate_and_nest_on_every_path(ptx: str) -> None:
    import random

    code = code_of(cubin(ptx, "sm_90a"), "k")
    found = ProbeRegions(code.flow).all
    assert {place.kind for place in found if place.within} == {"loop", "iteration"}
    alternates(code.flow, found)
    walk(code.flow, found, random.Random(ptx))


TOP = ("NOP", ".L_x_1:", "STG.E desc[UR4][R4.64], R2")


def opened(*lines: str) -> Open | str:
    flow = Flow(sass(*lines))
    (header,) = flow.bodies
    return LoopExits(Regions(flow)).loop(header)


@pytest.mark.parametrize(
    ("leaves", "rest", "ends"),
    [
        ("@P0 BRA `(.L_x_2)", ("EXIT", ".L_x_2:", "NOP", "EXIT"), [Point(4, after=True), Point(6)]),
        ("@P0 BRA `(.L_x_2)", (".L_x_2:", "NOP", "EXIT"),
         [Point(3, taken=True), Point(4, after=True)]),
        ("@P0 EXIT", ("EXIT",), [Point(3, taken=True), Point(4, after=True)]),
    ],
)  # fmt: skip
def test_an_end_stands_where_nobody_else_comes(
    leaves: str, rest: tuple[str, ...], ends: list[Point]
) -> None:
    decides = "ISETP.NE.AND P0, PT, R2, UR6, PT"
    found = opened(*TOP[:2], decides, "IADD3 R2, R2, 0x1, RZ", leaves, "@P0 BRA `(.L_x_1)", *rest)
    assert isinstance(found, Open)
    assert (found.start, list(found.ends)) == (Point(0, after=True), ends)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (("S2R R3, SR_TID.X", "ISETP.NE.AND P0, PT, R3, UR6, PT", "@P0 BRA `(.L_x_2)"),
         "threads of one warp may be apart where it is left"),
        (("S2R R3, SR_LANEID", "ISETP.NE.AND P0, PT, R3, UR6, PT", "@P0 EXIT"),
         "threads of one warp may be apart where it is left"),
        (("S2R R3, SR_TID.X", "LDG.E R6, desc[UR4][R3.64]", "ISETP.NE.AND P0, PT, R6, RZ, PT",
          "@P0 EXIT"),
         "threads of one warp may be apart where it is left"),
        (("BRX R8 -0x30", ".L_x_3:", "NOP", "@P1 BRA `(.L_x_1)", "EXIT", ".L_x_4:"),
         "it is left by a jump to an address that is computed"),
    ],
)  # fmt: skip
def test_what_can_not_be_marked_says_why(lines: tuple[str, ...], why: str) -> None:
    rest = ("@P1 BRA `(.L_x_1)", "EXIT", ".L_x_2:", "NOP", "EXIT")
    assert opened(*TOP, *lines, *rest) == why


def alike(*lines: str, rows: bool = False) -> bool:
    """Whether threads go the same way at the last EXIT but one."""
    flow = Flow(sass(*lines, "@P0 EXIT", "EXIT"))
    return Alike(flow, Regions(flow).divergent, rows).decides(len(lines_of(lines)))


def lines_of(lines: tuple[str, ...]) -> list[str]:
    return [each for each in lines if not each.endswith(":")]


@pytest.mark.parametrize(
    ("lines", "same"),
    [
        (("ISETP.NE.AND P0, PT, R2, UR6, PT",), True),
        (("S2R R2, SR_CTAID.X", "ISETP.NE.AND P0, PT, R2, UR6, PT"), True),
        (("S2R R2, SR_TID.X", "ISETP.NE.AND P0, PT, R2, UR6, PT"), False),
        (("S2R R2, SR_TID.X", "MOV R2, RZ", "ISETP.NE.AND P0, PT, R2, UR6, PT"), True),
        (("S2R R2, SR_TID.X", "@P1 MOV R2, RZ", "ISETP.NE.AND P0, PT, R2, UR6, PT"), False),
        (("S2R R2, SR_TID.X", "SHFL.IDX PT, R2, R2, RZ, 0x1f", "ISETP.NE.AND P0, PT, R2, RZ, PT"),
         True),
        (("S2R R2, SR_TID.X", "SHFL.BFLY PT, R2, R2, 0x1, 0x1f", "ISETP.NE.AND P0, PT, R2, RZ, PT"),
         False),
        (("S2R R2, SR_TID.X", "R2UR UR6, R2", "ISETP.NE.AND P0, PT, RZ, UR6, PT"), True),
        (("S2R R2, SR_TID.X", "ISETP.NE.AND P1, PT, R2, RZ, PT", "VOTE.ANY P0, P1"), True),
        (("ATOMG.E.ADD.STRONG.GPU PT, R2, desc[UR4][R4.64], R6", "ISETP.NE.AND P0, PT, R2, RZ, PT"),
         False),
        (("LDG.E R2, desc[UR4][R4.64]", "ISETP.NE.AND P0, PT, R2, RZ, PT"), True),
        (("LDL R2, [R1]", "ISETP.NE.AND P0, PT, R2, RZ, PT"), False),
        (("S2R R2, SR_TID.X", "ISETP.NE.AND P1, PT, R2, RZ, PT", "@P1 MOV R3, 0x1",
          "ISETP.NE.AND P0, PT, R3, RZ, PT"), False),
        (("BSSY B0, `(.L_x_2)", "@P1 BRA `(.L_x_1)", "MOV R3, 0x1", ".L_x_1:", "BSYNC B0",
          ".L_x_2:", "ISETP.NE.AND P0, PT, R3, RZ, PT"), False),
    ],
)  # fmt: skip
def test_what_threads_have_alike(lines: tuple[str, ...], same: bool) -> None:
    assert alike(*lines) is same


@pytest.mark.parametrize(
    ("made", "same"),
    [
        ("SHF.R.U32.HI R3, RZ, 0x7, R2", True),
        ("SHF.R.U32.HI R3, RZ, 0x5, R2", True),
        ("SHF.R.U32.HI R3, RZ, 0x4, R2", False),
        ("SHF.R.U32.HI R3, R2, 0x7, R2", False),
        ("LOP3.LUT R3, R2, 0x60, RZ, 0xc0, !PT", True),
        ("LOP3.LUT R3, R2, 0x7f, RZ, 0xc0, !PT", False),
        ("LOP3.LUT R3, R2, 0x60, RZ, 0xfc, !PT", False),  # or
        ("LOP3.LUT R3, R2, 0x60, R2, 0xc0, !PT", False),
        ("IADD3 R3, R2, 0x20, RZ", False),
    ],
)
def test_a_warps_own_number_is_alike_where_its_threads_stand_in_a_row(
    made: str, same: bool
) -> None:
    tests = (made, "ISETP.NE.AND P0, PT, R3, 0x1, PT")
    copied = ("S2R R4, SR_TID.X", "IMAD.MOV.U32 R2, RZ, RZ, R4")
    assert alike("S2R R2, SR_TID.X", *tests, rows=True) is same
    assert alike(*copied, *tests, rows=True) is same
    assert not alike("S2R R2, SR_TID.X", *tests)
    assert not alike("S2R R2, SR_LANEID", *tests, rows=True)
    parted = ("IADD3 R5, R5, 0x1, RZ", "LOP3.LUT R2, R2, 0x1f, RZ, 0xc0, !PT")
    assert not alike("S2R R2, SR_TID.X", *parted, *tests, rows=True)
