"""Findings on counted work: each is made by its evidence, and by nothing else; roofs cap bounds."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from ikp.analysis.explain.verdict import Finding, Verdict
from ikp.core.code_facts import FACTS, AccessFacts, CodeFacts, LineFacts, RangeFacts
from ikp.core.excess_facts import ExtraWork
from ikp.trace import Trace
from tests.analysis.explain.launches import Scene, Warp

pytestmark = pytest.mark.any_pins

BLOCKS, WARPS, STEPS = 264, 8, 50
TOOK = 1000
"""Nanoseconds of one step, 2,000 cycles; each SM has two blocks at once."""


@cache
def stepping(backend: str) -> Trace:
    """Return a launch that is in one range all the time: a hundred thousand records, made once."""
    scene = Scene()
    ranges = [("step", TOOK * i, TOOK * (i + 1)) for i in range(STEPS)]
    for block in range(BLOCKS):
        scene.add(*(Warp(block, w, block % 132, 0, TOOK * STEPS, ranges) for w in range(WARPS)))
    return scene.trace(device="NVIDIA H200", backend=backend)


def verdict(
    facts: RangeFacts,
    kernel: RangeFacts | None = None,
    language: str = "triton",
    named: str = "kernel",
    **more: Any,
) -> Verdict:
    """Return the verdict on a launch that is in one range all the time."""
    ranges_of = {"step": facts, **({"kernel": kernel} if kernel else {})}
    code = replace(CodeFacts("sm_90a", 64, 0, ranges=ranges_of, kernel=named), **more)
    return replace(stepping(language), provenance={f"{FACTS}kernel": code.text()}).explain()


def found(facts: RangeFacts, name: str, **more: Any) -> Finding | None:
    return next((one for one in verdict(facts, **more).every if one.id == name), None)


def access(unit: str, **more: Any) -> RangeFacts:
    """Return the facts of a range with 100 accesses of one kind."""
    values = {"cost": 4.0, "least": 4.0, "addresses": 32, "depends": "lwbi", "in_loop": True}
    values |= {"blocks_share": 0.0, "reused_share": 0.0} | more
    one = AccessFacts(unit, 100, "/src/k.py:7", **values)
    return RangeFacts("load", mix={unit: (100, 0, 0), "integer": (50, 0, 0)}, accesses=(one,))


def test_the_mix_is_times_the_records() -> None:
    said = verdict(RangeFacts("compute", mix={"fma": (100, 20, 0), "xu": (0, 0, 7)}))
    (unit,) = said.mix
    assert unit.unit == "fma" and unit.count == BLOCKS * WARPS * STEPS * (100 + 20 / 2)
    assert said.uncounted == ("xu",)
    (roof, issue, _) = said.roofs
    assert {roof.name, issue.name} == {"FMA", "issue"}  # and launches
    assert roof.share == pytest.approx(2 * WARPS * 110 / 4 / 2000)  # four a cycle


@pytest.mark.parametrize(("loops", "is_open"), [(10.0, True), (0.0, False)])
def test_hot_loops_in_no_count_are_an_unknown_with_the_run_that_counts_them(
    loops: float, is_open: bool
) -> None:
    said = verdict(RangeFacts("load", mix={"integer": (10 - loops, 0, loops)}))
    marks = [one.mark for one in said.unknown if "hottest loops" in one.what]
    assert bool(marks) == is_open and all("--probe addresses" in mark for mark in marks)


def test_strided_accesses_are_told_and_coalesced_ones_are_not() -> None:
    one = found(access("store.global.4", cost=32.0), "uncoalesced")
    assert one is not None and one.confidence == "likely" and "stores" in one.title
    assert one.where.lines == ("/src/k.py:7",)
    assert found(access("load.global.4"), "uncoalesced") is None
    assert found(access("load.global.4"), "narrow-loads") is None, "4 bytes a lane, coalesced"


def test_conflicts_are_counted() -> None:
    one = found(access("load.shared.4", cost=32.0, least=1.0), "bank-conflicts")
    assert one is not None and one.confidence == "likely"
    assert found(access("load.shared.4", cost=1.0, least=1.0), "bank-conflicts") is None


@pytest.mark.parametrize(
    ("depends", "addresses", "expected"), [("", 1, True), ("lwb", 32, False), ("l", 32, True)]
)
def test_atomics_of_all_blocks_on_the_same_addresses(
    depends: str, addresses: int, expected: bool
) -> None:
    facts = access("atomic.global.4", depends=depends, addresses=addresses)
    one = found(facts, "atomics")
    assert one is not None and ("same addresses" in one.title) == expected


@pytest.mark.parametrize("sums", [True, False])
def test_blocks_that_have_summed_up_are_advised_to_be_fewer(sums: bool) -> None:
    """To reduce in the block first is what they do already."""
    facts = access("atomic.global.4", depends="l", addresses=32)
    mix = {**facts.mix, **({"atomic.shared.4": (8.0, 0.0, 0.0)} if sums else {})}
    one = found(replace(facts, mix=mix), "atomics")
    assert one is not None and ("launch fewer blocks" in one.suggestion) == sums


def test_one_atomic_of_each_block_is_no_cause() -> None:
    """Where a block operates once, it has reduced: what the finding suggests is done."""
    one = {"depends": "", "addresses": 1, "in_loop": False}
    assert likely(access("atomic.global.4", threads=1.0, **one)) == ["atomics"]
    alone = 1 / (32 * WARPS)
    once = access("atomic.global.4", threads=alone, lanes=1.0, **one)
    loads = access("load.global.4").accesses
    once = replace(once, accesses=(replace(once.accesses[0], count=1), *loads))
    assert likely(once) == []


def likely(facts: RangeFacts) -> list[str]:
    """Return the findings that are causes."""
    return [one.id for one in verdict(facts).findings if one.id == "atomics"]


def test_memory_brings_a_line_again_once_and_takes_what_is_written_too() -> None:
    """Keys are those of some accesses: a pass in pieces has more addresses than keys."""

    def memory(*accesses: AccessFacts) -> float:
        facts = RangeFacts("load", mix={"integer": (50, 0, 0)}, accesses=accesses)
        return next(roof.share for roof in verdict(facts).roofs if roof.name == "DRAM")

    (one,) = access("load.global.4").accesses
    first = replace(one, keys=(1, 2), count=4)
    again = replace(first, line="/src/k.py:9", count=1)
    passes = [replace(again, keys=(key,)) for key in (1, 2, 3, 4)]
    written = replace(first, unit="store.global.4")
    assert memory(first, *passes) == memory(first), "the second pass brings nothing"
    assert memory(first, *(replace(each, keys=(9,)) for each in passes)) > memory(first)
    assert memory(first, written) == pytest.approx(2 * memory(first), rel=1e-3)


@pytest.mark.parametrize(("each", "confidence"), [(800, "likely"), (300, "possible")])
def test_costly_loads_are_felt_together_in_however_many_ranges(each: int, confidence: str) -> None:
    """The rule: ranges that split up the time of loads, as --detail ops has them, hide none."""
    scene, names = Scene(), [f"load @k.py:{n}" for n in (7, 8)]
    for block in range(132):
        for warp in range(4):
            ranges = [(name, n * each, n * each + each) for n, name in enumerate(names)]
            scene.add(Warp(block, warp, block, 0, 10_000, ranges))
    one = access("load.global.4", cost=32.0)
    some = replace(one, accesses=(replace(one.accesses[0], count=15),))
    code = CodeFacts("sm_90a", ranges=dict.fromkeys(names, some), kernel="kernel")
    trace = scene.trace(device="NVIDIA H200")
    verdict = replace(trace, provenance={f"{FACTS}kernel": code.text()}).explain()
    found = next(one for one in verdict.every if one.id == "uncoalesced")
    assert found.confidence == confidence


def test_local_memory_says_whether_registers_ran_out() -> None:
    facts = RangeFacts("compute", mix={"fma": (100, 0, 0), "load.local.4": (20, 0, 0)})
    spills = found(facts, "local-memory", registers=255, spills=20, local_bytes=80)
    assert spills is not None and "registers spill" in spills.title
    array = found(facts, "local-memory", registers=38, spills=20, local_bytes=256)
    assert array is not None and "array" in array.title
    none = RangeFacts("compute", mix={"fma": (100, 0, 0)})
    assert found(none, "local-memory", registers=255) is None
    more = replace(facts, mix=facts.mix | {"fma": (200, 0, 0)})
    less = found(more, "local-memory", registers=255, spills=20, local_bytes=80)
    assert less is not None and less.bound_share < spills.bound_share < 0.7, "arithmetic stays"
    frame = AccessFacts("load.local.4", 20, "/src/k.py:7", depends="p")
    for letters in ("p", "po"):  # o: an outer loop comes to the same place again
        kept = replace(facts, accesses=(replace(frame, depends=letters),))
        spills = found(kept, "local-memory", registers=32, spills=20, local_bytes=80)
        assert spills is not None and "registers spill" in spills.title, letters
    chosen = replace(facts, accesses=(replace(frame, depends="pi"),))
    array = found(chosen, "local-memory", registers=32, spills=20, local_bytes=80)
    assert array is not None and "array" in array.title, "each iteration takes another element"


def test_sums_of_products_without_tensor_cores() -> None:
    mix = {"fma": (1000, 0, 0), "load.shared.16": (60, 0, 0)}
    facts = RangeFacts("compute", mix=mix, sums=1000)
    one = found(facts, "no-tensor-cores")
    assert one is not None and one.confidence == "likely", "Triton's, which has them by default"
    assert found(replace(facts, sums=10), "no-tensor-cores") is None, "no sums: a polynomial"
    tensor = replace(facts, mix={**mix, "tensor.2": (8, 0, 0)})
    assert found(tensor, "no-tensor-cores") is None


def test_doubles_that_were_floats() -> None:
    mix = {"fp64": (300, 0, 0), "convert.64": (10, 0, 0), "fma": (20, 0, 0)}
    one = found(RangeFacts("compute", mix=mix), "slow-arithmetic")
    assert one is not None and one.confidence == "likely" and "double" in one.title
    meant = RangeFacts("compute", mix={"fp64": (300, 0, 0), "fma": (20, 0, 0)})
    other = found(meant, "slow-arithmetic")
    assert other is None or other.confidence == "possible"
    few = RangeFacts("compute", mix={"fp64": (1, 0, 0), "convert.64": (0.1, 0, 0)})
    assert found(few, "slow-arithmetic") is None, "most instructions of a launch that waits"


def test_double_precision_is_told_at_its_line_with_what_goes_with_it() -> None:
    mix = {"fp64": (100, 0, 0), "convert.64": (10, 0, 0), "integer": (300, 0, 0)}
    power = LineFacts("/src/k.cu:77", 410, parts={"fp64": 100, "convert.64": 10, "integer": 300})
    one = found(RangeFacts("compute", mix=mix, lines=(power,)), "slow-arithmetic")
    assert one is not None and one.where.lines[0] == "/src/k.cu:77" and "k.cu:77" in one.title
    assert one.bound_share == pytest.approx(0.75), "single precision takes a quarter"


def test_slow_arithmetic_wins_its_time_at_the_full_rate_at_most() -> None:
    """Below the roof other warps hide the rest: of six kernels, one gained more."""
    lines = (LineFacts("/src/k.py:24", 180, {"power": 4.0}),)
    half = replace(slow(0.9), mix={"fma": (125, 0, 0), "integer": (75, 0, 0)}, lines=lines)
    one = found(half, "slow-arithmetic")
    assert one is not None and one.bound_share == pytest.approx(one.number.value)


def test_double_precision_in_loops_that_nothing_counts() -> None:
    """One iteration of such a loop says what its time goes into; not how often it goes round."""
    mix = {"fma": (1, 0, 30), "integer": (0, 0, 60), "fp64": (0, 0, 20), "convert.64": (0, 0, 3)}
    lines = (LineFacts("/src/k.cu:9", 1, {}, 50), LineFacts("/src/k.cu:7", 3))
    said = verdict(RangeFacts("compute", mix=mix, lines=lines))
    one = next(one for one in said.findings if one.id == "slow-arithmetic")
    assert one.confidence == "likely" and one.where.lines == ("/src/k.cu:9",)
    assert "20 of its 113 instructions" in one.title and one.bound_is == "about"
    (hot,) = said.hot
    assert (hot.each, hot.count, hot.units[0]) == ("iteration", 113, ("integer", 60))
    assert hot.lines == (("k.cu:9", 50),)
    waits = found(RangeFacts("compute", mix=mix | {"load.global.4": (0, 0, 8)}), "slow-arithmetic")
    assert waits is not None and waits.bound_share < 0.7 * one.bound_share, "loads take their part"
    few = mix | {"fp64": (0, 0, 2), "convert.64": (0, 0, 0)}
    assert found(RangeFacts("compute", mix=few), "slow-arithmetic") is None
    alone = found(RangeFacts("compute", mix=mix | {"convert.64": (0, 0, 0)}), "slow-arithmetic")
    assert alone is not None and alone.confidence == "possible", "its data may be double"
    few = mix | {"convert.64": (0, 0, 1), "load.global.16": (0, 0, 4)}
    loaded = found(RangeFacts("compute", mix=few), "slow-arithmetic")
    assert loaded is not None and loaded.confidence == "possible", "it may load doubles"


def test_strides_that_are_assumed_decide_nothing_but_in_triton() -> None:
    """Triton makes a constant of a stride that is 1; in a structure of C++ it may be any."""
    facts = access("store.global.4", cost=32.0, depends="lwbip")
    one = found(facts, "uncoalesced")
    assert one is not None and one.confidence == "likely"
    said = verdict(facts, language="cuda")
    two = next(one for one in said.every if one.id == "uncoalesced")
    assert two.confidence == "possible" and not said.findings


def test_time_of_strided_loads_decides_and_that_of_anything_around_them_does_not() -> None:
    """Few blocks don't fill the caches' rate: then it is the time of the loads that says so."""
    few = access("load.global.4", cost=32.0)
    few = replace(few, accesses=(replace(few.accesses[0], count=0.2),))
    one = found(few, "uncoalesced")
    assert one is not None and one.confidence == "likely" and one.bound_share > 0.6
    two = found(replace(few, activity="compute"), "uncoalesced")
    assert two is not None and two.confidence == "possible"
    pieces = replace(few, accesses=(replace(few.accesses[0], together=4.0, count=10),))
    three = found(pieces, "uncoalesced")
    assert three is not None and three.confidence == "likely", "piece by piece, all of the time"


@pytest.mark.parametrize(("took", "sure"), [(50, "possible"), (300, "likely")])
def test_loads_that_hold_nobody_up_are_no_cause_however_many_sectors_they_ask_for(
    took: int, sure: str
) -> None:
    """L1 has the sectors that the next iterations, or other warps, ask for."""
    scene = Scene()
    for block in range(BLOCKS):
        ranges = [
            each
            for i in range(0, STEPS * TOOK, TOOK)
            for each in (("load", i, i + took), ("step", i + took, i + TOOK))
        ]
        scene.add(*(Warp(block, w, block % 132, 0, TOOK * STEPS, ranges) for w in range(WARPS)))
    many = access("load.global.4", cost=32.0)
    facts = {"load": many, "step": RangeFacts("compute", mix={"fma": (20, 0, 0)})}
    code = CodeFacts("sm_90a", 64, 0, ranges=facts, kernel="kernel")
    trace = scene.trace(device="NVIDIA H200", backend="triton")
    said = replace(trace, provenance={f"{FACTS}kernel": code.text()}).explain()
    one = next(one for one in said.every if one.id == "uncoalesced")
    assert one.confidence == sure


@pytest.mark.parametrize(("language", "is_cause"), [("cuda", True), ("triton", False)])
def test_asynchronous_copies_in_pieces_are_the_cause_where_the_source_says_how_wide_they_are(
    language: str, is_cause: bool
) -> None:
    """Of warps that copy all the time. How wide Triton's copies are, its compiler chooses."""
    copies = access("copy.global.4", cost=16.0, least=4.0, together=4.0, align=16)
    few = (replace(copies.accesses[0], count=4.0),)
    one = found(replace(copies, activity="copy", accesses=few), "uncoalesced", language=language)
    assert one is not None and "one wide access" in one.suggestion
    assert one.confidence == ("likely" if is_cause else "possible")


