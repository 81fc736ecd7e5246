"""Each form is what NVIDIA's assembler makes, bit for bit."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from ikp.sass.assembly import forms as f
from ikp.sass.assembly.assembler import Step
from ikp.sass.assembly.chips import CHIPS, HOPPER
from tests.sass.assembled import assembled

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

_CONTROL = (1 << 105) - 1
R = r"R(\d+)"
U = r"UR(\d+)"
HEX = r"(-?0x[0-9a-f]+)"
BANK = rf"c\[{HEX}\]\[(?:{HEX}|U?RZ)\]"
PLACE = rf"\[{R}\.64(?:\+{HEX})?\]"
_SPECIAL = {"TID.X": 0x21, "TID.Y": 0x22, "TID.Z": 0x23, "CTAID.X": 0x25, "CTAID.Y": 0x26}
_SPECIAL |= {"CTAID.Z": 0x27, "VIRTUALSMID": 0x43, "LANEID": 0}
FORMS: dict[str, Callable[..., Step]] = {
    rf"CS2R\.32 {R}, SR_CLOCKLO": f.clock,
    rf"CS2R {R}, SR_CLOCKLO": lambda a: f.wide(a, f.CLOCK),
    rf"CS2R {R}, SR_GLOBALTIMERLO": lambda a: f.wide(a, f.GLOBAL_TIMER),
    rf"S2R {R}, SR_([A-Z.]+)": lambda a, name: f.special(a, _SPECIAL[name]),
    rf"(?:ULDC|LDCU) {U}, {BANK}": lambda a, b, c: f.constant(a, b, c or 0),
    rf"(?:ULDC|LDCU)\.64 {U}, {BANK}": lambda a, b, c: f.constant(a, b, c or 0, pair=True),
    rf"(?:LDC|MOV) {R}, {BANK}": lambda a, b, c: f.load_constant(a, b, c or 0),
    rf"LDC\.U8 {R}, c\[{HEX}\]\[{R}(?:\+{HEX})?\]": lambda a, b, at, c: f.load_byte(
        a, b, c or 0, at
    ),
    rf"LDC\.64 {R}, {BANK}": lambda a, b, c: f.load_constant(a, b, c or 0, pair=True),
    rf"UMOV {U}, URZ": lambda a: f.copy_uniform(a, f.URZ),
    rf"UIADD3 {U}, {U}, {HEX}, URZ": f.add_uniform,
    rf"LEA {R}, {R}, {U}, {HEX}": f.scaled,
    rf"IMAD {R}, {R}, {R}, {R}": f.multiply,
    rf"IMAD {R}, {R}, {R}, RZ": lambda a, b, c: f.multiply(a, b, c, f.RZ),
    r"ELECT P(\d), URZ, PT": f.elect,
    rf"ISETP\.GE\.U32\.AND P(\d), PT, {R}, {R}, PT": lambda a, b, c: _changed(
        f.below_other(a, b, c), 7 << 12
    ),
    rf"ISETP\.LT\.U32\.AND P(\d), PT, {R}, {U}, P(\d)": lambda a, b, c, d: f.below(
        a, b, c, where=d
    ),
    rf"ISETP\.NE\.U32\.AND P(\d), PT, RZ, {U}, P(\d)": lambda a, b, c: _changed(
        f.below(a, f.RZ, b, where=c), 4 << 12
    ),
    rf"(?:IMAD\.MOV\.U32|MOV) {R}(?:, RZ, RZ)?, {HEX}": f.immediate,
    rf"(?:IMAD\.MOV\.U32|MOV) {R}(?:, RZ, RZ)?, {R}": f.copy,
    rf"(?:IMAD\.U32|MOV) {R}(?:, RZ, RZ)?, {U}": f.from_uniform,
    rf"R2UR {U}, {R}": f.to_uniform,
    rf"(?:VIADD|IADD3|IADD) {R}, {R}, {HEX}(?:, RZ)?": f.add,
    rf"SHF\.R\.U32\.HI {R}, RZ, {HEX}, {R}": lambda a, bits, b: f.shift_right(a, b, bits),
    rf"SHF\.R\.W\.U32 {R}, {R}, {R}, {R}": lambda a, low, bits, high: _changed(
        f.rotate_right(a, low, bits), low ^ high
    ),
    rf"ISETP\.LT\.U32\.AND P(\d), PT, {R}, {R}, P(\d)": lambda a, b, c, d: f.below_other(
        a, b, c, where=d
    ),
    # It likes to write these two with another comparison, or with a register of the thread's.
    rf"ISETP\.GE\.U32\.AND P(\d), PT, {R}, {U}, PT": lambda a, b, c: _changed(
        f.below(a, b, c), 7 << 12
    ),
    rf"ISETP\.LT\.U32\.AND P(\d), PT, {R}, {R}, !P(\d)": lambda a, b, c, d: _changed(
        f.below(a, b, c, where=d), 1 << 27 | 1 << 26, 0x0E00
    ),
    rf"ISETP\.NE\.U32\.AND P(\d), PT, {R}, {HEX}, PT": f.differs,
    rf"ISETP\.GT\.U32\.AND P(\d), PT, {R}, {HEX}, PT": lambda a, b, c: _changed(
        f.below_constant(a, b, c), 5 << 12
    ),
    rf"SEL {R}, {R}, {HEX}, P(\d)": f.choose,
    rf"P2R {R}, PR, RZ, {HEX}": lambda a, mask: f.save(a, mask.bit_length() - 1),
    rf"STG\.E {PLACE}, {R}": lambda a, o, v: f.store(a, o or 0, v, 1, 0),
    rf"STG\.E\.64 {PLACE}, {R}": lambda a, o, v: f.store(a, o or 0, v, 2, 0),
    rf"STG\.E\.128 {PLACE}, {R}": lambda a, o, v: f.store(a, o or 0, v, 4, 0),
    rf"REDG?\.E\.ADD\.STRONG\.GPU {PLACE}, {R}": lambda a, o, v: f.count_up(a, o or 0, v, 0),
}
"""How the disassembler writes each form, whatever the chip, and who makes it of the operands."""

KERNEL = """
.visible .const .align 16 .b8 cell[32];
.visible .entry k(.param .u64 p, .param .u32 n)
{
 .reg .u32 r<60>; .reg .u64 d<20>; .reg .pred p<8>;
 ld.param.u64 d0, [p]; ld.param.u32 r0, [n];
 mov.u64 d1, %globaltimer; mov.u64 d2, %clock64;
 mov.u32 r1, %tid.x; mov.u32 r2, %tid.y; mov.u32 r3, %tid.z;
 mov.u32 r4, %ntid.x; mov.u32 r5, %ntid.y; mov.u32 r6, %ntid.z;
 mov.u32 r7, %ctaid.x; mov.u32 r8, %ctaid.y; mov.u32 r9, %ctaid.z; mov.u32 r13, %smid;
 mov.u32 r10, %nctaid.x; mov.u32 r11, %nctaid.y;
 mad.lo.u32 r12, r3, r5, r2; mad.lo.u32 r12, r12, r4, r1;
 mad.lo.u32 r14, r9, r11, r8; mad.lo.u32 r14, r14, r10, r7;
 mul.lo.u32 r15, r4, r5; mul.lo.u32 r15, r15, r6; add.u32 r15, r15, 31; shr.u32 r15, r15, 5;
 shr.u32 r16, r12, 5; mad.lo.u32 r17, r14, r15, r16; and.b32 r18, r12, 31;
 ld.const.u64 d3, [cell]; ld.const.u32 r20, [cell+8]; ld.const.u32 r21, [cell+12];
 mad.lo.u32 r22, r17, r20, 128; cvt.u64.u32 d4, r22; add.u64 d5, d3, d4;
 setp.eq.u32 p1, r18, 0; setp.lt.and.u32 p2, r17, r21, p1; setp.ge.u32 p3, r17, r21;
 @p2 st.global.v2.u64 [d5], {d1, d2};
 selp.u32 r23, r22, 0xffffffff, p2; st.global.u32 [d5+16], r23;
 mov.u32 r24, 0;
 mov.u32 r50, 0x24000001; mov.u32 r51, 3; st.global.v2.u32 [d5+24], {r50, r51};
LOOP:
 mov.u32 r25, %clock;
 ld.global.u32 r26, [d0+16]; add.u32 r27, r27, r26;
 mov.u32 r28, %clock;
 @p3 st.global.v4.u32 [d5+-32], {r24, r25, r28, r27};
 add.u32 r24, r24, 1; sub.u32 r27, r27, r21; add.u32 r12, r12, 16;
 setp.ne.u32 p4, r12, 0x12345; @p4 st.global.u32 [d0+8], r24;
 setp.lt.u32 p5, r24, r0; @p5 bra LOOP;
 @p2 red.global.add.u32 [d5+52], r27;
 ret;
}
"""


LOOPS = """
.visible .const .align 16 .b8 cell[16];
.visible .entry k(.param .u64 p, .param .u32 n) .reqntid 128
{
 .reg .u64 a, b, seg; .reg .u32 t, s, e, c, i, cap, off, tag, u, v; .reg .pred q, r;
 ld.param.u64 a, [p]; ld.param.u32 c, [n];
 ld.const.u64 seg, [cell]; ld.const.u32 cap, [cell+8];
 mov.u32 t, %tid.x; mov.u32 u, %ctaid.x; mad.lo.u32 off, u, cap, t;
 mov.u32 i, 0; mov.u32 t, 0;
L:
 mov.u32 s, %clock;
 ld.global.u32 u, [a+16]; add.u32 t, t, u;
 mov.u32 e, %clock;
 setp.lt.u32 q, off, cap; setp.ge.u32 r, off, 77; setp.lt.and.u32 r, off, c, !r;
 selp.u32 v, t, e, r;
 cvt.u64.u32 b, off; add.u64 b, b, seg;
 @q st.global.v4.u32 [b], {v, s, e, t};
 add.u32 off, off, 16;
 add.u32 i, i, 1; setp.lt.u32 r, i, c; @r bra L;
 st.global.u32 [a+32], t;
 ret;
}
"""
ELECTED = """
.visible .entry k(.param .u64 p, .param .u32 n, .param .u32 m) .reqntid 128
{
 .reg .u64 a; .reg .u32 s<8>, c, d, t, w, x, lane; .reg .pred q, el;
 ld.param.u64 a, [p]; ld.param.u32 c, [n]; ld.param.u32 d, [m];
 mov.u32 t, %tid.x; mov.u32 w, %laneid; setp.le.u32 q, w, 9;
 @q st.global.u32 [a+80], w;
 mad.lo.u32 w, t, 16, d; shl.b32 x, t, 5; add.u32 x, x, c;
 st.global.u32 [a+64], w; st.global.u32 [a+68], x;
 ld.global.v4.u32 {s0, s1, s2, s3}, [a];
 mad.lo.u32 s4, s0, s1, s2; mul.lo.u32 s5, s2, s3;
 setp.lt.u32 q, s4, s5; selp.u32 s6, s0, s1, q;
 st.global.v4.u32 [a+16], {s4, s5, s6, s0};
 elect.sync lane|el, 0xffffffff;
 setp.lt.and.u32 q, s6, c, el;
 @q st.global.u32 [a+32], t;
 elect.sync lane|el, 0xffffffff;
 setp.ne.and.u32 q, d, 0, el;
 @q st.global.u32 [a+36], t;
 ret;
}
"""
MANY = 24
SAVED = f"""
.visible .entry k(.param .u64 p, .param .u32 n) .reqntid 128
{{
 .reg .u64 a; .reg .u32 v<{MANY}>, i, c; .reg .pred q<{MANY}>, r;
 ld.param.u64 a, [p]; ld.param.u32 c, [n];
 {" ".join(f"ld.global.u32 v{n}, [a+{4 * n}]; setp.lt.u32 q{n}, v{n}, 9;" for n in range(MANY))}
 mov.u32 i, 0;
L:
 {" ".join(f"@q{n} st.global.u32 [a+{400 + 4 * n}], i;" for n in range(MANY))}
 bar.sync 0; add.u32 i, i, 1; setp.lt.u32 r, i, c; @r bra L;
 ret;
}}
"""
CLOCKS = """
.visible .entry k(.param .u64 p, .param .u32 n)
{
 .reg .u64 a; .reg .u32 s, e;
 ld.param.u64 a, [p];
 mov.u32 s, %clock; mov.u32 e, %clock; sub.u32 e, e, s; st.global.u32 [a], e;
 ret;
}
"""
BULK = """
.visible .entry k(.param .u64 p, .param .u32 n)
{
 .reg .u64 a, b; .reg .u32 t, s, m; .shared .align 128 .b8 room[1024];
 ld.param.u64 a, [p]; ld.global.u64 b, [a]; ld.global.u32 t, [a+8];
 mov.u32 s, room; add.u32 t, t, s; add.u32 m, s, 512;
 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [t], [b], 16, [m];
 ret;
}
"""
UNIFORM = """
.visible .entry k(.param .u64 p, .param .u32 n)
{
 .reg .u64 a, b; .reg .u32 i, j, w, x, y, z; .reg .pred q, r;
 ld.param.u64 a, [p]; mov.u32 i, %tid.x; mul.wide.u32 b, i, 4; add.u64 b, b, a;
 mov.u32 x, %ctaid.z; mov.u32 y, %nctaid.y; mul.lo.u32 z, x, y; mov.u32 x, %ctaid.x;
 mul.lo.u32 z, z, x; shr.u32 z, z, 3; mad.lo.u32 w, i, z, i; st.global.u32 [b], w;
 sub.u32 j, i, z; st.global.u32 [b+256], j;
 ld.global.u32 x, [b+512]; ld.global.u32 y, [b+1024]; ld.global.u32 j, [b+2048];
 add.u32 z, x, y; shl.b32 w, x, j; add.u32 w, w, z; add.u32 z, z, j;
 setp.gt.u32 q, x, 9; setp.lt.and.u32 r, y, j, !q; @r st.global.u32 [b+64], w;
 st.global.u32 [b+32], z; st.global.v4.u32 [b+128], {x, y, x, x};
 ret;
}
"""


SELECTED = """
.visible .const .align 16 .b8 cell[72];
.visible .entry k(.param .u64 p, .param .u32 n)
{
 .reg .u64 a, b; .reg .u32 s<4>, t, x, y, z; .reg .pred q;
 ld.param.u64 a, [p]; mov.u32 t, %tid.x; mul.wide.u32 b, t, 4; add.u64 b, b, a;
 shr.u32 t, t, 5; mov.u32 x, cell; add.u32 x, x, t; ld.const.u8 y, [x+36];
 ld.global.v4.u32 {s0, s1, s2, s3}, [b];
 mad.lo.u32 s0, s0, s1, y; shf.r.wrap.b32 z, s0, s0, s1;
 setp.gt.u32 q, y, 32; setp.lt.and.u32 q, z, s2, q;
 @q st.global.u32 [b+4], s3; st.global.u32 [b+8], z;
 ret;
}
"""


EARLIER = """
.visible .entry k(.param .u64 p, .param .u32 n)
{
 .reg .u64 a, b; .reg .u32 s<8>, i, w, x, y, z; .reg .pred q, r;
 ld.param.u64 a, [p]; mov.u32 i, %tid.x; mul.wide.u32 b, i, 4; add.u64 b, b, a;
 mov.u32 x, %ctaid.z; mov.u32 y, %nctaid.y; mul.lo.u32 z, x, y; mov.u32 x, %ctaid.x;
 mul.lo.u32 z, z, x; shr.u32 z, z, 3; mad.lo.u32 w, i, z, i; st.global.u32 [b], w;
 shl.b32 w, i, 5; add.u32 w, w, z; st.global.u32 [b+4096], w;
 ld.global.v4.u32 {s0, s1, s2, s3}, [a];
 mad.lo.u32 s4, s0, s1, s2; mul.lo.u32 s5, s2, s3;
 setp.lt.u32 q, s4, s5; selp.u32 s6, s0, s1, q;
 st.global.v4.u32 [a+16], {s4, s5, s6, s0};
 setp.gt.u32 r, s0, 9;
 setp.lt.and.u32 q, s6, z, r; @q st.global.u32 [a+32], s6;
 setp.gt.u32 r, s1, 9;
 setp.ne.and.u32 q, z, 0, r; @q st.global.u32 [a+36], s5;
 ret;
}
"""
"""What ``ELECTED`` has beside that, for chips that can't elect a thread."""
TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a")
_OF_LIBRARIES = [
    ("R2UR UR19, R8", 0x000E000000000000081373C2),
    ("UMOV UR4, URZ", 0x080000000000003F00047C82),
]
"""On sm_80, no PTX was found that makes these. Of kernels of torch 2.11, cu128."""
_EXPANDED = ("ELECT", r"LDC\.64")
"""What several instructions stand for on sm_80."""


