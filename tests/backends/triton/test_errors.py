"""Each mistake in a kernel has its own message, and the user sees it."""

from __future__ import annotations

import itertools
import re
import traceback
import warnings
from dataclasses import replace
from typing import Any

import pytest
import triton
from triton.compiler.errors import CompilationError

import ikp
from ikp.core.regions import region_id
from ikp.errors import IkpError, KernelError, RegionError
from ikp.verbs import dsl as names
from tests.backends.sass import compile_kernel, spec
from tests.kernels import wrong

BEFORE_INIT = r"ikp\.{verb} comes before ikp\.init\. Call ikp\.init\(prof\) once at the top"
NO_REGION = r"ikp\.{verb} needs a region: a string known when the kernel is compiled, or a scalar"
NO_CONTEXT = r"the first argument of ikp\.{verb} is the context that ikp\.init returned"
END_ASYNC = r"ikp\.end_async takes \(ctx, token\): the token that ikp\.start_async returned"
NOTHING_OPEN = (
    r"ikp\.end\('{name}'\) has no open range\. Write ctx = ikp\.start\(ctx, name\) before"
)
UNBALANCED = r"the open ranges '{name}' \(an iteration or a branch must close every range it opens"
OUT_OF_RANGE = r"region id {id} is out of range: an id is 0 to 67108863\. Use a string"
TOO_WIDE = (
    r"the payload of ikp\.{verb} has type {type}, which does not fit in 32 bits: convert it, for "
    r"example with x\.to\(tl\.{narrow}\)"
)
NOT_A_NUMBER = (
    r"the payload of ikp\.{verb} must be one number \(int or float, at most 32 bits\), not"
)
DOES_NOT_FIT = r"the payload {value} of ikp\.{verb} does not fit in 32 bits"

BOTH = {
    "range_before_init": BEFORE_INIT.format(verb="range"),
    "instant_before_init": BEFORE_INIT.format(verb="instant"),
    "finish_before_init": BEFORE_INIT.format(verb="finish"),
    "no_init_at_all": BEFORE_INIT.format(verb="range"),
    "init_twice": r"ikp\.init is called twice in one kernel\. Call it once",
    "end_without_start": NOTHING_OPEN.format(name="load"),
    "end_with_the_old_context": NOTHING_OPEN.format(name="load"),
    "end_of_another": r"ikp\.end\('load'\) meets the open range 'dot': ranges close in reverse",
    "name_is_a_float": NO_REGION.format(verb="range"),
    "name_is_a_block": NO_REGION.format(verb="range"),
    "name_is_none": NO_REGION.format(verb="instant") + r".* Got None\.",
    "name_is_a_bool": NO_REGION.format(verb="instant") + r".* Got True\.",
    "name_is_empty": r"a region's name is a non-empty string, not ''",
    "id_is_negative": OUT_OF_RANGE.format(id=-1),
    "id_is_too_large": OUT_OF_RANGE.format(id=1 << 26),
    "payload_is_a_block": NOT_A_NUMBER.format(verb="range") + r".*Reduce a block to a scalar",
    "payload_is_a_string": NOT_A_NUMBER.format(verb="instant") + " 'store'",
    "payload_is_too_large": DOES_NOT_FIT.format(value=1 << 32, verb="instant"),
    "payload_is_too_small": DOES_NOT_FIT.format(value=-(1 << 31) - 1, verb="start"),
    "instant_without_region": r"ikp\.instant takes a region and at most one payload, not 0 values",
    "instant_with_three_values": r"takes a region and at most one payload, not 3 values",
    "start_without_context": NO_CONTEXT.format(verb="start") + ".*with ikp.range",
    "end_without_context": NO_CONTEXT.format(verb="end"),
    "start_async_without_context": NO_CONTEXT.format(verb="start_async"),
    "token_is_the_context": END_ASYNC,
    "token_is_a_name": END_ASYNC,
    "token_forgotten": END_ASYNC,
    "token_as_context": NO_CONTEXT.format(verb="end"),
    "open_at_finish": r"ikp\.finish ends the kernel, and 'load' is still open",
    "where_is_a_block": r"the where of ikp\.range must be one boolean or integer.*Reduce a block",
    "index_is_a_float": r"the index of ikp\.instant must be one integer.*not 1\.5",
    "role_is_a_number": r"ikp\.role needs a name, a string known when the kernel is compiled",
    "start_in_a_for_loop": UNBALANCED.format(name="never closed"),
    "end_in_a_for_loop": UNBALANCED.format(name="closed too often"),
    "start_in_a_while_loop": UNBALANCED.format(name="never closed"),
    "start_in_one_branch": UNBALANCED.format(name="in one branch"),
    "ends_in_another_branch": UNBALANCED.format(name="across"),
    "ended_by_a_helper_in_a_loop": UNBALANCED.format(name="in a helper"),
    "return_in_with": r"Cannot have `return` statements inside `with` statements",  # Triton's own
}
COMPILED = BOTH | {
    "init_in_a_helper_called_twice": r"ikp\.init is more than once in the compiled kernel",
    "payload_is_int64": TOO_WIDE.format(verb="instant", type="int64", narrow="int32"),
    "payload_is_float64": TOO_WIDE.format(verb="range", type="fp64", narrow="float32"),
    "payload_is_a_pointer": TOO_WIDE.format(verb="instant", type="pointer<int32>", narrow="int32"),
    "init_in_noinline": r"ikp\.init is used in a function marked noinline.*Call it there",
    "finish_in_noinline": r"ikp\.finish is used in a function marked noinline.*Call it there",
    "name_of_a_loop_variable": r"f-string containing non-constexpr",  # Triton's own
    "buffer_made_in_the_kernel": r"the buffer given to ikp\.init is not the kernel's own argument",
}
INTERPRETED = BOTH | {
    "init_in_a_helper_called_twice": BOTH["init_twice"],
    "name_of_a_loop_variable": r"the name 'step 0', an f-string of a value that a compiled kernel",
    "payload_is_int64": TOO_WIDE.format(verb="instant", type="int64", narrow="int32"),
    "payload_is_float64": TOO_WIDE.format(verb="range", type="float64", narrow="float32"),
    "payload_is_a_pointer": TOO_WIDE.format(verb="instant", type="uint64", narrow="int32"),
}
ALLOWED_BY_THE_INTERPRETER = set(COMPILED) - set(INTERPRETED)
"""It runs Python: what is wrong only in a compiled kernel goes through."""