def test_pieces_of_rows_that_no_wide_access_may_have() -> None:
    pieces = access("load.global.2", cost=16.0, least=2.0, together=2.0, align=2)
    pieces = replace(pieces, accesses=(replace(pieces.accesses[0], count=20),))
    one = found(pieces, "uncoalesced")
    assert one is not None and one.confidence == "likely" and "2 bytes only" in one.title
    fewer = replace(pieces, accesses=(replace(pieces.accesses[0], count=8),))
    some = found(fewer, "uncoalesced")
    assert some is not None and some.confidence == "likely", "an eighth of the launch"
    aligned = (replace(pieces.accesses[0], align=16),)
    two = found(replace(pieces, activity="compute", accesses=aligned), "uncoalesced")
    assert two is None or two.confidence == "possible", "a compiler may have its reasons"


def test_bulk_copies_move_what_no_thread_has_an_address_of() -> None:
    one = access("store.global.4", own=0.03)
    assert found(one, "idle-threads") is not None
    bulk = replace(one, mix={**one.mix, "copy.bulk": (2, 0, 0)})
    assert found(bulk, "idle-threads") is None
    assert found(one, "idle-threads", named="") is None, "what is in no range is not known"


def test_loads_that_busy_units_hide_win_no_more_than_their_own_cycles() -> None:
    fixed = access("load.global.4", depends="lwb")
    fixed = replace(fixed, accesses=(replace(fixed.accesses[0], count=10),))
    busy = replace(fixed, mix={"load.global.4": (10, 0, 0), "fma": (420, 0, 0)})
    alone, hidden = found(fixed, "repeated-loads"), found(busy, "repeated-loads")
    assert alone is not None and hidden is not None
    assert hidden.bound_share < alone.bound_share / 2


