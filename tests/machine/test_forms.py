"""Each form is what NVIDIA's assembler makes, bit for bit."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from ikp.machine import forms as f
from ikp.machine.assembler import Step
from tests.machine.assembled import assembled

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

_CONTROL = (1 << 105) - 1
R = r"R(\d+)"
U = r"UR(\d+)"
HEX = r"(-?0x[0-9a-f]+)"
PLACE = rf"desc\[{U}\]\[{R}\.64(?:\+{HEX})?\]"
_SPECIAL = {"TID.X": 0x21, "TID.Y": 0x22, "TID.Z": 0x23, "CTAID.X": 0x25, "CTAID.Y": 0x26}
_SPECIAL |= {"CTAID.Z": 0x27, "VIRTUALSMID": 0x43, "LANEID": 0}
FORMS = {
    rf"CS2R\.32 {R}, SR_CLOCKLO": f.clock,
    rf"CS2R {R}, SR_CLOCKLO": lambda a: f.wide(a, f.CLOCK),
    rf"CS2R {R}, SR_GLOBALTIMERLO": lambda a: f.wide(a, f.GLOBAL_TIMER),
    rf"S2R {R}, SR_([A-Z.]+)": lambda a, name: f.special(a, _SPECIAL[name]),
    rf"ULDC {U}, c\[{HEX}\]\[{HEX}\]": f.constant,
    rf"ULDC\.64 {U}, c\[{HEX}\]\[{HEX}\]": lambda a, b, c: f.constant(a, b, c, pair=True),
    rf"LDC {R}, c\[{HEX}\]\[{HEX}\]": f.load_constant,
    rf"LDC\.64 {R}, c\[{HEX}\]\[{HEX}\]": lambda a, b, c: f.load_constant(a, b, c, pair=True),
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
    rf"IMAD\.MOV\.U32 {R}, RZ, RZ, {HEX}": f.immediate,
    rf"IMAD\.MOV\.U32 {R}, RZ, RZ, {R}": f.copy,
    rf"IMAD\.U32 {R}, RZ, RZ, {U}": f.from_uniform,
    rf"R2UR {U}, {R}": f.to_uniform,
    rf"VIADD {R}, {R}, {HEX}": f.add,
    rf"IADD3 {R}, {R}, -{U}, RZ": f.subtract_uniform,
    rf"IADD3 {R}, {R}, {R}, RZ": f.sum_of,
    rf"IMAD {R}, {R}, {U}, {R}": f.multiply_add,
    rf"UIMAD {U}, {U}, {U}, URZ": f.multiply_uniform,
    rf"SHF\.R\.U32\.HI {R}, RZ, {HEX}, {R}": lambda a, bits, b: f.shift_right(a, b, bits),
    rf"USHF\.R\.U32\.HI {U}, URZ, {HEX}, {U}": lambda a, bits, b: f.shift_uniform_right(a, b, bits),
    rf"LOP3\.LUT P(\d), RZ, {R}, {HEX}, RZ, 0xc0, !PT": f.any_bit,
    # It likes to write these two with another comparison, or with a register of the thread's.
    rf"ISETP\.GE\.U32\.AND P(\d), PT, {R}, {U}, PT": lambda a, b, c: _changed(
        f.below(a, b, c), 7 << 12
    ),
    rf"ISETP\.LT\.U32\.AND P(\d), PT, {R}, {R}, !P(\d)": lambda a, b, c, d: _changed(
        f.below(a, b, c, unless=d), 1 << 27, 0x0E00
    ),
    rf"ISETP\.NE\.U32\.AND P(\d), PT, {R}, {HEX}, PT": f.differs,
    rf"ISETP\.GT\.U32\.AND P(\d), PT, {R}, {HEX}, PT": lambda a, b, c: _changed(
        f.below_constant(a, b, c), 5 << 12
    ),
    rf"SEL {R}, {R}, {HEX}, P(\d)": f.choose,
    rf"P2R {R}, PR, RZ, {HEX}": lambda a, mask: f.save(a, mask.bit_length() - 1),
    rf"STG\.E {PLACE}, {R}": lambda d, a, o, v: f.store(a, o or 0, v, 1, d),
    rf"STG\.E\.64 {PLACE}, {R}": lambda d, a, o, v: f.store(a, o or 0, v, 2, d),
    rf"STG\.E\.128 {PLACE}, {R}": lambda d, a, o, v: f.store(a, o or 0, v, 4, d),
    rf"REDG\.E\.ADD\.STRONG\.GPU {PLACE}, {R}": lambda d, a, o, v: f.count_up(a, o or 0, v, d),
}
"""How the disassembler writes each form, and who makes it of the operands."""

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
MATRIX = """
.visible .entry k(.param .u64 p, .param .u32 n)
{
 .reg .u64 a, x, y; .reg .f32 f<4>; .reg .u32 c; .reg .pred q;
 ld.param.u64 a, [p]; ld.param.u32 c, [n];
 ld.global.u64 x, [a]; ld.global.u64 y, [a+8]; setp.ne.u32 q, c, 0;
 wgmma.fence.sync.aligned;
 wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {f0, f1, f2, f3}, x, y, q, 1, 1, 0, 0;
 wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
 st.global.v4.f32 [a+16], {f0, f1, f2, f3};
 ret;
}
"""


@pytest.fixture(scope="module")
def instructions():
    return [
        one
        for ptx in (KERNEL, LOOPS, ELECTED, SAVED, CLOCKS, MATRIX)
        for one in assembled(ptx, "sm_90a")
    ]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.partition(" ")[0].replace("\\", ""))
def test_a_form_is_what_the_assembler_makes(form, instructions):
    seen = 0
    for text, word in instructions:
        guard, plain = re.fullmatch(r"(?:@(\S+) )?(.*)", text).groups()
        found = re.fullmatch(form, plain.replace(".reuse", ""))
        if not found or "LANEID" in plain:
            continue
        step = FORMS[form](*map(_operand, found.groups()))
        if guard:
            step = step.when(int(guard[-1]), holds=guard[0] != "!")
        made = step.high << 64 | step.low & ~0xF000 | (step.guard | step.inverted << 3) << 12
        assert hex(made) == hex(word & _CONTROL), text
        seen += 1
    assert seen, "these kernels' code has none of this form"


def _changed(step: Step, high: int, low: int = 0) -> Step:
    return replace(step, high=step.high ^ high, low=step.low ^ low)


def _operand(text):
    if text is None or text in _SPECIAL:
        return text
    return int(text, 16) if "x" in text else int(text)
