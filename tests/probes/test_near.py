"""The instructions of ``near``: each is what NVIDIA's assembler makes, or its libraries have."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ikp.probes.code.header_code import HeaderValues
from ikp.probes.code.reserved_registers import Cell
from ikp.probes.placement.entry_and_exits import Entrance, start_near
from ikp.probes.placement.register_choice import frame
from ikp.sass.assembly import forms as f
from ikp.sass.assembly.assembler import Step, assemble, reordered
from ikp.sass.assembly.chips import CHIPS
from ikp.sass.disassembly.tool_paths import tool
from tests.probes.test_starting import LOADS
from tests.sass.assembled import assembled
from tests.sass.emulate import HazardError, Machine, Warp
from tests.sass.test_room import room

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

_CONTROL = (1 << 105) - 1
_SPECIAL = {"CTAID.X": 0x25, "CTAID.Y": 0x26, "CTAID.Z": 0x27, "VIRTUALSMID": 0x43}
R = r"R(\d+)"
U = r"UR(\d+)"
HEX = r"(-?0x[0-9a-f]+)"
FORMS: dict[str, Callable[..., tuple[Step, int]]] = {
    rf"S2UR {U}, SR_(CTAID\.[XYZ])": lambda a, name: (f.uniform_special(a, _SPECIAL[name]), 0),
    rf"UIMAD {U}, {U}, {U}, {U}": lambda *each: (f.multiply_uniform(*each), 0),
    rf"UIMAD {U}, {U}, {HEX}, {U}": lambda *each: (f.multiply_uniform_by(*each), 0),
    rf"ULEA {U}, {U}, {U}, {HEX}": lambda *each: (f.scaled_uniform(*each), 0),
    rf"ULOP3\.LUT {U}, {U}, {HEX}, URZ, 0xc0, !UPT": lambda *each: (f.masked_uniform(*each), 0),
    # What is another comparison, negated, or wider in what it assembles is one bit, or a few.
    rf"UISETP\.GE\.U32\.AND UP(\d), UPT, {U}, {U}, UPT": lambda *each: (
        f.below_uniform(*each),
        7 << 12,
    ),
    rf"USEL {U}, {U}, URZ, !UP(\d)": lambda *each: (f.choose_uniform(*each), 1 << 26),
    rf"IMAD\.WIDE\.U32 {R}, {R}, {R}, {U}": lambda into, a, b, u: (
        f.from_uniform_pair(into, u)._replace(low=0x7E25 | into << 16 | a << 24 | u << 32),
        b ^ f.RZ,
    ),
    rf"STG\.E\.128 \[{R}\.64\+{U}\], {R}": lambda a, u, v: (f.store_near(a, u, 0, v, 4), 1 << 26),
    rf"STG\.E\.128 \[{R}\.64\+{U}\+{HEX}\], {R}": lambda a, u, o, v: (
        f.store_near(a, u, o, v, 4),
        1 << 26,
    ),
}
KERNEL = """
.visible .entry k(.param .u64 p, .param .u32 n, .param .u32 m, .param .u32 q) .reqntid 128
{
 .reg .u64 a, b, c; .reg .u32 s<30>; .reg .pred r<8>; .shared .align 16 .b8 room[4096];
 ld.param.u64 a, [p]; ld.param.u32 s1, [n]; ld.param.u32 s2, [m]; ld.param.u32 s12, [q];
 mov.u32 s3, %ctaid.x; mov.u32 s20, %tid.x;
 mad.lo.u32 s9, s3, 24, s2; mad.lo.u32 s8, s9, s1, s2;
 setp.lt.u32 r1, s9, s12; selp.u32 s11, s8, 0, r1;
 and.b32 s13, s11, 504; shl.b32 s16, s3, 5; add.u32 s16, s16, s13;
 mov.u32 s18, room; add.u32 s17, s16, s18; and.b32 s17, s17, 4092;
 mul.wide.u32 b, s20, 4; add.u64 b, b, a;
LOOP:
 bar.sync 0; ld.shared.u32 s21, [s17]; ld.shared.u32 s22, [s17+128];
 mad.lo.u32 s22, s21, s20, s22; mul.wide.u32 c, s22, 8; add.u64 c, c, a; st.global.u64 [c], b;
 st.shared.u32 [s17+256], s22;
 add.u32 s17, s17, s13; setp.lt.u32 r2, s17, s8; @r2 bra LOOP;
 ret;
}
"""
OF_LIBRARIES = [
    ("STG.E.128 [R2.64+UR4], R12", 0x0C100D040000000C02007986),
    ("STG.E.128 [R2.64+UR4+0x200], R4", 0x0C100D040002000402007986),
    ("IMAD.WIDE.U32 R2, R13, R2, UR4", 0x0F8E0002000000040D027E25),
]
"""No PTX was found that makes these. Of cuBLASLt's kernels for sm_90, without guards; Triton's."""
_WORD = 0x081E0900_00000004FF007981
"""LDG.E R0, [RZ.U32+UR4] of the same: it says without a thread's register where it loads."""


