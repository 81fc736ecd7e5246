from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import ikp
from ikp.core.objects import items
from ikp.core.trace import Trace
from ikp.errors import UsageError
from tests.exporters.perfetto.examples import START, launch, warps
from tests.strategies import traces_with_args
from tests.trace_processor import check_trace

pytestmark = pytest.mark.any_pins


def example() -> Trace:
    """Return two launches of two blocks, of which the second did the same on another SM."""
    recorded = [[(0, 9), 9], [(0, 4), (5, 8)], [(10, 12)], []]
    trace = warps(
        recorded,
        blocks=[(0, 0, 9), (1, 0, 8), (0, 10, 20), (1, 10, 30)],
        names=["load", "done", "load_a", "dot"],
    )
    slots = replace(
        trace.slots,
        launch=np.array([0, 0, 1, 1], np.int32),
        block=np.array([0, 1, 0, 1], np.int64),
        warp=np.array([0, 1, 0, 1], np.int32),
        role=np.array([0, 1, 0, 1], np.int32),
    )
    launches = (launch("gemm", attempted=4, kept=4), launch("norm", attempted=1, kept=1))
    return replace(trace, slots=slots, launches=launches, roles=("", "producer"))


def names(trace: Trace) -> list[tuple[str, str, int]]:
    return [(one.label, one.region, one.block) for one in items(trace)]


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ({"region": "load*"}, [("gemm", "load", 0), ("gemm", "load_a", 1), ("norm", "load", 0)]),
        ({"region": ["dot", "done"]}, [("gemm", "done", 0), ("gemm", "dot", 1)]),
        ({"region": lambda name: name.endswith("a")}, [("gemm", "load_a", 1)]),
        ({"launch": "n*"}, [("norm", "load", 0)]),
        ({"block": 1}, [("gemm", "load_a", 1), ("gemm", "dot", 1)]),
        ({"sm": range(1)}, [("gemm", "load", 0), ("gemm", "done", 0), ("norm", "load", 0)]),
        ({"warp": np.int32(1), "region": "d*"}, [("gemm", "dot", 1)]),
        ({"role": "producer"}, [("gemm", "load_a", 1), ("gemm", "dot", 1)]),
        ({"role": ""}, [("gemm", "load", 0), ("gemm", "done", 0), ("norm", "load", 0)]),
        ({"kind": "instant"}, [("gemm", "done", 0)]),
        (
            {"window_ns": (8.5, None)},
            [("gemm", "load", 0), ("gemm", "done", 0), ("norm", "load", 0)],
        ),
        ({"window_ns": (None, 3)}, [("gemm", "load", 0), ("gemm", "load_a", 1)]),
        ({"where": np.array([0, 1, 0, 0, 0], bool)}, [("gemm", "done", 0)]),
    ],
)
def test_what_meets_the_conditions_is_left(choice: dict[str, Any], wanted: list[Any]) -> None:
    assert names(ikp.edit.select(example(), **choice)) == wanted


def test_warps_that_are_chosen_stay_without_events_and_others_go() -> None:
    by_region = ikp.edit.select(example(), region="dot")
    assert len(by_region.slots) == 4
    by_block = ikp.edit.select(example(), block=0)
    assert by_block.slots.block.tolist() == [0, 0]
    assert [(one.attempted, one.kept) for one in by_block.launches] == [(2, 2), (1, 1)]
    by_launch = ikp.edit.select(example(), launch="norm")
    assert [one.label for one in by_launch.launches] == ["norm"]
    assert by_launch.slots.launch.tolist() == [0, 0]
    assert by_launch.launches[0] == example().launches[1]


def test_what_was_done_stands_in_the_trace_and_under_its_table() -> None:
    trace = ikp.edit.select(ikp.edit.select(example(), region="load*"), sm=0)
    assert trace.provenance["edited"] == (
        "select(region='load*') kept 3 of 5 events; select(sm=0) kept 2 of 3 events"
    )
    assert f"edited: {trace.provenance['edited']}." in str(trace.stats())
    assert "edited" not in example().provenance


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"region": "lod"}, r"no region matches 'lod'; there are: .*'load'"),
        ({"launch": "x*"}, "no launch matches"),
        ({"role": "consumer"}, "no role matches"),
        ({"sm": 7}, r"no warp has sm=7; the trace has 0, 1"),
        ({"block": "0"}, "block='0' is neither an integer nor several"),
        ({"warp": [0.5]}, "neither an integer nor several"),
        ({"kind": "counter"}, "kind='counter' is unknown"),
        ({"window_ns": (9, 3)}, "is no window"),
        ({"window_ns": 5}, "is no window"),
        ({"where": [1, 2]}, "one bool for each of the 5 events"),
    ],
    ids=str,
)
def test_a_condition_that_cannot_be_is_told(choice: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ikp.edit.select(example(), **choice)


@pytest.mark.tp
def test_a_part_loads_in_the_viewer(tmp_path: Path) -> None:
    for i, choice in enumerate([{"region": "load*"}, {"block": 1}, {"launch": "norm"}]):
        trace = ikp.edit.select(example(), **choice)
        trace.save(tmp_path / f"{i}.pftrace")
        check_trace(tmp_path / f"{i}.pftrace", trace)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trace=traces_with_args(), data=st.data())
def test_parts_together_are_the_whole(trace: Trace, data: st.DataObject) -> None:
    """Chosen by a mask and by its opposite, each event and its arguments is in one of both."""
    assume(len(trace.events))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=1, max_size=1)) * len(trace.events))
    mask[::2] = ~mask[::2]
    parts = [ikp.edit.select(trace, where=one) for one in (mask, ~mask)]
    found = sorted(map(repr, (item for part in parts for item in items(part))))
    assert found == sorted(map(repr, items(trace)))


def test_the_window_counts_from_the_first_warp_s_start() -> None:
    trace = ikp.edit.shift(example(), 5)
    assert int(trace.slots.start_ns.min()) == START + 5
    assert names(ikp.edit.select(trace, window_ns=(None, 3))) == names(
        ikp.edit.select(example(), window_ns=(None, 3))
    )
