"""Causes and symptoms: what evidence decides, and what time goes to for any reason."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ikp.analysis.explain import screen
from ikp.analysis.explain.stakes import decided
from ikp.analysis.explain.verdict import Finding, Number, Tried, Verdict, Where
from ikp.core.code_facts import FACTS, AccessFacts, CodeFacts, Mix, RangeFacts
from ikp.core.excess_facts import ExtraWork
from ikp.core.run_figures import FAR
from tests.analysis.explain.launches import Scene, Warp
from tests.analysis.explain.test_counted import access, found

pytestmark = pytest.mark.any_pins


def finding(name: str, confidence: str, **more: Any) -> Finding:
    number = more.pop("number", Number("x", 0.5, "share"))
    more = {"bound_share": 0.5} | more
    values = {"title": f"a {name}", "what_if": "", "rationale": "", "suggestion": "do"} | more
    return Finding(
        id=name, number=number, bound_ns=5.0, speedup_at_most=2.0,
        confidence=confidence, where=Where(lines=("/src/k.py:7",)), **values,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "confidence", "more", "cause"),
    [
        ("exposed-load", "likely", {}, True),
        ("exposed-load", "possible", {}, False),
        ("divergence", "possible", {}, False),
        ("divergence", "likely", {}, False),  # results may need each lane's own way
        ("divergence", "likely", {"tried": Tried("load", "", "", 0.2, 0.01, "")}, True),
        ("imbalance", "likely", {}, False),  # blocks differ for no known reason
        ("imbalance", "measured", {}, True),
        ("tail", "measured", {"bound_share": 0.2}, False),  # any grid has a last wave
        ("tail", "measured", {"bound_share": 0.3}, True),
        ("local-memory", "possible", {}, False),  # a few spills, which others hide
        ("busy-lines", "possible", {}, False),  # a place
        ("fences", "possible", {}, True),  # a fault in any case
        ("bank-conflicts", "possible", {"number": Number("c", 8.0, "ratio")}, True),
        ("bank-conflicts", "possible", {"number": Number("c", 2.0, "ratio")}, False),
        ("uncoalesced", "likely", {"number": Number("c", 8.0, "ratio")}, True),
        ("uncoalesced", "likely", {"number": Number("c", 2.0, "ratio")}, False),
        ("barriers", "possible", {"tried": Tried("barrier", "", "", 0.2, 0.01, "")}, True),
        ("barriers", "possible", {"tried": Tried("barrier", "", "", 0.02, 0.01, "")}, False),
    ],
)
def test_what_is_possible_is_a_symptom_where_it_is_no_fault_in_any_case(
    name: str, confidence: str, more: dict[str, Any], cause: bool
) -> None:
    one = finding(name, confidence, **more)
    assert decided([one]) == (((one,), ()) if cause else ((), (one,)))


def test_a_place_is_no_cause_where_another_finding_says_why() -> None:
    place, why = finding("exposed-load", "likely"), finding("linear-search", "likely")
    causes, symptoms = decided([place, why])
    assert [one.id for one in causes] == ["linear-search"]
    assert [(one.id, one.confidence) for one in symptoms] == [("exposed-load", "possible")]
    small = replace(why, bound_ns=1.0)
    assert decided([place, small]) == ((place, small), ())
    other = finding("tail", "likely")
    assert decided([place, other]) == ((place, other), ())


@pytest.mark.parametrize(
    ("cause", "effect", "goes"),
    [
        (finding("flag-wait", "likely"), finding("imbalance", "measured"), True),
        (finding("flag-wait", "possible"), finding("imbalance", "measured"), False),
        (replace(finding("flag-wait", "likely"), bound_ns=1.0), finding("tail", "likely"), False),
        (finding("imbalance", "measured"), finding("flag-wait", "likely"), False),
    ],
)
def test_what_a_cause_shows_as_is_no_further_cause(
    cause: Finding, effect: Finding, goes: bool
) -> None:
    causes, symptoms = decided([effect, cause])
    assert (effect in symptoms) == goes == (effect not in causes)


def test_where_a_compiler_lays_numbers_out_conflicts_are_no_fault_of_the_source() -> None:
    may = finding("bank-conflicts", "possible", number=Number("c", 8.0, "ratio"))
    likely = replace(may, confidence="likely")
    assert decided([may], owns_layouts=False) == ((), (may,))
    assert decided([likely], owns_layouts=False) == ((likely,), ())


def waiting(warps: int = 16) -> Verdict:
    """Return the verdict on blocks whose warps wait for loads half of the time."""
    scene = Scene()
    for block in range(264):
        ranges = [("wait for x @k.py:7", 0, 500), ("fma", 500, 1000)]
        scene.add(*(Warp(block, w, block % 132, 0, 1000, ranges) for w in range(warps // 2)))
    trace = scene.trace(device="NVIDIA H200")
    code = CodeFacts("sm_90a", 32, 0, ranges={"wait for x @k.py:7": few_loads()}, kernel="kernel")
    return replace(trace, provenance={f"{FACTS}kernel": code.text()}).explain()


def few_loads(count: float = 0.1, **more: Any) -> RangeFacts:
    """Return the facts of a wait for loads that need little of any roof."""
    made = replace(access("load.global.4", **more), activity="wait:memory")
    (one,) = made.accesses
    mix = {"load.global.4": (count, 0.0, 0.0)}
    return replace(made, accesses=(replace(one, count=count),), mix=mix)


def test_symptoms_come_behind_findings_and_promise_nothing() -> None:
    said = waiting()
    assert [one.id for one in said.findings] == []
    assert "exposed-load" in [one.id for one in said.symptoms]
    text = screen.as_text(said)
    assert "nothing shows that a change would win it" in text and "[exposed-load]" in text
    assert "less time" not in text
    assert "[exposed-load]" in screen.short_text(said)
    assert [one["id"] for one in json.loads(said.to_json())["symptoms"]] == [
        one.id for one in said.symptoms
    ]
    assert "exposed-load" in [one.id for one in waiting(4).findings], "no other warps to work"


def tail(alone: int) -> Finding | None:
    """Return the tail of blocks that, with few beside them, take so long, and 1,000 ns else."""
    scene, number = Scene(), 0
    for sm in range(32):
        for _ in range(4):
            scene.add(Warp(number, 0, sm, 0, 1000))
            number += 1
    for sm in range(12):
        scene.add(Warp(number, 0, sm, 1000, 1000 + alone))
        number += 1
    said = scene.trace().explain()
    return next((one for one in said.every if one.id == "tail"), None)


def test_a_tail_of_blocks_that_run_faster_loses_less() -> None:
    whole, half, none = (tail(each) for each in (1000, 500, 250))
    assert whole is not None and half is not None and none is None
    assert whole.bound_share == pytest.approx(0.5 * (1 - 12 / 128), abs=0.01)
    assert half.bound_share < 0.75 * whole.bound_share


def of_host(
    kind: str, count: float, depends: str = "lwbih", mix: Mix | None = None, **more: Any
) -> Finding | None:
    """Return the finding on a launch of 50 us whose parameter points to someone's memory."""
    scene = Scene()
    for block in range(264):
        ranges = [("step", 1000 * i, 1000 * (i + 1)) for i in range(50)]
        scene.add(*(Warp(block, w, block % 132, 0, 50_000, ranges) for w in range(8)))
    trace = scene.trace(device="NVIDIA H200")
    loads = few_loads(count, depends=depends, **more)
    ranges_of = {"step": replace(loads, mix=mix or loads.mix)}
    text = CodeFacts("sm_90a", 32, 0, ranges=ranges_of, kernel="kernel").text()
    far = json.dumps({"0": [kind, 4096, 1 << 20]})
    said = replace(trace, provenance={f"{FACTS}kernel": text, f"{FAR}kernel": far}).explain()
    return next((one for one in said.every if one.id == "far-memory"), None)


