"""What a range by hand promises: told where a compiler broke it, and not where it kept it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ikp.core.abi import ClockKind, OverflowMode
from ikp.core.code_facts import FACTS, CodeFacts
from ikp.inspection import facts_of_trace as it
from ikp.inspection.summary_of_code import code_facts
from tests.analysis.explain.launches import Scene, Warp
from tests.backends.sass import compile_kernel, spec
from tests.inspection.compiled import code, image, only
from tests.kernels import control, promised, wrong

pytestmark = pytest.mark.compiled
specialised = pytest.mark.any_pins  # the oldest Triton refuses ranges in such a loop


def lost(made: Any) -> tuple[str, ...]:
    (found,) = code_facts(image(made)).values()
    return found.lost


def divided(numbered: bool) -> Any:
    constants = {"NUMBERED": numbered, **promised.TILES}
    kernel, types = promised.gemm, promised.TYPES
    return compile_kernel(kernel, types, spec(), constants, 100, divisible=True)


@specialised
def test_a_range_whose_work_other_warps_do_is_told() -> None:
    (load, dot) = lost(divided(numbered=True))
    assert load.startswith('"load" (promised.py:34-36) holds 1 of the 2 loads that its lines call')
    assert dot.startswith('"dot" (promised.py:37-38) holds no tensor-core instruction, ')
    assert dot.endswith((" Elsewhere are 4 UTCHMMA.", " Elsewhere are 8 UTCHMMA."))


@specialised
def test_one_of_two_loads_is_told_though_its_line_is_said_to_be_another() -> None:
    (text,) = lost(made := divided(numbered=False))
    assert text.startswith('"load" (promised.py:40-42) holds 1 of the 2 loads that its lines call')
    assert '1 UTMALDG in "dot", in the loop at ' in text
    assert [each.lost for each in only(made).warnings] == [text], "ikp inspect says the same"


@pytest.mark.parametrize("clock", [ClockKind.CYCLES, ClockKind.CYCLES64])
def test_what_a_stream_publishes_is_no_store_that_a_range_lost(clock: ClockKind) -> None:
    """Line numbers give some of these stores to the line of the range's own store."""
    streams = spec(overflow=OverflowMode.STREAM, clock=clock)
    types = {"flag": "*i32", "out": "*fp32"}
    made = compile_kernel(promised.waits, types, streams, divisible=True)
    assert lost(made) == () and only(made).warnings == ()


@pytest.mark.any_pins  # the oldest Triton moves none
def test_part_of_the_products_behind_the_range_is_told() -> None:
    (text,) = lost(code("gemm sm_80"))
    assert text.endswith("holds 48 of the 64 tensor core instructions of its lines. "
                         "Elsewhere are 16 HMMA.")  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("gemm sm_90", id="a pipeline"),
        pytest.param("gluon specialised sm_90", id="a helper with several names"),
        pytest.param("gluon control sm_100", id="tokens around loops"),
        pytest.param("overlapping", id="tokens around nothing"),
        pytest.param("early return", id="what ends a kernel has its first line"),
    ],
)
def test_where_nothing_is_lost_nothing_is_told(name: str) -> None:
    assert lost(code(name)) == ()


def test_what_other_ranges_of_the_same_lines_hold_is_theirs() -> None:
    assert not only(code("gluon specialised sm_90")).warnings


def test_a_range_around_nothing_loses_nothing() -> None:
    types = {"ints": "*i32", "floats": "*fp32"}
    assert lost(compile_kernel(control.payloads, types, spec(), num_warps=1)) == ()


def test_a_range_named_after_what_its_lines_never_had_loses_nothing() -> None:
    made = compile_kernel(wrong.correct, {"x": "*i32"}, spec())
    assert only(made).warnings and lost(made) == (), "ikp inspect alone says it"


ALL = '"dot" (k.py:3) holds no tensor-core instruction, nothing at all. Elsewhere are 16 UTCHMMA.'
PART = '"dot" (k.py:3) holds 8 of the 16 tensor core instructions of its lines.'
EMPTY = '"copy" (k.py:9) is empty: its clock reads are side by side.'


def test_of_kernels_that_may_each_have_been_launched_only_what_all_lost_is_told() -> None:
    one, other = CodeFacts(lost=(EMPTY, ALL)), CodeFacts(lost=(PART,))
    assert it._agreed([one]).lost == (EMPTY, ALL)
    assert it._agreed([one, other]).lost == (ALL,)
    assert it._agreed([one, other, CodeFacts()]).lost == ()


def test_a_launch_is_of_a_kernel_with_as_many_warps() -> None:
    loaded = image(code("gemm sm_90"))
    assert it._fits(loaded, frozenset([4, 8])) and not it._fits(loaded, frozenset([4]))
    assert it._fits(replace(loaded, ptx=""), frozenset([4])), "nothing is known of it"


def test_it_stands_with_each_launch_and_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from ikp.analysis.counting_regions import stats
    from ikp.profiling import _life, writing

    said = CodeFacts("sm_100a", lost=(ALL,)).text()
    monkeypatch.setattr(writing, "_reported", set())
    labels = [f"launch {n}" for n in range(3)]
    monkeypatch.setattr(it, "facts_of_trace", lambda _: {f"{FACTS}{each}": said for each in labels})
    warps = [Warp(0, 0, 0, 0, 100, [("dot", 0, 5)], launch=n) for n in range(4)]
    trace = Scene().add(*warps).trace()
    names = [*labels, "another"]
    named = (replace(each, label=name) for each, name in zip(trace.launches, names, strict=True))
    found = writing.with_code_facts(replace(trace, launches=tuple(named)))
    note = ALL.removesuffix(".")
    assert [each.notes for each in found.launches] == [(note,)] * 3 + [()]
    assert f"launch 2: {ALL}" in str(stats(found)).replace("\n", " ")
    assert writing.lost_ranges(found) == (f"launch 0: {ALL}",), "a kernel has many labels"
    assert writing.lost_ranges(found) == ()
    recorded = _life.Recorded.__new__(_life.Recorded)
    recorded.final, recorded.running, recorded.unheard = found, False, []
    recorded.cut = recorded.beyond = []
    assert recorded.losses(failed=False) == [], "and is no note that is told each time"