def test_loads_that_no_iteration_moves() -> None:
    assert found(access("load.global.4", depends="lwb"), "repeated-loads") is not None
    assert found(access("load.global.4", depends="lwbi"), "repeated-loads") is None
    assert found(access("load.global.4", depends="b", addresses=1), "repeated-loads") is not None
    assert found(access("load.global.4", depends="bd"), "repeated-loads") is None, "a look-up"


def test_code_that_lanes_run_apart() -> None:
    mix = {"fma": (0, 100, 0)}
    one = found(RangeFacts("compute", mix=mix, apart=90), "divergence")
    assert one is not None and one.confidence == "likely"
    loads = RangeFacts("compute", mix={**mix, "load.shared.4": (9, 0, 0)}, apart=99)
    other = found(loads, "divergence")
    assert other is not None and other.confidence == "possible", "or these hold it up"
    assert found(RangeFacts("compute", mix=mix, apart=20), "divergence") is None
    divides = {**mix, "divide": (5, 0, 0), "call": (0, 5, 0)}
    slow = RangeFacts("compute", mix=divides, apart=90)
    assert found(slow, "divergence") is None, "slow paths of divisions"


def test_pointers_that_loads_chase() -> None:
    mix = {"load.global.4": (1, 0, 0), "integer": (5, 0, 0)}
    one = found(RangeFacts("load", mix=mix, chases="/src/k.cu:9"), "dependent-loads")
    assert one is not None and one.confidence == "likely" and one.where.lines == ("/src/k.cu:9",)
    assert found(RangeFacts("load", mix=mix), "dependent-loads") is None
    busy = RangeFacts("load", mix={**mix, "fma": (450, 0, 0)}, chases="/src/k.cu:9")
    other = found(busy, "dependent-loads")
    assert other is None or other.confidence == "possible", "other work fills the time"