def _module(target: str) -> list[tuple[str, int]]:
    """Assemble all kernels at once: the disassembler takes its time to start."""
    later = _number(target) >= 90
    kernels = [
        KERNEL,
        LOOPS,
        CLOCKS,
        UNIFORM,
        SAVED,
        SELECTED,
        *([ELECTED, BULK] if later else [EARLIER]),
    ]
    numbered = [
        each.replace(" k(", f" k{at}(").replace("cell", f"cell{at}")
        for at, each in enumerate(kernels)
    ]
    made = assembled("".join(numbered), target)
    return made if later else [*made, *_OF_LIBRARIES]


def _number(target: str) -> int:
    return int(target[3:].rstrip("a"))


@pytest.mark.parametrize("target", TARGETS)
def test_forms_are_what_the_assembler_makes(target: str) -> None:
    chip = next(each for each in CHIPS if each.name == target.rstrip("a"))
    chip = replace(
        chip, places={}, parameters=HOPPER.parameters
    )  # the operands are this chip's own
    unseen = {form for form in FORMS if not (chip.late and form.startswith(_EXPANDED))}
    for text, word in _module(target):
        guard, plain = re.fullmatch(r"(?:@(\S+) )?(.*)", text).groups()
        plain = re.sub(r"desc\[UR\d+\]|\.reuse", "", plain)
        plain = re.sub("U?PT, U?PT, ", "", plain) if "IADD3" in plain else plain
        for form, make in FORMS.items():
            found = re.fullmatch(form, plain)
            if not found or (guard and "U" in guard):
                continue
            (step,) = chip.fitted([make(*map(_operand, found.groups()))])
            if step.low & 0xFFF != word & 0xFFF:
                continue  # the same thing, done by another instruction
            if guard:
                step = step.when(int(guard[-1]), holds=guard[0] != "!")
            descriptor = word >> 64 & 63 if "ST" in plain or "RED" in plain else 0
            made = (step.high | descriptor) << 64 | step.low & ~0xF000
            made |= (step.guard | step.inverted << 3) << 12
            assert hex(made) == hex(word & _CONTROL), text
            unseen.discard(form)
    assert not unseen, "these kernels' code has none of these forms"


