"""Instructions keep the source lines that they come from, around ikp's assembly and through it."""

from __future__ import annotations

import pytest

from ikp.backends.triton.passes.schedule import schedule
from ikp.ptx.instructions import joined, statements, without_counted_lines
from tests.machines.ptx_order import located

pytestmark = pytest.mark.any_pins

BLOCK = """\
\t.loc\t1 38 13                         // gemm.py:38:13
\t// begin inline asm
\t// ikp.clock
\t.loc\t1 39 13                         // gemm.py:39:13
mov.u32 {start}, %clock;
// ikp.end
\t// end inline asm
"""
STORE = """\
\t.loc\t1 38 13                         // gemm.py:38:13
\t// begin inline asm
\t// ikp.clock
\t.loc\t1 39 13                         // gemm.py:39:13
mov.u32 %r2, %clock;
// ikp.store 5 "load"
{
.reg .pred p; .reg .u32 n; .reg .u64 a;
\t.loc\t1 44 13                         // gemm.py:44:13
@p st.global.v4.b32 [a], {0x20000005, %r1, %r2, %r3};
}
// ikp.end
\t// end inline asm
"""


def test_what_llvm_counts_inside_a_block_goes() -> None:
    text = BLOCK.format(start="%r1") + "\tcp.async.wait_group 2;\n"
    lines = joined(without_counted_lines(statements(text)))
    assert dict(located(lines))["\tcp.async.wait_group 2;"] == ".loc\t1 38 13"
    assert dict(located(lines))["mov.u32 %r1, %clock;"] == ".loc\t1 38 13"
    assert lines.count(".loc") == 1


def test_what_is_outside_blocks_stays() -> None:
    text = "\t.loc\t1 1 1\n\tadd.s32 %r1, %r1, 1;\n\t.loc\t1 2 1\n\tret;\n"
    assert joined(without_counted_lines(statements(text))) == text


def test_what_is_moved_keeps_its_line_and_so_does_what_is_passed() -> None:
    text = f"// ikp.schedule\n{BLOCK.format(start='%r1')}\tbar.sync 0;\n{STORE}"
    text += "\tadd.s32 %r9, %r3, 64;\n\tld.global.b32 %r5, [%rd1];\n\t.loc\t1 50 5\n\tret;\n"
    placed = schedule(text).split("\n")
    lines = dict(located("\n".join(placed)))
    assert placed.index('// ikp.store 5 "load"') > placed.index("\tld.global.b32 %r5, [%rd1];")
    for line in ("@p st.global.v4.b32 [a], {0x20000005, %r1, %r2, %r3};", "\tbar.sync 0;",
                 "\tld.global.b32 %r5, [%rd1];"):  # fmt: skip
        assert lines[line] == ".loc\t1 38 13"
    assert lines["\tret;"] == ".loc\t1 50 5"


def test_a_store_stays_above_a_clock_read_into_its_start_though_llvm_counts_lines() -> None:
    """As in a loop whose token is given to its next iteration: %r1 is read, then written anew."""
    placed = schedule(f"// ikp.schedule\n{STORE}{BLOCK.format(start='%r1')}\tbar.sync 0;\n\tret;\n")
    assert placed.index("st.global.v4") < placed.index("mov.u32 %r1, %clock")
