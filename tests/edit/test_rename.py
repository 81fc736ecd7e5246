from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ikp
from ikp.core.objects import items
from ikp.core.trace import Trace
from ikp.errors import UsageError
from tests.edit.test_select import example, names
from tests.strategies import traces_with_args
from tests.trace_processor import check_trace, columns, open_trace
from tests.trace_processor.found import COUNTERS

pytestmark = pytest.mark.any_pins


def regions(trace: Trace) -> list[str]:
    return [region.name for region in trace.regions]


def test_regions_get_other_names() -> None:
    assert regions(ikp.edit.rename_regions(example(), {"dot": "mma"})) == [
        "load",
        "done",
        "load_a",
        "mma",
    ]
    assert regions(ikp.edit.rename_regions(example(), str.upper)) == [
        "LOAD",
        "DONE",
        "LOAD_A",
        "DOT",
    ]


def test_regions_that_get_one_name_become_one_region() -> None:
    merged = ikp.edit.merge_regions(example(), lambda name: name.removesuffix("_a"))
    assert regions(merged) == ["load", "done", "dot"]
    assert merged.stats().select(launch="gemm")["load"].count == 2
    assert names(merged)[2] == ("gemm", "load", 1)


def test_launches_get_other_labels() -> None:
    one = ikp.edit.rename_launches(example(), {"norm": "gemm"})
    assert [launch.label for launch in one.launches] == ["gemm", "gemm"]
    assert one.stats().evidence[0].launches == 2


def test_warps_get_roles_by_number_or_by_function() -> None:
    by_number = ikp.edit.rename_warps(example(), {0: "consumer"})
    assert [one.role for one in items(by_number)] == [
        *["consumer"] * 2,
        *["producer"] * 2,
        "consumer",
    ]
    named = ikp.edit.rename_warps(example(), lambda block, warp: f"{block}-{warp}")
    assert named.roles == ("", "0-0", "1-1")
    none = ikp.edit.rename_warps(example(), {1: ""})
    assert (none.roles, none.slots.role.tolist()) == (("",), [0, 0, 0, 0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: ikp.edit.rename_regions(t, {"x": "y"}), "no region is named 'x'; the trace has"),
        (lambda t: ikp.edit.rename_regions(t, {"dot": "load"}), "call ikp.edit.merge_regions"),
        (lambda t: ikp.edit.rename_regions(t, {"dot": 3}), "a string, not 3"),
        (lambda t: ikp.edit.rename_launches(t, {"x": "y"}), "no launch is named 'x'"),
        (lambda t: ikp.edit.rename_warps(t, {9: "x"}), "no block has a warp 9"),
        (lambda t: ikp.edit.rename_warps(t, lambda block, warp: None), "a string, not None"),
        (lambda t: ikp.edit.group_by(t, "grid"), "can't group by 'grid'"),
        (lambda t: ikp.edit.group_by(t, lambda one: 3), "a string, not 3"),
    ],
)
def test_names_that_cannot_be_are_told(call: Callable[[Trace], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call(example())


def test_events_are_grouped_into_launches_of_their_own() -> None:
    grouped = ikp.edit.group_by(example(), "region")
    assert [launch.label for launch in grouped.launches] == [
        "gemm · load",
        "gemm · done",
        "gemm · load_a",
        "gemm · dot",
        "norm · load",
    ]
    by_warp = ikp.edit.group_by(example(), "warp")
    assert {launch.label for launch in by_warp.launches} == {
        "gemm · warp 0",
        "gemm · warp 1",
        "norm · warp 0",
    }
    by_role = ikp.edit.group_by(example(), "role")
    assert by_role.launches[0].label == "gemm · no role"
    long = ikp.edit.group_by(example(), lambda one: "tail" if one.start_ns % 2 else "head")
    assert Counter(one.label for one in items(long)) == {
        "gemm · head": 2,
        "gemm · tail": 2,
        "norm · head": 1,
    }


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trace=traces_with_args(), by=st.sampled_from(["region", "role", "warp", "block", "sm"]))
def test_grouping_keeps_every_event(trace: Trace, by: str) -> None:
    grouped = ikp.edit.group_by(trace, by)
    found = Counter(_what(one) for one in items(grouped))
    assert found == Counter(_what(one) for one in items(trace))
    assert sorted(grouped.events.slot.tolist()) == grouped.events.slot.tolist()


def _what(one: Any) -> str:
    return repr((one.region, one.block, one.warp, one.start_ns, one.payload, one.args))


@pytest.mark.tp
def test_the_viewer_shows_the_new_names(tmp_path: Path) -> None:
    path = tmp_path / "t.pftrace"
    trace = ikp.edit.rename_launches(example(), {"gemm": "GEMM 4096"})
    trace = ikp.edit.rename_warps(trace, {0: "consumer", 1: "producer"})
    trace = ikp.edit.merge_regions(trace, lambda name: name.removesuffix("_a"))
    trace.save(path)
    check_trace(path, trace)
    with open_trace(path) as processor:
        tops = "select id from track where name glob 'launches*'"
        launches = columns(processor, f"select name from track where parent_id in ({tops})")
        tracks = columns(processor, "select distinct name from track where name glob 'warp *'")
    found = set(launches["name"]) - set(COUNTERS)
    assert found == {"GEMM 4096", "about this file", "norm"}
    assert sorted(tracks["name"]) == ["warp 0 consumer", "warp 1 producer"]


@pytest.mark.tp
@pytest.mark.parametrize("by", ["region", "warp", "sm"])
def test_the_viewer_shows_groups_as_launches(by: str, tmp_path: Path) -> None:
    trace = ikp.edit.group_by(example(), by)
    trace.save(tmp_path / "t.pftrace")
    check_trace(tmp_path / "t.pftrace", trace)