def test_loads_of_memory_that_is_not_the_devices() -> None:
    one = of_host("host", 0.2)
    assert one is not None and "accesses the host's memory: 2.7 MB pass a bus" in one.title
    peer = of_host("another GPU", 0.2)
    assert peer is not None and "another GPU's memory" in peer.title
    assert of_host("host", 0.2, depends="lwbi") is None
    assert of_host("host", 0.001) is None, "in no time"
    assert of_host("managed", 0.2) is not None
    assert of_host("managed", 10.0) is None, "its pages are on the device"


def test_loops_in_no_count_that_load_from_there_are_known_by_their_time() -> None:
    looped = {"load.global.4": (0.0, 0.0, 4.0), "integer": (0.0, 0.0, 6.0)}
    one = of_host("host", 0.0, depends="lwdh", mix=looped, in_loop=True)
    assert one is not None and "loops of step load from the host's memory" in one.title
    assert one.confidence == "likely" and 0.5 < one.bound_share < 1
    assert of_host("managed", 0.0, depends="lwdh", mix=looped, in_loop=True) is None
    assert of_host("host", 0.0, depends="lwd", mix=looped, in_loop=True) is None


def slow_wait(took: int, **more: Any) -> Finding | None:
    """Return the finding on waits for loads that take so many nanoseconds each."""
    scene = Scene()
    for block in range(264):
        ranges = [("wait for x @k.py:7", 10, 10 + took)]
        scene.add(*(Warp(block, w, block % 132, 0, took + 20, ranges) for w in range(8)))
    trace = scene.trace(device="NVIDIA H200")
    ranges_of = {"wait for x @k.py:7": few_loads(1.0, **more)}
    code = CodeFacts("sm_90a", 32, 0, ranges=ranges_of, kernel="kernel")
    said = replace(trace, provenance={f"{FACTS}kernel": code.text()}).explain()
    return next((each for each in said.findings if each.id == "far-memory"), None)


