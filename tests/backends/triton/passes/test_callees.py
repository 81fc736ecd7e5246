"""Registers handed on in PTX: to functions with verbs and those that lead there, and no others."""

from __future__ import annotations

import pytest

from ikp.backends.triton.passes.callees import pass_on
from ikp.core.segment import Spec
from ikp.targets.ptx import CLOCK_MARK
from ikp.targets.ptx_slot import SPEC_MARK

pytestmark = pytest.mark.any_pins

KERNEL = f"""\
.func (.param .b32 out) helper
(
	.param .b64 a
)
;
.func bare()
;
.visible .entry kernel(
	.param .u64 a
)
{{
{SPEC_MARK} {Spec()}
	{{ // callseq 0, 0
	.param .b64 param0;
	.param .b32 retval0;
	st.param.b64 [param0], %rd1;
	call.uni (retval0), helper, (param0);
	ld.param.b32 %r1, [retval0];
	}} // callseq 0
	{{ // callseq 1, 0
	call.uni bare;
	}} // callseq 1
	ret;
}}
"""
HELPER = """\
.func (.param .b32 out) helper(
	.param .b64 a
)  // -- Begin {
{
%s
	@!%%p1 ret;
	st.param.b32 [out], %%r1;
	ret;
}
"""
BARE = """\
.func bare()
{
%s
	ret;
}
"""
RECORD = f"{CLOCK_MARK} {{ not a brace\n{{ mov.u32 %r1, %clock; }}"
CALL = """\
	{ // callseq 0, 0
	call.uni bare, ();
	} // callseq 0"""


def module(helper: str = "", bare: str = "") -> str:
    return KERNEL + HELPER % helper + BARE % bare


def test_a_module_whose_functions_do_not_record_is_left_alone() -> None:
    assert pass_on(module()) == module()
    assert pass_on(module(helper=CALL)) == module(helper=CALL)


def test_what_no_kernel_of_ikp_calls_is_left_alone() -> None:
    text = module(RECORD).replace(SPEC_MARK, "// another")
    assert pass_on(text) == text


def test_a_function_that_records_takes_registers_and_hands_its_count_back() -> None:
    text = pass_on(module(RECORD))
    kernel, helper = text.split(".func (.param .b32 out) helper(")[0], text.split("helper(")[-1]
    given = ", ".join(f"ikp_out_{n}" for n in range(4))
    assert f"call.uni (retval0), helper, (param0, {given});" in kernel
    assert "call.uni bare;" in kernel
    count = kernel.index("ld.global.b32 ikp_cur")
    assert kernel.index("ld.param.b32 %r1, [retval0];") < count < kernel.index("callseq 1")
    assert helper.index("ld.param.b32 ikp_lim, [ikp_in_3]") < helper.index(RECORD)
    # Once before each of the two returns, of which the first has a guard.
    assert helper.count("st.global.b32 [a+48], ikp_cur;") == 2
    assert "@%p1 bra $L__ikp_stay" in helper
    assert text.count(".param .b32 ikp_in_3") == 2  # the declaration and the definition
    assert "bare(.param" not in text


def test_a_function_without_parameters_gets_some() -> None:
    text = pass_on(module(bare=RECORD))
    given = ", ".join(f"ikp_out_{n}" for n in range(4))
    assert f"call.uni bare, ({given});" in text
    assert text.count("bare(.param .b32 ikp_in_0") == 2


def test_a_function_that_leads_to_one_that_records_passes_them_on() -> None:
    text = pass_on(module(helper=CALL, bare=RECORD))
    assert text.count("call.uni bare, (ikp_out_0") == 2
    assert "helper, (param0, ikp_out_0" in text
    assert text.count("ld.global.b32 ikp_cur") == 3


def test_a_call_beside_other_code_keeps_its_guard_and_its_result() -> None:
    """No scope is around it: the count is read behind the loads of what it returned."""
    call = "@!%p1 call (retval0), helper, (param0); ld.param.b32 %r1, [retval0]; ret;"
    text = (
        KERNEL.replace("	ret;\n}", f"	.param .b32 retval0; {call}\n}}")
        + HELPER % RECORD
        + BARE % ""
    )
    made = " ".join(pass_on(text).split())
    assert "@!%p1 call (retval0), helper, (param0, ikp_out_0, ikp_out_1, ikp_out_2, " in made
    load = made.rindex("ld.param.b32 %r1, [retval0];")
    assert load < made.index("ld.global.b32 ikp_cur", load) < made.index("ret;", load)


@pytest.mark.parametrize("text", ["", ".func", "garbage {", "}", ".func f(", ".func f() {"])
def test_what_is_no_ptx_comes_back(text: str) -> None:
    assert pass_on(text) == text
