"""Kernels with a line that costs time, and each without it: what ``--try`` should measure."""

from __future__ import annotations

from dataclasses import dataclass

THREADS, BLOCKS = 128, 264
BEFORE = """
.visible .entry {name}(.param .u64 p) .reqntid 128
{{
 .reg .u64 a, b, c, d; .reg .u32 s<20>; .reg .f32 f<8>; .reg .pred q, r; .shared .b32 room[256];
 ld.param.u64 a, [p]; mov.u32 s1, %tid.x; mov.u32 s3, %ctaid.x; mov.u32 s2, 0;
 mad.lo.u32 s4, s3, 128, s1; mad.wide.u32 b, s4, 4, a; mov.f32 f1, 0f3f800000;
 and.b32 s6, s4, 1023; mad.wide.u32 c, s6, 512, a; add.u64 c, c, 1048576;
LOOP: .pragma "nounroll";
"""
AFTER = """
 add.u32 s2, s2, 1; setp.lt.u32 q, s2, {turns}; @q bra LOOP;
 st.global.f32 [b], f1; ret;
}}
"""
TURN = (
    "and.b32 s7, s2, 7; mad.wide.u32 d, s7, {}, {}; ld.global.f32 f2, [d+{}]; add.f32 f1, f1, f2;"
)
WORK = " fma.rn.f32 f1, f1, f1, f1;\n"


@dataclass(frozen=True)
class Case:
    """A kernel: its work, and the line that is taken out."""

    name: str
    kind: str
    line: str
    instead: str = ""
    work: int = 20
    turns: int = 300

    def ptx(self, line: str, name: str) -> str:
        body = WORK * self.work + f" {line}\n"
        return BEFORE.format(name=name) + body + AFTER.format(turns=self.turns)

    @property
    def whole(self) -> str:
        return self.ptx(self.line, self.name)

    @property
    def without(self) -> str:
        return self.ptx(self.instead, f"{self.name}_without")


CASES = [
    Case("atomics", "atomic", "red.global.add.f32 [a], f1;"),
    Case("barriers", "barrier", "bar.sync 0;", work=16, turns=3000),
    Case("stores", "store", "st.volatile.global.f32 [c], f1;", work=60),
    Case(
        *("strided", "load"),
        TURN.format(64, "c", 0),
        TURN.format(4, "a", 4096),
    ),
    Case("cheap", "barrier", "bar.sync 0;", work=400, turns=60),
]
SPINS = (
    BEFORE.format(name="spins")
    + " ld.volatile.global.u32 s5, [a+3145728]; setp.ne.u32 r, s5, 0; @r bra LOOP;\n"
    + AFTER.format(turns=2)
)