def test_loads_one_by_one_while_no_unit_is_busy() -> None:
    mix = {"load.global.4": (1, 0, 0), "integer": (5, 0, 0)}
    one = found(RangeFacts("load", mix=mix), "slow-memory")
    assert one is not None and one.confidence == "likely" and "too few loads" in one.title
    assert found(RangeFacts("load", mix={**mix, "fma": (400, 0, 0)}), "slow-memory") is None
    assert found(RangeFacts("load", mix={**mix, "fma": (350, 0, 0)}), "slow-memory") is None
    assert found(RangeFacts("compute", mix=mix), "slow-memory") is None


def test_fences_of_the_device_in_a_loop() -> None:
    mix = {"fence.gpu": (1, 0, 0), "store.global.4": (1, 0, 0)}
    one = found(RangeFacts("store", mix=mix), "fences")
    assert one is not None and one.number.value == STEPS
    assert one.bound_share == pytest.approx(1000 / 2000, rel=0.01), "1,000 of 2,000 cycles"
    assert found(RangeFacts("store", mix={**mix, "fence.gpu": (0.1, 0, 0)}), "fences") is None
    assert found(RangeFacts("store", mix={"fence": (1, 0, 0)}), "fences") is None, "of a block"


def test_constants_at_addresses_of_the_lanes() -> None:
    mix = {"uniform": (16, 0, 0), "fma": (16, 0, 0)}
    one = found(RangeFacts("compute", mix=mix, constants=16.0), "constants")
    assert one is not None and one.confidence == "likely" and "1,689,600" in one.title
    assert found(RangeFacts("compute", mix=mix), "constants") is None


def test_reductions_over_a_warp_in_each_step() -> None:
    mix = {"fma": (20, 0, 0), "shuffle": (5, 0, 0), "integer": (10, 0, 0)}
    one = found(RangeFacts("compute", mix=mix), "shuffles")
    assert one is not None and one.bound_share == pytest.approx(3 * 5 / 35)
    assert found(RangeFacts("compute", mix={**mix, "shuffle": (0.5, 0, 0)}), "shuffles") is None
    assert found(RangeFacts("compute", mix={**mix, "fma": (90, 0, 0)}), "shuffles") is None


def test_time_in_code_of_atomics() -> None:
    atomics = access("atomic.global.4")
    one = found(replace(atomics, accesses=(replace(atomics.accesses[0], count=4),)), "atomics")
    assert one is not None and "100 % of the warps' time" in one.title
    loads = replace(access("load.global.4").accesses[0], count=40)
    mixed = replace(atomics, accesses=(replace(atomics.accesses[0], count=4), loads))
    assert found(mixed, "atomics") is None, "the code loads more than it adds"


@pytest.mark.parametrize(("looped", "sure"), [(0, "likely"), (100, "possible")])
def test_code_in_loops_without_atomics_is_not_theirs(looped: float, sure: str) -> None:
    one = replace(access("atomic.global.4").accesses[0], count=0.2, cost=None, depends="lwbd")
    mix = {"atomic.global.4": (0.2, 0, 0), "fma": (0, 0, looped)}
    said = found(RangeFacts("load", mix=mix, accesses=(one,)), "atomics")
    assert said is not None and said.confidence == sure and "data choose" in said.title


def test_the_line_of_most_instructions_is_named_where_nothing_else_is() -> None:
    lines = (LineFacts("/src/k.py:28", 190.0), LineFacts("/src/k.py:9", 38.0))
    one = found(RangeFacts("compute", mix={"integer": (228, 0, 0)}, lines=lines), "busy-lines")
    assert one is not None and one.where.lines == ("/src/k.py:28",) and "83 %" in one.title
    idle = RangeFacts("compute", mix={"integer": (28, 0, 0)}, lines=lines)
    assert found(idle, "busy-lines") is None, "no unit is busy"
    many = tuple(LineFacts(f"/src/k.py:{n}", 57.0) for n in range(4))
    assert (
        found(RangeFacts("compute", mix={"integer": (228, 0, 0)}, lines=many), "busy-lines") is None
    )
    waits = RangeFacts("wait:memory", mix={"integer": (228, 0, 0)}, lines=lines)
    assert [one.id for one in verdict(waits).every] == ["busy-lines"], "at the roof, no wait counts"


def test_what_an_outer_loop_loads_again_is_not_counted_twice() -> None:
    for depends, known in (("lwbi", True), ("lwbio", False)):
        facts = access("load.global.4", depends=depends)
        few = replace(facts, accesses=(replace(facts.accesses[0], count=10),))
        assert ("DRAM" in {one.name for one in verdict(few).roofs}) == known


def test_loads_that_l1_may_serve_are_not_asked_of_l2() -> None:
    for unit, asked in (("load.global.4", False), ("store.global.4", True)):
        every = access(unit, depends="b")
        facts = replace(every, accesses=(replace(every.accesses[0], count=4.0),))
        assert ("L2" in {one.name for one in verdict(facts).roofs}) == asked


def test_iterations_with_one_step_of_each_sum() -> None:
    """What an iteration does beside its products is done for each of them."""
    steps = {"single steps": ExtraWork(1, 1, "/src/k.py:107")}
    mix = {"tensor.group.2": (1, 0, 0), "integer": (40, 0, 0)}
    facts = RangeFacts("mma", mix=mix, products=1e5, extra=steps)
    one = found(facts, "small-tiles")
    assert one is not None and one.confidence == "likely" and "k.py:107" in one.title
    assert 0.5 < one.bound_share <= 0.75 and "BLOCK_K" in one.suggestion
    assert found(replace(facts, mix={**mix, "tensor.group.2": (4, 0, 0)}), "small-tiles") is None
    assert found(replace(facts, products=3e5), "small-tiles") is None, "tensor cores are busy"


def test_loads_and_products_that_take_turns() -> None:
    """Nothing is under way while a product's operands are loaded: what no unit needs is lost."""
    loads = {"unpipelined": ExtraWork(8, 8, "/src/k.py:36")}
    mix = {"tensor.group.2": (4, 0, 0), "integer": (40, 0, 0)}
    facts = RangeFacts("mma", mix=mix, products=1.5e5, extra=loads)
    one = found(facts, "few-stages")
    assert one is not None and one.confidence == "likely" and "k.py:36" in one.title
    assert one.bound_share == pytest.approx(0.75 * (1 - 0.29 / 0.8), abs=0.02)
    assert found(replace(facts, products=3e5), "few-stages") is None, "tensor cores are busy"
    assert found(replace(facts, extra={}), "few-stages") is None


