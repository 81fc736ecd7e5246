"""Inline assembly as people write it: statements over several lines, or several on one."""

import triton
import triton.language as tl

import ikp

TYPES = {"x": "*i32", "out": "*i32"}


@triton.jit
def by_hand(x, out, prof):
    """Statements across lines and beside each other, a branch, registers of any name."""
    ikp.init(prof)
    value = tl.load(x)
    with ikp.range("first", value):
        value = tl.inline_asm_elementwise(
            """.reg .b32 $$acc_1;
            add.s32
                $$acc_1,
                $1, 5; bar.sync 1, 128;
            add.s32 $0, $$acc_1, 1;""",
            "=r,r", [value], tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    with ikp.range("second"):
        value = tl.inline_asm_elementwise(
            """xor.b32 $0, $1,
                5;
            { .reg .pred p; mov.u32 $0, $1; setp.eq.s32 p, $1, 3; @p bra LX;
            add.s32 $0, $1, /* a ; and a } */ 2; // done;
            LX: bar.sync 1, 128; }
            mov.b32
                $0,
                $0;""",
            "=&r,r", [value], tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    for _ in tl.static_range(2):  # a partner that runs other code may count on both
        with ikp.range("meet"):
            tl.inline_asm_elementwise(
                """bar.sync 1, 128;
                mov.u32 $0, 0;""",
                "=r", [], tl.int32, is_pure=False, pack=1,
            )  # fmt: skip
    with ikp.range("third", value):
        tl.store(out, value)