def test_waits_of_many_times_the_devices_latency() -> None:
    one = slow_wait(20_000)
    assert one is not None and "20.0 us (median)" in one.title
    assert slow_wait(1_500) is None


def test_a_third_pass_is_one_too_many() -> None:
    def passes(count: int) -> str:
        some = [
            AccessFacts("load.global.16", 0.5, f"/src/k.py:{7 + i}", 16.0, 16.0, 32, "lwbi", True,
                        0.0, 0.0, keys=(1, 2))
            for i in range(count)
        ]  # fmt: skip
        facts = RangeFacts("load", mix={"load.global.16": (1, 0, 0)}, accesses=tuple(some))
        one = found(facts, "repeated-loads")
        return one.confidence if one else ""

    assert (passes(1), passes(2), passes(3)) == ("", "possible", "likely")


def test_tiles_of_which_few_results_are_stored() -> None:
    def padded(stored: float, **more: Any) -> Finding | None:
        store = access("store.global.16", threads=stored, own=stored, in_loop=False, **more)
        mix = {**store.mix, "tensor.group.2": (10, 0, 0)}
        return found(replace(store, mix=mix, products=1e6), "idle-threads")

    one = padded(0.35)
    assert one is not None and "35 % of the elements exist" in one.title
    assert padded(0.9) is None


def test_accesses_that_no_thread_of_a_block_takes_part_in() -> None:
    """A tile of 8,192 for rows of 1,500: most of what each thread would load is masked off."""

    def masked(count: float, **more: Any) -> Finding | None:
        some = access("load.global.4", together=4.0, threads=1.0, in_loop=False)
        values = {"cost": None, "least": None, "addresses": None, "count": count} | more
        none = replace(some.accesses[0], threads=None, **values)
        return found(replace(some, accesses=(*some.accesses, none)), "idle-threads")

    one = masked(300)
    assert one is not None and "25 % of the elements exist" in one.title
    assert masked(100) is None, "half of the tile"
    assert masked(300, depends="lwbd") is None, "addresses that data choose are not known"
    assert masked(300, together=None) is None
    assert masked(300, own=0.99) is None, "other blocks than those of the margin take part"


def test_requests_that_no_thread_takes_part_in_move_nothing() -> None:
    """A load behind a null pointer: a parameter multiplies by zero what is never loaded."""
    some = access("load.global.4", together=4.0)
    zero = {"times zero": ExtraWork(100, 100, "/src/k.py:9")}
    lost = replace(some.accesses[0], line="/src/k.py:9")
    never = replace(lost, cost=None, least=None, addresses=None)

    def zeroed(one: AccessFacts) -> Finding | None:
        facts = replace(some, accesses=(*some.accesses, one), extra=zero)
        return found(facts, "zeroed-loads")

    assert zeroed(lost) is not None
    assert zeroed(never) is None


def in_a_loop_of_products(*, copies: bool) -> Verdict:
    """Return the verdict on warps that wait for loads before each product, 16 of them on an SM."""
    scene = Scene()
    for block in range(264):
        ranges = [
            each
            for k in range(4)
            for each in (("wait for a @k.py:7", 250 * k, 250 * k + 100),
                         ("dot", 250 * k + 120, 250 * k + 240))
        ]  # fmt: skip
        more = [("cp.async x4 @k.py:6", 240, 250)] if copies else []
        every = sorted([*ranges, *more], key=lambda one: one[1])
        scene.add(*(Warp(block, w, block % 132, 0, 1000, every) for w in range(8)))
    trace = scene.trace(device="NVIDIA H200")
    products = RangeFacts("mma", mix={"tensor.group.2": (1, 0, 0)}, products=1e4)
    code = CodeFacts(
        *("sm_90a", 32, 0),
        ranges={
            "wait for a @k.py:7": few_loads(),
            "dot": products,
            "cp.async x4 @k.py:6": RangeFacts("copy"),
        },
        kernel="kernel",
    )
    return replace(trace, provenance={f"{FACTS}kernel": code.text()}).explain()