def shown(error: BaseException) -> str:
    """Return what a user reads when nobody catches the error, on one line."""
    return " ".join("".join(traceback.format_exception(error)).split())


def launch(kernel: Any, prof: Any) -> None:
    import torch

    kernel[(1,)](torch.full((16,), 3, dtype=torch.int32), prof)


def interpret(kernel: Any) -> ikp.Trace:
    """Run a kernel of ``wrong`` in the interpreter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ikp.IkpWarning)  # nothing was recorded
        with ikp.profile() as prof:
            launch(kernel, prof.buffer("wrong", size=4096))
    return prof.trace


def test_every_wrong_kernel_is_tested() -> None:
    kernels = {
        name for name, k in vars(wrong).items() if getattr(k, "arg_names", None) == ["x", "prof"]
    }
    assert kernels - {"correct", "helper_with_init", "begun_elsewhere"} == set(COMPILED)


NEEDS_A_BUFFER = {"init_in_a_helper_called_twice", "buffer_made_in_the_kernel"}
"""Found in the compiled code, of which there is none with None for the buffer."""


@pytest.mark.compiled
@pytest.mark.parametrize("recorded", [True, False], ids=["on", "off"])
@pytest.mark.parametrize("name", COMPILED)
def test_compiling_tells(name: str, recorded: bool) -> None:
    if not recorded and name in NEEDS_A_BUFFER:
        return
    with pytest.raises((CompilationError, KernelError)) as caught:
        compile_kernel(getattr(wrong, name), {"x": "*i32"}, spec() if recorded else None)
    assert re.search(COMPILED[name], shown(caught.value))


@pytest.mark.interp
@pytest.mark.parametrize("name", INTERPRETED)
def test_interpreting_tells(name: str) -> None:
    with pytest.raises(triton.runtime.errors.InterpreterError) as caught:
        interpret(getattr(wrong, name))
    assert re.search(INTERPRETED[name], shown(caught.value))


@pytest.mark.interp
@pytest.mark.parametrize("name", sorted(ALLOWED_BY_THE_INTERPRETER - {"buffer_made_in_the_kernel"}))
def test_what_the_interpreter_lets_pass_is_recorded_as_far_as_it_goes(name: str) -> None:
    (launched,) = interpret(getattr(wrong, name)).launches
    assert launched.attempted == launched.kept


@pytest.mark.compiled
def test_an_error_names_the_line() -> None:
    with pytest.raises(CompilationError) as caught:
        compile_kernel(wrong.end_of_another, {"x": "*i32"}, spec())
    assert 'ctx = ikp.end(ctx, "load")' in str(caught.value)


@pytest.mark.compiled
def test_a_failed_compilation_leaves_nothing_behind() -> None:
    for _ in range(2):
        with pytest.raises(CompilationError, match="has no open range"):
            compile_kernel(wrong.end_without_start, {"x": "*i32"}, spec())
    compile_kernel(wrong.correct, {"x": "*i32"}, spec())
    with pytest.raises(CompilationError, match=r"comes before ikp\.init"):
        compile_kernel(wrong.instant_before_init, {"x": "*i32"}, spec())


NOT_A_BUFFER = r"ikp\.init takes what prof\.buffer\(label\) returned, or None.*this kernel got "


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("given", "constants", "got"),
    [
        ("*fp32", {}, r"pointer<fp32>"),
        ("i32", {}, r"int32"),
        ("constexpr", {(1,): "gemm.pftrace"}, r"constexpr_type\[gemm\.pftrace\]"),
        (("*u8", "i32"), {}, r"\[:?pointer<uint8>,:?int32\]"),
        (("*u8", "i32", "constexpr"), {(1, 2): "hello"}, r".*constexpr_type\[hello\]"),
        (("*u8", "i32", "constexpr"), {(1, 2): "ikp abi=1"}, r".*constexpr_type\[ikp abi=1\]"),
    ],
    ids=["a tensor", "a number", "a path", "a pair", "another tuple", "half a spec"],
)
def test_what_is_not_a_buffer_is_refused(given: Any, constants: dict[Any, Any], got: str) -> None:
    source = triton.compiler.ASTSource(wrong.correct, {"x": "*i32", "prof": given}, constants)
    with pytest.raises(CompilationError) as caught:
        triton.compile(source, target=triton.backends.compiler.GPUTarget("cuda", 90, 32))
    assert re.search(NOT_A_BUFFER + got, shown(caught.value))


@pytest.mark.compiled
def test_a_buffer_in_cpu_memory_is_refused() -> None:
    with pytest.raises(CompilationError) as caught:
        compile_kernel(wrong.correct, {"x": "*i32"}, replace(spec(), device="cpu"))
    assert "lies in CPU memory, but the kernel is compiled for a GPU" in shown(caught.value)
    assert "ikp.profile(device='cuda')" in shown(caught.value)


@pytest.mark.interp
@pytest.mark.parametrize("given", ["a tensor", "a number", "a tuple"])
def test_the_interpreter_refuses_what_is_not_a_buffer(given: str) -> None:
    import torch

    values = {"a tensor": torch.zeros(8), "a number": 5, "a tuple": (torch.zeros(8), 8, 9)}
    with pytest.raises(triton.runtime.errors.InterpreterError) as caught:
        launch(wrong.correct, values[given])
    assert re.search(NOT_A_BUFFER, shown(caught.value))


@pytest.mark.parametrize("verb", ["init", "instant", "finish", "range"])
def test_a_verb_outside_a_kernel_says_where_it_belongs(verb: str) -> None:
    call = getattr(ikp, verb)
    arguments = {"init": (None,), "instant": ("a",), "finish": (), "range": ("a",)}[verb]
    with pytest.raises(KernelError, match=rf"ikp\.{verb} is called outside a kernel") as caught:
        call(*arguments)
    assert "@triton.jit" in str(caught.value)
    assert isinstance(caught.value, IkpError)


def colliding() -> tuple[str, str]:
    """Return two names with one id: among some ten thousand there are some."""
    seen: dict[int, str] = {}
    for number in itertools.count():
        name = f"region {number}"
        other = seen.setdefault(region_id(name), name)
        if other != name:
            return other, name
    raise AssertionError


@triton.jit
def two_names(x, prof, FIRST: triton.language.constexpr, SECOND: triton.language.constexpr):
    ikp.init(prof)
    ikp.instant(FIRST)
    ikp.instant(SECOND)


@pytest.fixture
def no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_names", {})


@pytest.mark.compiled
@pytest.mark.usefixtures("no_names")
def test_two_names_with_one_id_are_both_told() -> None:
    first, second = colliding()
    constants = {"FIRST": first, "SECOND": second}
    with pytest.raises(CompilationError) as caught:
        compile_kernel(two_names, {"x": "*i32"}, spec(), constants)
    assert f"the regions {first!r} and {second!r} share the id" in shown(caught.value)
    assert "rename one of them" in shown(caught.value)
    assert isinstance(caught.value.__cause__, RegionError)


@pytest.mark.interp
@pytest.mark.usefixtures("no_names")
def test_the_interpreter_tells_colliding_names_too() -> None:
    import torch

    first, second = colliding()
    with pytest.raises(triton.runtime.errors.InterpreterError) as caught, ikp.profile() as prof:
        two_names[(1,)](torch.zeros(1), prof.buffer("k", size=4096), first, second)
    assert f"the regions {first!r} and {second!r} share the id" in shown(caught.value)
    assert len(prof.trace.events) == 1