def test_tiles_with_few_operations_for_a_byte() -> None:
    copies = access("copy.global.16", cost=16.0, least=16.0, blocks_share=0.9)
    some = (replace(copies.accesses[0], count=4),)
    mix = {"copy.global.16": (4, 0, 0), "tensor.2": (10, 0, 0)}
    small = replace(copies, activity="mma", mix=mix, accesses=some, products=4 * 512 * 20)
    assert found(small, "small-tiles") is not None
    assert found(replace(small, products=4 * 512 * 64), "small-tiles") is None
    alone = replace(some[0], blocks_share=0.0, reused_share=0.0)
    alone = replace(small, accesses=(alone,))
    assert found(alone, "small-tiles") is None, "each byte is loaded once with any tile"


def test_wider_tiles_save_no_more_than_leaves_each_sm_a_block() -> None:
    copies = access("copy.global.16", cost=16.0, least=16.0, blocks_share=0.95)
    some = (replace(copies.accesses[0], count=4),)
    mix = {"copy.global.16": (4, 0, 0), "tensor.2": (10, 0, 0)}
    small = replace(copies, activity="mma", mix=mix, accesses=some, products=4 * 512 * 5)
    one = found(small, "small-tiles")
    assert one is not None and one.bound_share <= 1 - (132 / BLOCKS) ** 0.5 + 0.01


def test_a_kernel_at_memorys_rate_has_no_finding_above_that() -> None:
    # 4 requests of 512 bytes, 105,600 times in 50 us: 4,325 of 4,800 bytes in a nanosecond
    one = AccessFacts("load.global.16", 4, "", 16.0, 16.0, 32, "lwbi", True, 0.0, 0.0)
    facts = RangeFacts("load", mix={"load.global.16": (4, 0, 0)}, accesses=(one,))
    said = verdict(facts)
    assert said.roofs[0].name == "DRAM" and said.roofs[0].share == pytest.approx(4325 / 4800, 1e-3)
    assert said.every == ()
    assert "at its roof, DRAM 90 %" in str(said)
    shared = replace(one, blocks_share=0.875)
    cached = verdict(replace(facts, accesses=(shared,)))
    assert "DRAM" not in {roof.name for roof in cached.roofs}, "bytes of caches are not memory's"


def test_findings_on_a_part_of_the_records_say_so_first() -> None:
    whole = found(access("store.global.4", cost=32.0), "uncoalesced")
    scene = Scene()
    ranges = [("step", TOOK * i, TOOK * (i + 1)) for i in range(STEPS)]
    for block in range(BLOCKS):
        scene.add(*(Warp(block, w, block % 132, 0, TOOK * STEPS, ranges) for w in range(WARPS)))
    records = BLOCKS * WARPS * STEPS
    trace = scene.trace(device="NVIDIA H200", attempted=2 * records, kept=records)
    code = CodeFacts("sm_90a", ranges={"step": access("store.global.4", cost=32.0)})
    said = replace(trace, provenance={f"{FACTS}kernel": code.text()}).explain()
    part = next(one for one in said.every if one.id == "uncoalesced")
    assert whole is not None and (whole.confidence, part.confidence) == ("likely", "likely"), (
        "counted"
    )
    assert part.rationale.startswith("50 % of the records were lost")


def test_the_text_names_the_other_kernels_and_their_shares() -> None:
    scene = Scene()
    for launch in range(3):
        scene.add(Warp(0, 0, 0, 0, 100 * (launch + 1), [("a", 0, 50)], launch=launch))
    trace = scene.trace()
    labels = ("small", "large", "large")
    launches = tuple(replace(one, label=n) for one, n in zip(trace.launches, labels, strict=True))
    text = str(replace(trace, launches=launches).explain())
    assert "kernels: large 83 % (2 launches), small 17 % (1 launch)" in text


def test_blocks_that_share_with_far_ones_alone_are_in_the_wrong_order() -> None:
    far = access("copy.global.16", cost=16.0, least=16.0, reused_share=0.9, span=64 << 20)
    some = (replace(far.accesses[0], count=4.0),)
    facts = replace(far, mix={"copy.global.16": (4, 0, 0)}, accesses=some)
    one = found(facts, "block-order")
    assert one is not None and one.confidence == "likely"
    small = replace(facts, accesses=(replace(some[0], span=1 << 10),))
    assert found(small, "block-order") is None, "all of it fits into L2"
    near = replace(facts, accesses=(replace(some[0], blocks_share=0.8),))
    assert found(near, "block-order") is None, "neighbours share it: L2 serves them"
    own = replace(facts, accesses=(replace(some[0], reused_share=0.0),))
    assert found(own, "block-order") is None, "nobody else asks for it"


def test_code_that_asks_for_a_flag_again_and_again() -> None:
    facts = RangeFacts("load", mix={"integer": (20, 0, 9)}, polls="/src/lock.cu:26")
    one = found(facts, "flag-wait")
    assert one is not None and one.where.lines == ("/src/lock.cu:26",)
    assert one.confidence == "likely", "all of the warps' time"
    assert "larger tiles" in one.suggestion, "fewer blocks meet at a lock"
    busy = RangeFacts("load", mix={"fma": (300, 0, 0)}, polls="/src/lock.cu:26")
    assert found(busy, "flag-wait") is None, "a unit is at work"


def test_a_loop_that_only_asks_whether_it_is_a_blocks_turn_is_measured() -> None:
    """Its range is the wait, of as much of each block's time, whatever units do meanwhile."""
    facts = RangeFacts(
        "load", mix={"integer": (9, 0, 0)}, polls="/src/turn.cu:26", line="/src/turn.cu:26"
    )
    works = RangeFacts("compute", mix={"fma": (1.5e4, 0, 0)})
    one = found(facts, "flag-wait", kernel=works)
    assert one is not None and "of their time" in one.title
    more = replace(facts, mix={"integer": (900, 0, 0)})
    assert (
        found(more, "flag-wait", kernel=RangeFacts("compute", mix={"fma": (1.5e4, 0, 0)})) is None
    )


