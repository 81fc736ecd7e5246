"""Where evidence is missing, a verdict says so, and finds nothing that it can't know."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ikp.core.code_facts import CodeFacts, RangeFacts
from ikp.core.trace import ClockFit
from ikp.trace import Trace
from tests.analysis.explain.launches import Range, Scene, Warp

pytestmark = pytest.mark.any_pins


def unknown(scene: Scene, **changes: object) -> dict[str, str]:
    return {one.what: one.rationale for one in scene.trace(**changes).explain().unknown}


def one_block(**how: int) -> Scene:
    count = how.get("warps", 2)
    ranges = [("alpha", 100 * i, 100 * i + 50) for i in range(10)]
    return Scene().add(*(Warp(0, w, 0, 0, 1000, ranges) for w in range(count)))


def test_no_roles_no_payloads_no_code_one_launch() -> None:
    said = unknown(one_block())
    assert {
        "which role is late",
        "which wait belongs to which copy or product",
        "FLOPs, bytes and registers",
        "how launches differ",
        "what warps wait for",
        "what alpha is",
    } <= said.keys()
    assert "what warps do in 50 % of their time" in said


CODE = CodeFacts("sm_90a", ranges={"add": RangeFacts("compute"), "copy": RangeFacts("copy")})


def two_roles() -> Trace:
    """Return a consumer that waits most of its time, and a warp that recorded nothing."""
    ranges: list[Range] = []
    for start in range(0, 1000, 100):
        ranges += [("wait full", start, start + 70), ("add", start + 70, start + 95)]
    return Scene().add(Warp(0, 0, 0, 0, 1000, ranges), Warp(0, 1, 0, 0, 1000)).trace()


def test_ranges_of_the_code_that_no_warp_recorded_are_named() -> None:
    told = "ranges that no warp recorded"
    verdict = replace(two_roles(), provenance={"ranges of kernel": CODE.text()}).explain()
    (missing,) = (one for one in verdict.unknown if one.what == "what 1 of 2 warps did")
    assert f"{told}, copy:" in missing.mark
    (unseen,) = (one for one in verdict.every if one.id == "unseen-wait")
    assert f"{told}, such as copy:" in unseen.suggestion
    without = two_roles().explain()
    assert told not in str(without) and "let all warps record" in str(without)


def test_time_in_no_range_is_that_of_warps_that_recorded_some() -> None:
    said = unknown(Scene().add(*two_roles_of(0.95)))
    assert not any("of their time" in what for what in said)
    said = unknown(Scene().add(*two_roles_of(0.6)))
    assert "what warps do in 40 % of their time" in said


def two_roles_of(marked: float) -> tuple[Warp, Warp]:
    return Warp(0, 0, 0, 0, 1000, [("add", 0, round(1000 * marked))]), Warp(0, 1, 0, 0, 1000)


def test_where_nothing_was_found_the_text_says_where_the_time_is() -> None:
    warp = Warp(0, 0, 0, 0, 1000, [("add", 0, 600), ("mix", 600, 900)])
    verdict = Scene().add(warp).trace().explain()
    assert not verdict.every
    assert "60 % of the warps' time is in add (unknown)" in str(verdict)
    assert "time is in mix" not in str(verdict)


def test_one_warp() -> None:
    assert "how warps compare" in unknown(one_block(warps=1))


def test_dropped_records_and_a_ring() -> None:
    lost = {"attempted": 30, "kept": 20}
    assert "10 of 30" in unknown(one_block(), **lost)["how the kernel ended"]
    assert "a ring" in unknown(one_block(), overflow="wrap", **lost)["how the kernel began"]


def test_warps_that_never_finished() -> None:
    assert "when some warps ended" in unknown(one_block(), unfinished=1)


def test_clocks_that_do_not_fit() -> None:
    said = unknown(one_block(), clock=ClockFit("cycles", 0.5, "nominal"))
    assert "how SMs compare in time" in said
    said = unknown(one_block(), clock=ClockFit("cycles", 0.5, "fitted", 4))
    assert "how well clocks of SMs fit each other" in said


def test_warps_that_recorded_nothing() -> None:
    said = unknown(one_block().add(Warp(0, 2, 0, 0, 1000)))
    assert "what 1 of 3 warps did" in said


def test_no_ranges_at_all() -> None:
    scene = Scene().add(Warp(0, 0, 0, 0, 1000))
    verdict = scene.trace().explain()
    assert verdict.every == () and verdict.regions == () and verdict.tree == ()
    assert verdict.unknown[0].what == "what warps did between start and end"


def test_a_launch_of_one_moment() -> None:
    verdict = Scene().add(Warp(0, 0, 0, 0, 0)).trace().explain()
    assert verdict.every == () and verdict.lanes is None
    assert verdict.unknown[0].what == "how long anything took"


def test_a_trace_of_no_warps() -> None:
    trace = one_block().trace()
    empty = replace(trace, slots=Scene().trace().slots, events=Scene().trace().events)
    verdict = empty.explain()
    assert verdict.launch is None and verdict.unknown[0].what == "everything"
    assert "nothing to explain" in str(verdict)


def test_overlapping_ranges_count_once() -> None:
    ranges = [("load", 0, 600), ("copy", 400, 1000)]
    verdict = Scene().add(Warp(0, 0, 0, 0, 1000, ranges)).trace().explain()
    shares = {one.activity: one.share for one in verdict.time}
    assert shares == {"load": pytest.approx(0.4), "copy": pytest.approx(0.6)}


def test_facts_of_other_versions_are_no_facts() -> None:
    trace = one_block().trace()
    for text in ('{"version": 2, "ranges": {"alpha": ["mma"]}}', '{"version": 1}', "nonsense"):
        verdict = replace(trace, provenance={"ranges of kernel": text}).explain()
        assert verdict.regions[0].activity == "unknown"


def test_activities_of_other_versions_are_unknown() -> None:
    text = '{"version":1,"chip":"","registers":null,"shared":null,"all_products":false,'
    text += '"ranges":{"alpha":["teleport",0,0,0,0,null]}}'
    verdict = replace(one_block().trace(), provenance={"ranges of kernel": text}).explain()
    assert verdict.regions[0].activity == "unknown"