def test_forms_are_what_the_assembler_makes() -> None:
    unseen = set(FORMS)
    for text, word in [*assembled(KERNEL, "sm_90a"), *OF_LIBRARIES]:
        for form, make in FORMS.items():
            if found := re.fullmatch(form, text):
                step, other = make(*map(_operand, found.groups()))
                made = (step.high ^ other) << 64 | step.low
                assert hex(made) == hex(word & _CONTROL), text
                unseen.discard(form)
    assert not unseen, "this kernel's code has none of these forms"


def test_they_read_back() -> None:
    steps = {
        "S2UR UR9, SR_VIRTUALSMID": f.uniform_special(9, f.SM),
        "ULOP3.LUT UR4, UR5, 0xfffffff8, URZ, 0xc0, !UPT": f.masked_uniform(4, 5, ~7),
        "UISETP.LT.U32.AND UP3, UPT, UR5, UR6, UPT": f.below_uniform(3, 5, 6),
        "USEL UR4, UR5, URZ, UP3": f.choose_uniform(4, 5, 3),
        "@!P2 IMAD.WIDE.U32 R4, RZ, RZ, UR8": f.from_uniform_pair(4, 8).when(2, holds=False),
        "@P1 STG.E.128 [RZ.U32+UR6+0x90], R8": f.store_near(f.RZ, 6, 0x90, 8, 4).when(1),
        "STG.E.64 [R28.U32+UR6+0x80], R8": f.store_near(28, 6, 0x80, 8, 2),
        "STG.E [R28.U32+UR6], R8": f.store_near(28, 6, 0, 8, 1),
    }
    words = assemble(list(steps.values()), 0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "words"
        path.write_bytes(b"".join(word.to_bytes(16, "little") for word in words))
        command = [tool("nvdisasm"), "--binary", "SM90", path]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.findall(r"/\*[0-9a-f]{4}\*/\s+(.*?)\s*;", ran.stdout)
    assert found[: len(steps)] == list(steps)


def test_libraries_loads_name_an_address_by_uniform_registers_alone() -> None:
    low, high = _WORD & (1 << 64) - 1, _WORD >> 64
    step = f.store_near(f.RZ, 4, 0, 0, 1)
    assert (low ^ step.low) & ~(0xFF << 32) == 0x981 ^ 0x986  # UR4 stands in the other half
    assert high ^ (step.high & ~0xFF) == 0x000E0000  # how a load is cached


def _operand(text: str) -> object:
    if not re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", text):
        return text
    return int(text, 16) if "x" in text else int(text)


def test_a_frame_of_pairs_leaves_one_more_for_the_entry() -> None:
    made = frame(room(("MOV R2, 0x1", None, None, 0)), 4, Cell(3, 0), near=True)
    assert made is not None and made.near
    pairs = (made.header, made.records, made.entered[0], made.count, made.room)
    assert all(each % 2 == 0 for each in pairs)
    assert (made.high, made.entered[1:]) == (made.header + 1, (made.entered[0] + 1, made.count + 1))
    assert len({each // 2 for each in pairs}) == len(pairs)
    assert made.all == {each + n for each in pairs for n in (0, 1)} - {made.room + 1}


@pytest.mark.parametrize(("first", "near"), [(50, True), (51, False)])
def test_where_pairs_are_too_few_there_is_another_frame(first: int, near: bool) -> None:
    named = [(f"UMOV UR{number}, 0x1", None, None, 0) for number in range(4, first)]
    made = frame(room(*named), 4, Cell(3, 0), near=True)
    assert made is not None and made.near == near


def test_other_chips_and_unknown_blocks_have_another_frame() -> None:
    plain = room(("MOV R2, 0x1", None, None, 0))
    for chip in CHIPS:
        made = frame(plain, 4, Cell(3, 0), chip, near=True)
        assert made is not None and made.near == (chip.name == "sm_90")
    for warps, near in ((None, True), (4, False)):
        made = frame(plain, warps, Cell(3, 0), near=near)
        assert made is not None and not made.near


def test_clocks_are_held_where_registers_are_free_until_a_slot_is_looked_for() -> None:
    found = start_near(replace(room(*LOADS), registers=40), 99, 8)
    assert found is not None and found.index == 3 and found.held
    ground = found.ground
    taken = [*range(found.clocks, found.clocks + 4), ground.thread]
    taken += [each + n for each in ground.quads for n in range(4)]
    assert len(set(taken)) == len(taken) and not {1, 2, 3, 4} & set(taken)
    # Each four of twelve are used at some time before.
    early = (("MOV R8, 0x1", None, None, 0), ("MOV R2, R8", None, None, 0), *LOADS[1:])
    found = start_near(replace(room(*early), registers=12), 99, 8)
    assert found is not None and found.index == 4 and not found.held


def test_steps_wait_less_for_the_uniform_datapath_on_itself() -> None:
    chain = [f.multiply_uniform(6, 5, 5, 5), f.multiply_uniform(7, 6, 6, 6)]
    other = [f.multiply_uniform(6, 5, 5, 5), f.from_uniform(8, 6)]
    stalls = [assemble(steps, 0, "")[0] >> 105 & 15 for steps in (chain, other)]
    assert stalls == [5, 9]


@pytest.mark.parametrize(
    "steps",
    [
        [f.multiply_uniform(6, 5, 4, 4), f.constant(4, 3, 0)],
        [f.add_uniform(6, 4, 1), f.constant(4, 3, 0)],
        [f.choose_uniform(6, 5, 1), f.below_uniform(1, 7, 8)],
    ],
)
def test_what_the_uniform_datapath_still_reads_is_not_overwritten(steps: list[Step]) -> None:
    words = assemble(steps, 0)
    assert words[0] >> 105 & 15 == 3
    hasty = [words[0] ^ (3 ^ 2) << 105, *words[1:]]

    def run(code: list[int]) -> None:
        Warp(Machine({(3, 0): 1}, bytearray(), 0), {}).run(code)

    with pytest.raises(HazardError, match="is written while"):
        run(hasty)
    run(words)


def test_what_is_only_read_is_overwritten_at_once() -> None:
    steps = [f.from_uniform(8, 6), f.copy_uniform(6, f.URZ), f.copy(9, 8)]
    assert reordered(steps) == [steps[0], steps[1], steps[2]]


@pytest.mark.parametrize(("before", "waits"), [(0, True), (20, False)])
def test_the_entry_waits_for_clocks_only_where_they_are_read_soon(before: int, waits: bool) -> None:
    lines = (*[("NOP", None, None, 0)] * before, *LOADS)
    made = replace(room(*lines), registers=40)
    reserved = frame(made, 4, Cell(3, 0), near=True)
    assert reserved is not None

    def assembled(steps: list[Step], board: int, settled: str = "RUP") -> tuple[int, ...]:
        return tuple(assemble(steps, board, settled))

    found = Entrance(made, reserved, assembled).made(99, HeaderValues(9))
    assert found is not None and [each.index for each in found] == [0, before + 3]
    reads, _ = found
    assert ((reads.words[-1] >> 105 & 15) > 2) == waits


@pytest.mark.parametrize("registers", range(8, 48))
def test_what_holds_clocks_until_then_is_used_for_nothing_else(registers: int) -> None:
    for lines in (LOADS, LOADS[-1:]):
        found = start_near(replace(room(*lines), registers=registers), 99, 8)
        if found is not None and found.held:
            taken = [*range(found.clocks, found.clocks + 4), found.ground.thread]
            taken += [each + n for each in found.ground.quads for n in range(4)]
            assert len({*taken}) == len(taken)