def test_lanes_that_part_take_about_as_long_in_each_warp() -> None:
    """Where warps differ, neighbouring lanes are alike, and no lane waits for another."""
    facts = RangeFacts("compute", mix={"fma": (0, 100, 0)}, apart=90)
    code = CodeFacts("sm_90a", 64, ranges={"step": facts})
    for spread, told in ((0, True), (900, False)):
        scene = Scene()
        for block in range(BLOCKS):
            end = 1000 + spread * (block % 8)
            ranges = [("step", 0, end)]
            scene.add(*(Warp(block, w, block % 132, 0, end, ranges) for w in range(WARPS)))
        trace = scene.trace(device="NVIDIA H200")
        said = replace(trace, provenance={f"{FACTS}kernel": code.text()}).explain()
        assert ("divergence" in {one.id for one in said.every}) == told


def test_a_block_beside_another_is_a_tail_and_no_imbalance() -> None:
    scene = Scene()
    for block in range(140):
        end = 20_000 if block % 132 < 8 else 10_000
        scene.add(*(Warp(block, w, block % 132, 0, end, [("a", 0, end)]) for w in range(4)))
    first = scene.trace(device="NVIDIA H200").explain().every[0]
    assert first.id == "tail" and "8 SMs have more than 1 block" in first.title


def test_warps_that_run_on_alone_are_serial_work() -> None:
    scene = Scene()
    for block in range(264):
        begin = block // 132 * 10_000
        ends = [begin + (90_000 if block == 137 and not warp else 10_000) for warp in range(8)]
        for warp, end in enumerate(ends):
            scene.add(Warp(block, warp, block % 132, begin, end, [("a", begin, end)]))
    first = scene.trace(device="NVIDIA H200").explain().every[0]
    assert first.id == "slow-block" and "2 of 8 warps run alone" in first.title
    assert "serial" in first.suggestion


def test_two_passes_over_the_same_bytes() -> None:
    """Whether a cache serves the second one is not known: possible."""
    one = AccessFacts("load.global.16", 2, "/src/k.cu:71", 16.0, 16.0, 32, "lwbi", True, 0.0, 0.0)
    once, again = (replace(one, line=f"/src/k.cu:{n}", keys=(5, 6)) for n in (71, 73))
    other = replace(again, keys=(7,))
    for second, told in ((again, True), (other, False)):
        facts = RangeFacts("load", mix={"load.global.16": (4, 0, 0)}, accesses=(once, second))
        two = found(facts, "repeated-loads")
        assert (two is not None) == told
        assert two is None or two.confidence == "possible"


def test_operands_that_come_from_l1_each_time() -> None:
    loads = access("load.global.4", depends="lwi", blocks_share=0.9)
    some = (replace(loads.accesses[0], count=60.0, addresses=16),)
    mix = {"load.global.4": (60, 0, 0), "fma": (60, 0, 0)}
    facts = replace(loads, mix=mix, accesses=some, sums=60.0)
    assert found(facts, "unstaged-loads") is not None
    assert found(replace(facts, sums=600.0), "unstaged-loads") is None, "ten sums for a load"
    sparse = replace(facts, accesses=(replace(some[0], depends="lwid"),))
    assert found(sparse, "unstaged-loads") is None, "who else needs such a row is not known"
    shared = AccessFacts("load.shared.16", 60, "", 4.0, 4.0)
    tiled = replace(facts, accesses=(*some, shared))
    assert found(tiled, "unstaged-loads") is None, "operands come from shared memory"


def test_narrow_loads_of_halves() -> None:
    every = access("load.global.2", cost=2.0, least=2.0)
    facts = replace(every, accesses=(replace(every.accesses[0], count=4.0),))
    assert found(replace(facts, lane_bytes=2), "narrow-loads") is not None
    assert found(replace(facts, lane_bytes=4), "narrow-loads") is None


def slow(share: float, **functions: float) -> RangeFacts:
    """Return the facts of a range, so many of whose 400 instructions stand at one slow line."""
    names = {name.replace("_", " "): count for name, count in functions.items()}
    lines = (LineFacts("/src/k.py:24", 400 * share, names), LineFacts("/src/k.py:30", 20.0))
    return RangeFacts("compute", mix={"fma": (250, 0, 0), "integer": (150, 0, 0)}, lines=lines)


def test_powers_and_divisions_are_told_by_their_line() -> None:
    one = found(slow(0.9, power=8.0), "slow-arithmetic")
    assert one is not None and one.confidence == "likely"
    assert "k.py:24 calculates powers" in one.title and "90 %" in one.title
    assert one.where.lines[0] == "/src/k.py:24" and "x * x * x" in one.suggestion
    indices = found(slow(0.9, integer_division=3.0), "slow-arithmetic")
    assert indices is not None and "grid's dimensions" in indices.suggestion
    assert indices.confidence == "possible", "indices may need it"
    assert found(slow(0.1, power=1.0), "slow-arithmetic") is None, "a tenth of the instructions"
    assert found(slow(0.9), "slow-arithmetic") is None, "nothing slow in it"
    lines = (LineFacts("/src/k.py:24", 180, {"power": 4.0}),)
    half = replace(slow(0.9), mix={"fma": (125, 0, 0), "integer": (75, 0, 0)}, lines=lines)
    some = (("compute", "likely"), ("wait:memory", "possible"), ("load", "likely"))
    for activity, sure in some:  # of a range with loads, arithmetic has the part that it takes
        one = found(replace(half, activity=activity), "slow-arithmetic")
        assert one is not None and one.confidence == sure, "warps wait for memory meanwhile"


@pytest.mark.parametrize(("roots", "sure"), [(0.5, "likely"), (0.3, "possible")])
@pytest.mark.parametrize("full", [True, False])
def test_at_the_roof_of_instructions_most_of_them_are_the_cause(
    roots: float, sure: str, *, full: bool
) -> None:
    """Results may need square roots; where nothing else is full, they are what the time goes to."""
    count = 480 if full else 300
    mix = {"fma": (0.6 * count, 0, 0), "integer": (0.4 * count, 0, 0)}
    lines = (LineFacts("/src/k.cu:25", roots * count, {"square root": 4.0}),)
    one = found(RangeFacts("compute", mix=mix, lines=lines), "slow-arithmetic")
    assert one is not None and one.confidence == (sure if full else "possible")


@pytest.mark.parametrize(("divisions", "sure"), [(6.0, "likely"), (2.0, "possible")])
@pytest.mark.parametrize("full", [True, False])
def test_divisions_of_indices_are_a_cause_at_the_roof_of_instructions(
    divisions: float, sure: str, *, full: bool
) -> None:
    """Indices may need them; as a fifth of all instructions, at that roof, they cost too much."""
    count = 480 if full else 250
    mix = {"fma": (0.5 * count, 0, 0), "integer": (0.5 * count, 0, 0)}
    lines = (LineFacts("/src/k.cu:57", 0.95 * count, {"integer division": divisions}),)
    one = found(RangeFacts("load", mix=mix, lines=lines), "slow-arithmetic")
    assert one is not None and one.confidence == (sure if full else "possible")


