"""A module of kernels that have, between them, every way to name a place in machine code."""

from __future__ import annotations

import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from ikp.sass.disassembly.tool_paths import tool

KERNELS = ("loop", "divides", "chooses", "calls", "prints")
CHIPS = ("sm_80", "sm_90a", "sm_90a old", "sm_100a")
"""What it is assembled for; "old" is by Triton's other ptxas, which writes ABI 7."""

PTX = """\
.version 8.7
.target TARGET
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.file 1 "kernels.py"
.global .align 1 .b8 text[4] = {104, 105, 10, 0};
.func (.reg .b32 out) mix (.reg .b32 a, .reg .b32 b) {
 .reg .pred p;
 setp.gt.s32 p, a, b;
 @p bra MORE;
 add.s32 out, a, b;
 ret;
MORE:
 mul.lo.s32 out, a, b;
 ret;
}
.visible .entry loop(.param .u64 p, .param .u32 n) {
 .reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .f32 %f<4>; .reg .pred %p<4>;
 .loc 1 3 0
 ld.param.u64 %rd0,[p]; ld.param.u32 %r0,[n];
 mov.u32 %r1, %tid.x;
 mul.wide.u32 %rd1, %r1, 4; add.u64 %rd0, %rd0, %rd1;
 mov.f32 %f0, 0f00000000;
L:
 .loc 1 5 0
 ld.global.f32 %f1,[%rd0];
 bar.sync 0;
 setp.lt.f32 %p0,%f1,0f3f800000;
 @%p0 bra ELSE;
 sqrt.rn.f32 %f1,%f1;
 div.rn.f32 %f1,%f1,%f0;
ELSE:
 .loc 1 7 0
 add.f32 %f0,%f0,%f1;
 add.u32 %r1,%r1,1;
 setp.lt.u32 %p1,%r1,%r0;
 @%p1 bra L;
 .loc 1 400 0
 st.global.f32 [%rd0],%f0;
 ret;
}
.visible .entry divides(.param .u64 p, .param .u64 n) {
 .reg .b64 %rd<6>; .reg .b32 %r<4>; .reg .pred %q;
 ld.param.u64 %rd0,[p]; ld.param.u64 %rd1,[n];
 .loc 1 20 0
 ld.global.u64 %rd2,[%rd0];
 setp.eq.u64 %q, %rd2, 7;
 @%q bra SKIP;
 .loc 1 22 0
 div.u64 %rd3,%rd2,%rd1;
 rem.s64 %rd4,%rd3,%rd2;
 st.global.u64 [%rd0],%rd4;
SKIP:
 st.global.u64 [%rd0+8],%rd3;
 ret;
}
.visible .entry chooses(.param .u64 p, .param .u32 n) {
 .reg .b64 %rd<4>; .reg .b32 %r<8>;
 ld.param.u64 %rd0,[p]; ld.param.u32 %r0,[n];
 ld.global.u32 %r1,[%rd0];
TS: .branchtargets A, B, C, D;
 brx.idx %r0, TS;
A: mul.lo.u32 %r1,%r1,7; bra END;
B: add.u32 %r1,%r1,%r0; st.global.u32 [%rd0+8],%r1; bra END;
C: xor.b32 %r1,%r1,%r0; st.global.u32 [%rd0+16],%r1; bra END;
D: popc.b32 %r1,%r1; st.global.u32 [%rd0+32],%r1;
END:
 st.global.u32 [%rd0],%r1;
 ret;
}
.visible .entry calls(.param .u64 p, .param .u32 n) {
 .reg .b64 %rd<4>; .reg .b32 %r<8>;
 ld.param.u64 %rd0,[p]; ld.param.u32 %r0,[n];
 ld.global.u32 %r1,[%rd0];
 call (%r2), mix, (%r1, %r0);
 call (%r3), mix, (%r2, %r1);
 st.global.u32 [%rd0],%r3;
 ret;
}
.visible .entry prints(.param .u64 p) {
 .reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .pred %q;
 ld.param.u64 %rd0,[p];
 ld.global.u32 %r1,[%rd0];
 setp.ne.u32 %q,%r1,3;
 @%q bra DONE;
 mov.u64 %rd1, text; cvta.global.u64 %rd1,%rd1; mov.u64 %rd2, 0;
 { .param .b64 f; .param .b64 a; .param .b32 r;
 st.param.b64 [f],%rd1; st.param.b64 [a],%rd2;
 call.uni (r), vprintf, (f, a); }
DONE:
 st.global.u32 [%rd0],%r1;
 ret;
}
"""


@cache
def cubin(chip: str = "sm_90a", ptx: str = PTX) -> bytes:
    """Assemble the module."""
    target, _, old = chip.partition(" ")
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "module.ptx", Path(folder) / "module.cubin"
        source.write_text(ptx.replace("TARGET", target))
        assembler = tool("ptxas" if old else "ptxas-blackwell")
        command = [assembler, "-lineinfo", f"-arch={target}", source, "-o", out]
        subprocess.run(command, check=True)
        return out.read_bytes()


def corpus() -> list[Path]:
    """Return the cubins of the folder that IKP_CORPUS names; `python -m tools.corpus` fills one."""
    folder = os.environ.get("IKP_CORPUS")
    return sorted(Path(folder).rglob("*.cubin")) if folder else []