def test_loads_of_a_loop_of_products_that_nothing_loads_ahead() -> None:
    ahead, not_ahead = (in_a_loop_of_products(copies=each) for each in (True, False))
    assert "exposed-load" in [one.id for one in not_ahead.findings]
    assert "exposed-load" in [one.id for one in ahead.symptoms]


@pytest.mark.parametrize(("apart", "sure"), [(0, True), (125, False)])
def test_waits_for_copies_are_hidden_by_products_of_other_warps(apart: int, sure: bool) -> None:
    """Each wait leaves no copy under way; half of the warps multiply while the others wait."""
    scene = Scene()
    for block in range(132):
        for warp in range(8):
            first = apart * (warp % 2)
            ranges = [("cp.async x4 @k.py:6", 0, 5)]
            for k in range(16):
                at = first + 10 + 250 * k
                ranges.append(("cp.async wait @k.py:6", at, at + 125))
                ranges.append(("dot", at + 125, at + 250))
            scene.add(Warp(block, warp, block, 0, 4140, ranges))
    code = CodeFacts(
        *("sm_90a", 32, 0),
        ranges={
            "cp.async x4 @k.py:6": RangeFacts("copy"),
            "cp.async wait @k.py:6": RangeFacts("wait:copy"),
            "dot": RangeFacts("mma", mix={"tensor.group.2": (1, 0, 0)}, products=1e4),
        },
        kernel="kernel",
        ahead=0.0,
    )
    trace = scene.trace(device="NVIDIA H200")
    said = replace(trace, provenance={f"{FACTS}kernel": code.text()}).explain()
    one = next(one for one in said.every if one.id == "late-copy")
    assert (one.confidence == "likely") == sure
    assert (one in said.findings) == sure


@pytest.mark.parametrize(("waves", "fits"), [(8, True), (1, False)])
def test_loads_again_of_what_l2_holds_take_its_time(waves: int, fits: bool) -> None:
    """Three passes of each block over 8 * 128 KB / waves; 132 blocks run at once."""
    scene = Scene()
    for block in range(132 * waves):
        begin = block // 132 * 16_000 // waves
        ranges = [("step", begin, begin + 16_000 // waves)]
        scene.add(Warp(block, 0, block % 132, begin, begin + 16_000 // waves, ranges))
    some = tuple(
        AccessFacts("load.global.16", 256 / waves, f"/src/k.py:{7 + i}", 16.0, 16.0, 32, "lwbi",
                    True, 0.0, 0.0, keys=(1, 2))
        for i in range(3)
    )  # fmt: skip
    facts = RangeFacts("load", mix={"load.global.16": (256 / waves, 0, 0)}, accesses=some)
    code = CodeFacts("sm_90a", 32, 0, ranges={"step": facts}, kernel="kernel")
    trace = scene.trace(device="NVIDIA H200")
    said = replace(trace, provenance={f"{FACTS}kernel": code.text()}).explain()
    one = next(one for one in said.every if one.id == "repeated-loads")
    assert one.number.value == pytest.approx(1 / 3)
    assert (one.bound_share < 0.8 * one.number.value) == fits


@pytest.mark.parametrize(
    ("cause", "effect"),
    [
        ("promoted-sums", "local-memory"),  # the second sum's registers
        ("flag-wait", "atomics"),  # a loop of atomics that asks whether it is a block's turn
        ("wide-operands", "reworked-operands"),
        ("clock-reads", "costly-line"),
        ("slow-arithmetic", "alike-lanes"),
    ],
)
def test_what_a_cause_shows_as_goes_with_it(cause: str, effect: str) -> None:
    both = finding(effect, "likely"), finding(cause, "likely")
    assert decided(both) == ((both[1],), (both[0],))
    less = replace(both[1], bound_ns=1.0)
    assert decided([both[0], less])[0] == (both[0], less), "a fifth of it explains little"