def test_at_the_roof_of_instructions_each_that_goes_is_won() -> None:
    """Counts are about right: 4 % more than the issue slots hold is at that roof, and not above."""
    mix = {"fma": (270, 0, 0), "integer": (250, 0, 0)}
    checks = {"checks": ExtraWork(156, 40, "/src/k.cu:13")}
    facts = RangeFacts("load", mix=mix, serves={"conditions": 520}, extra=checks)
    one = found(facts, "checks")
    assert one is not None and one.bound_share == pytest.approx(156 / 520)


def narrow(count: float, **more: Any) -> RangeFacts:
    """Return the facts of code with narrow loads side by side, each with its own address."""
    values = {"cost": 2.0, "least": 2.0, "together": 2.0, "blocks_share": 1.0} | more
    one = AccessFacts("load.global.2", count, "/src/k.py:7", None, None, 32, "lwbi", True)
    mix = {"load.global.2": (count, 0, 0), "integer": (12 * count, 0, 0)}
    serves = {"addresses": 8 * count, "conditions": count, "memory": count, "arithmetic": 3 * count}
    return RangeFacts("load", mix=mix, accesses=(replace(one, **values),), serves=serves)


def test_narrow_accesses_side_by_side_at_the_roof_of_instructions() -> None:
    """A compiler that does not know a row's stride makes one access for each number."""
    one = found(narrow(20), "narrow-loads")
    assert one is not None and one.confidence == "likely" and "20 in a row" in one.title
    assert one.bound_share == pytest.approx(10 / 13 * 7 / 8, abs=0.05)
    assert "do_not_specialize" in one.suggestion
    assert found(narrow(8), "narrow-loads") is None, "instructions are not what it has most of"
    assert found(narrow(20, cost=16.0), "narrow-loads") is None, "apart from each other"


def test_slow_functions_in_loops_that_nothing_counts() -> None:
    mix = {"fma": (5, 0, 60), "integer": (5, 0, 60)}
    lines = (LineFacts("/src/k.cu:56", 2, {"division": 3.0}, 50),)
    facts = RangeFacts("compute", mix=mix, lines=lines)
    one = found(facts, "slow-arithmetic")
    assert one is not None and one.confidence == "likely" and "divisions in loops" in one.title
    assert one.bound_share == pytest.approx(50 / 120 / 2) and "__fdividef" in one.suggestion
    few = replace(facts, lines=(replace(lines[0], looped=20),))
    assert found(few, "slow-arithmetic") is None, "other lines are most of the code"
    indices = replace(facts, lines=(replace(lines[0], slow={"integer division": 3.0}),))
    assert found(indices, "slow-arithmetic") is None, "results may need it"
    loads = replace(facts, activity="load")
    assert found(loads, "slow-arithmetic") is None, "warps do other things, too"


def test_slow_functions_that_memory_hides_are_only_possible() -> None:
    """At 71 % of memory's rate, and 47 % of the issue slots, arithmetic is not the nearest roof."""
    load = AccessFacts("load.global.16", 3.6, "", 16.0, 16.0, 32, "lwbi", True, 0.0, 0.0)
    mix = {"fma": (236, 0, 0), "load.global.16": (4, 0, 0)}
    lines = (LineFacts("/src/k.py:24", 230.0, {"power": 2.0}),)
    facts = RangeFacts("compute", mix=mix, lines=lines, accesses=(replace(load, count=3.2),))
    one = found(facts, "slow-arithmetic")
    assert one is not None and one.confidence == "possible"


def test_barriers_that_order_nothing() -> None:
    scene = Scene()
    for block in range(132):
        for warp in range(4):
            ranges = [("a", 0, 6000), ("barrier @k.cu:9", 6000, 8000), ("a", 8000, 10_000)]
            scene.add(Warp(block, warp, block, 0, 10_000, ranges))
    trace = scene.trace(device="NVIDIA H200")
    work = RangeFacts("compute", mix={"fma": (100, 0, 0)})
    own, made = "/src/k.cu:9", "/lib/triton/language/standard.py:293"
    for needless, line, told in ((1.0, own, True), (0.0, own, False), (1.0, made, False)):
        wait = RangeFacts("wait:barrier", line=line, mix={"barrier": (1, 0, 0)}, needless=needless)
        code = CodeFacts("sm_90a", 64, ranges={"a": work, "barrier @k.cu:9": wait})
        findings = replace(trace, provenance={f"{FACTS}kernel": code.text()}).explain().every
        names = [one.id for one in findings]
        assert ("needless-barrier" in names) == told and ("barriers" in names) != told
        if told:
            one = findings[names.index("needless-barrier")]
            assert one.confidence == "likely" and one.bound_share == pytest.approx(0.2)
            assert "racecheck" in one.suggestion, "without a needed barrier a kernel is wrong"


def test_a_barrier_at_which_one_warp_never_waits_ends_with_it() -> None:
    """Without the barrier, the block would end as that warp does."""
    scene = Scene()
    for block in range(132):
        for warp in range(4):
            ranges = [("a", 0, 9000 if not warp else 1000), ("barrier @k.cu:9", 9000, 9010)]
            ranges[1:] = [("barrier @k.cu:9", ranges[0][2], 9010)]
            scene.add(Warp(block, warp, block, 0, 9010, ranges))
    wait = RangeFacts("wait:barrier", mix={"barrier": (1, 0, 0)}, needless=1.0)
    code = CodeFacts("sm_90a", 64, ranges={"barrier @k.cu:9": wait})
    trace = scene.trace(device="NVIDIA H200")
    said = replace(trace, provenance={f"{FACTS}kernel": code.text()}).explain()
    assert "needless-barrier" not in [one.id for one in said.every]


def test_what_a_block_stores_and_loads_again() -> None:
    moves = access("load.global.16", cost=16.0, least=16.0)
    store = replace(moves.accesses[0], unit="store.global.16", count=3.0)
    for depends, told in (("lwbs", True), ("lwb", False)):
        load = replace(store, unit="load.global.16", depends=depends)
        facts = replace(moves, accesses=(load, store), mix={"load.global.16": (3, 0, 0)})
        one = found(facts, "needless-pass")
        assert (one is not None) == told
        assert one is None or (one.confidence == "likely" and one.number.value == 1.0)