VOTED = """
.visible .entry k(.param .u64 p, .param .u32 n)
{
 .reg .u64 a, b; .reg .u32 t, c, votes, own; .reg .pred q;
 ld.param.u64 a, [p]; ld.param.u32 c, [n]; mov.u32 t, %tid.x;
 mul.wide.u32 b, t, 4; add.u64 b, b, a;
 setp.lt.u32 q, t, c; @q bra D;
 activemask.b32 votes; mov.u32 own, %lanemask_le; st.global.u32 [b], votes;
 setp.le.u32 q, votes, own; @q st.global.u32 [b+64], t;
D:
 ret;
}
"""


@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_89"])
def test_where_nobody_is_elected_threads_vote(target: str) -> None:
    chip = next(each for each in CHIPS if each.name == target)
    seen = {text: word & _CONTROL for text, word in assembled(VOTED, target)}
    text = next(each for each in seen if each.startswith("VOTE"))
    compared = next(each for each in seen if each.startswith("ISETP.GT.U32.AND P0, PT, R"))
    votes, own = (int(each) for each in re.findall(R, compared))
    assert text == f"VOTE.ANY R{votes}, PT, PT"
    used = [f.immediate(votes, 1), f.immediate(own, 1)]
    made = chip.fitted([f.elect(0), *used])
    assert made[3:] == used
    words = [step.high << 64 | step.low for step in (*made[:2], _changed(made[2], 7 << 12))]
    assert words == [seen[text], seen[f"S2R R{own}, SR_LEMASK"], seen[compared]]


def _changed(step: Step, high: int, low: int = 0) -> Step:
    return step._replace(high=step.high ^ high, low=step.low ^ low)


def _operand(text):
    if text is None or text in _SPECIAL:
        return text
    return int(text, 16) if "x" in text else int(text)
