"""PTX as statements: every text comes back byte for byte, and the language's forms are known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.backends.triton.passes.schedule import schedule
from ikp.ptx.instructions import StatementKind, in_assembly, joined, statements
from ikp.targets.ptx_slot import SCHEDULE_MARK

pytestmark = pytest.mark.any_pins

PIECES = (
    "add.s32 %r1, %r2, 3;", "\n", "\t", " ", "{", "}", "// note", "// begin inline asm",
    "// end inline asm", "/* ; } */", ".loc 1 2 3",
    ".loc 1 3 1, function_name $L, inlined_at 1 2 3",
    '.file\t1 "a;{b//.py"', ".reg .pred p;", "$L__BB0_1:", "L:", "@!%p1 bra L;",
    ".visible .entry k(\n.param .u64 a\n)\n", ".func (.param .b32 o) f ()\n;", ".section .debug\n{",
    ".b8 1", "mov.b64 {%r1,\n%r2}, %rd1", ";", '"', "\\", "/", "/*", "// ikp.store 7 \"x\"",
    ".branchtargets $A, $B;", ".version 8.0", ".target sm_90a, debug", ".address_size 64",
    '.pragma "nounroll";', "fence.proxy.async.shared::cta;", "_", "%", "$", ".", "é", "\r\n", "\0",
)  # fmt: skip


@given(text=st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join)))
def test_every_text_comes_back(text: str) -> None:
    parts = statements(text)
    assert joined(parts) == text
    assert all(part.text for part in parts)
    assert len(in_assembly(parts)) == len(parts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("add.s32 %r1, %r1, 1; @p bra L;", ["add.s32 %r1, %r1, 1;", "@p bra L;"]),
        (
            "ld.global.v2.b32 {%a,\n  %b}, // first\n  [%rd1];",
            ["ld.global.v2.b32 {%a, %b}, [%rd1];"],
        ),
        ("L: M: ret;", ["L:", "M:", "ret;"]),
        ("{ .reg .b32 t; mov.b32 t, 1; }", ["{", ".reg .b32 t;", "mov.b32 t, 1;", "}"]),
        ("ret; /* a; } */ exit;", ["ret;", "", "exit;"]),
        ('.pragma "a;b"; .file 1 "c//d" ret;', ['.pragma "a;b";', '.file 1 "c//d"', "ret;"]),
        (".loc 1 2 3 bar.sync 0;", [".loc 1 2 3", "bar.sync 0;"]),
        (".func f(.param .b32 a)\n{ ret; }", [".func f(.param .b32 a)", "{", "ret;", "}"]),
        (".func (.param .b32 o) f\n()\n;", [".func (.param .b32 o) f () ;"]),
        (".maybe { 1; }\n.x;", [".maybe { 1; } .x;"]),
        (".section .debug_str\n{\n.b8 1 // x\n}\n", [".section .debug_str { .b8 1 }"]),
        (".global .b32 t[2] = {1, 2};", [".global .b32 t[2] = {1, 2};"]),
        ("T: .branchtargets A,\nB;\nA: ret;", ["T: .branchtargets A, B;", "A:", "ret;"]),
        ("st.async.shared::cluster.b32 [a], b;", ["st.async.shared::cluster.b32 [a], b;"]),
    ],
)
def test_the_forms_of_the_language(text: str, expected: list[str]) -> None:
    assert [part.code for part in statements(text)] == expected


def test_what_is_between_the_brackets_is_assembly() -> None:
    text = "ret;\n// begin inline asm\nexit;\n// end inline asm\ntrap;"
    inside = zip(statements(text), in_assembly(statements(text)), strict=True)
    assert {part.code for part, within in inside if not within} == {"ret;", "trap;"}


def test_a_label_that_names_a_table_is_part_of_it() -> None:
    kinds = [part.kind for part in statements("T:\n\t.branchtargets A;\nA:\n")]
    assert kinds == [StatementKind.DIRECTIVE, StatementKind.LABEL]


@pytest.mark.parametrize("half", ["ret", "{ ret;", ".entry k(", '.file 1 "', "/* x", "a: /*"])
def test_a_text_that_ends_in_the_middle_is_scheduled_as_it_is(half: str) -> None:
    text = f"{SCHEDULE_MARK}\nbar.sync 0;\n{half}"
    assert schedule(text) == text