def test_a_pass_over_more_than_a_block_can_keep_is_not_needless() -> None:
    moves = access("load.global.16", cost=16.0, least=16.0)
    store = replace(moves.accesses[0], unit="store.global.16", count=3.0)
    for count, told in ((1.0, True), (3.0, False)):  # of 200 and of 600 KiB
        load = replace(store, unit="load.global.16", depends="lwbs", count=count)
        again = replace(moves, accesses=(load,), mix={"load.global.16": (3, 0, 0)})
        stores = (replace(store, count=50.0 * count),)
        kernel = replace(moves, accesses=stores, mix={"store.global.16": (1, 0, 0)})
        said = verdict(again, kernel=kernel)
        assert ("needless-pass" in [one.id for one in said.every]) == told


def test_of_two_passes_over_more_than_a_block_can_keep_the_first_is_needless() -> None:
    """It loads what the block had in registers when it stored it; the second may need its sum."""
    moves = access("load.global.16", cost=16.0, least=16.0)
    store = replace(moves.accesses[0], unit="store.global.16", count=3.0)
    one = replace(store, unit="load.global.16", depends="lwbs", line="/src/k.cu:25", keys=(5,))
    two, other = replace(one, line="/src/k.cu:31"), replace(one, line="/src/k.cu:31", keys=(6,))
    kernel = replace(moves, accesses=(replace(store, count=150.0),))
    for loads, told in (((one, two), True), ((one, other), False), ((two, other), False)):
        again = replace(moves, accesses=loads, mix={"load.global.16": (6, 0, 0)})
        said = [each for each in verdict(again, kernel=kernel).every if each.id == "needless-pass"]
        assert bool(said) == told
        assert not told or ("k.cu:25" in said[0].title and said[0].number.value < 0.4)


def test_pieces_that_requests_of_one_line_share_are_no_stride() -> None:
    more = {"align": 2, "depends": "lwi", "blocks_share": 0.9}
    strided = access("load.global.4", cost=16.0, least=4.0, **more)
    one = replace(strided.accesses[0], count=15.0)
    sparse = found(replace(strided, accesses=(one,)), "uncoalesced")
    dense = found(replace(strided, accesses=(replace(one, together=4.0),)), "uncoalesced")
    assert sparse is not None and dense is not None
    assert "strided by lane" in sparse.title and "piece by piece" in dense.title
    assert "aligned to 2 bytes" in dense.title and "align rows" in dense.suggestion
    assert dense.bound_share <= sparse.bound_share, "L2 brings each sector once"


def test_blocks_that_do_far_more_stand_for_themselves() -> None:
    """One of 64 blocks with records loops 300 times: 31 others for it would be beyond a roof."""
    scene, grid = Scene(), 64 * 31
    for block in range(64):
        steps = 300 if block == 63 else 1
        ranges = [("step", 30 * i, 30 * (i + 1)) for i in range(steps)]
        scene.add(Warp(block, 0, block, 0, 30 * steps, ranges))
    code = CodeFacts("sm_90a", 64, ranges={"step": RangeFacts("compute", mix={"fma": (8, 0, 0)})})
    trace = scene.trace(device="NVIDIA H200", grid=(grid, 1, 1))
    said = replace(trace, provenance={f"{FACTS}kernel": code.text()}).explain()
    (unit,) = said.mix
    assert unit.count == 8 * ((63 + 8) * 31 + 292)


def test_tiles_don_t_move_bytes_that_are_asked_for_once() -> None:
    copies = access("copy.global.16", cost=16.0, least=16.0)
    some = (replace(copies.accesses[0], count=4),)
    mix = {"copy.global.16": (4, 0, 0), "tensor.2": (10, 0, 0)}
    facts = replace(copies, activity="mma", mix=mix, accesses=some, products=4 * 512 * 20)
    assert found(facts, "small-tiles") is None, "memory is at its rate"


def test_narrow_loads_that_leave_memory_idle() -> None:
    """128 bytes of each of 16 warps are under way on an SM; an H200 needs 17.8 KB."""
    one = AccessFacts("load.global.2", 2, "", 2.0, 2.0, 32, "lwb", False, 0.0, 0.0)
    load = RangeFacts("load", mix={"load.global.2": (2, 0, 0)}, accesses=(one,))
    for facts, waits, told in (
        (load, 900, True),
        (load, 400, True),  # blocks begin and end for the rest
        (load, 200, False),  # it does something else
        (replace(load, accesses=(replace(one, unit="load.global.16", least=16.0),)), 900, False),
    ):
        scene = Scene()
        for block in range(264):
            for warp in range(8):
                ranges = [("load", 0, 10), ("wait for x @k.cu:4", 10, 10 + waits)]
                scene.add(Warp(block, warp, block % 132, 0, 1000, ranges))
        wait = RangeFacts("wait:memory", mix={"integer": (1, 0, 0)})
        code = CodeFacts("sm_90a", 32, ranges={"load": facts, "wait for x @k.cu:4": wait})
        trace = scene.trace(device="NVIDIA H200")
        said = replace(trace, provenance={f"{FACTS}kernel": code.text()}).explain()
        found = [one for one in said.every if one.id == "narrow-loads"]
        assert bool(found) == told
        assert not told or ("2.0 KB" in found[0].title and "17.8" in found[0].title)


def test_bytes_that_requests_of_one_line_share_are_memorys_once() -> None:
    one = AccessFacts("load.global.16", 4, "", 16.0, 16.0, 32, "lwbi", True, 0.0, 0.0)
    facts = RangeFacts("load", mix={"load.global.16": (4, 0, 0)}, accesses=(one,))
    half = replace(facts, accesses=(replace(one, together=8.0),))
    shares = [
        next(roof.share for roof in verdict(each).roofs if roof.name == "DRAM")
        for each in (facts, half)
    ]
    assert shares[1] == pytest.approx(shares[0] / 2)


def test_the_tail_of_sms_that_still_have_blocks_is_only_possible() -> None:
    """Of 10 blocks that an SM has room for, one is left in the second wave: it has the room."""
    scene = Scene()
    for block in range(132 * 10 + 132):
        begin = 0 if block < 1320 else 10_000
        ends = begin + 10_000 + block % 132 % 2
        scene.add(Warp(block, 0, block % 132, begin, ends, [("a", begin, ends)]))
    scene.add(Warp(1452, 0, 0, 10_000, 20_010, [("a", 10_000, 20_010)]))
    said = scene.trace(device="NVIDIA H200").explain()
    tails = [one.confidence for one in said.every if one.id == "tail"]
    assert tails == ["possible"]
