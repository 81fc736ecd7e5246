"""Launches from a file's facts: numbers that no column of a table has room for are refused."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.core.trace import Launch
from ikp.exporters.columns.packing import MANY, facts_of, to_json
from ikp.exporters.columns.small_tables import launches_of
from ikp.exporters.protobuf.varints import DamagedError
from tests.analysis.explain.launches import Scene, Warp

pytestmark = pytest.mark.any_pins


_SCENE = Scene()
_SCENE.add(Warp(0, 0, 0, 0, 100, [("mix", 0, 50)]))
TRACE = _SCENE.trace()


def launch() -> Launch:
    return TRACE.launches[0]


def facts() -> dict[str, Any]:
    return {**asdict(launch()), "grid": [*launch().grid], "block": [*launch().block], "notes": []}


def read(*some: dict[str, Any]) -> tuple[Launch, ...]:
    """Read launches of a file's table, which has a column for each fact."""
    return launches_of({"launches": {name: [one[name] for one in some] for name in some[0]}})


@given(
    st.lists(
        st.sampled_from(["a", "b", ("c", None, 0.5), ("d", 3, 0.5), ("e", 0, 1.0)]), max_size=200
    )
)
def test_launches_come_back_folded_or_not(choices: list[Any]) -> None:
    """The rule: which columns have few values, and so are folded, changes no launch."""
    one = launch()
    launches = [
        replace(one, label=each, notes=(each,))
        if isinstance(each, str)
        else replace(one, rank=each[1], clock=replace(one.clock, ns_per_tick=each[2]))
        for each in choices
    ]
    launches = [replace(each, number=number) for number, each in enumerate(launches)]
    written = json.loads(to_json(facts_of(replace(TRACE, launches=tuple(launches)))))
    assert launches_of(written) == tuple(launches)
    folded = {name for name, each in written["launches"].items() if isinstance(each, dict)}
    assert folded >= {"clock", "rank", "grid", "label"} if len(launches) >= MANY else not folded
    assert "number" not in folded


@pytest.mark.parametrize(
    "column",
    [
        {"values": [1], "places": [1]},
        {"values": [1], "places": [-1]},
        {"values": [1], "places": [0.0]},
        {"values": [1], "places": [True]},
        {"values": [1], "places": 0},
        {"values": 1, "places": [0]},
        {"values": [1]},
        {"places": [0]},
        {"values": [1], "places": [0, 0]},
        {"values": ["1"], "places": [0]},
        "1",
    ],
)
def test_damaged_folded_columns_are_refused(column: Any) -> None:
    table = {name: [value] for name, value in facts().items()}
    good = {"values": [1], "places": [0]}
    assert launches_of({"launches": {**table, "attempted": good}})[0].attempted == 1
    with pytest.raises(DamagedError):
        launches_of({"launches": {**table, "attempted": column}})


def test_a_launch_comes_back() -> None:
    (made,) = read({**facts(), "rank": 7})
    assert made == replace(launch(), rank=7)


@pytest.mark.parametrize(
    "more", [{"rank": 1 << 32}, {"grid": [1, 1 << 31, 1]}, {"block": [-(1 << 40), 1, 1]}]
)
def test_numbers_of_more_than_32_bits_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(DamagedError, match="more than 32 bits"):
        read({**facts(), **more})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"warps_per_block": 0}, "an empty grid or block"),
        ({"grid": [1, 0, 1]}, "an empty grid or block"),
        ({"clock": {"kind": "cycles", "ns_per_tick": 1.0, "rate": "exact", "bits": -1}}, "-1 bits"),
        ({"clock": {"kind": "cycles", "ns_per_tick": 1.0, "rate": "exact", "bits": 33}}, "33 bits"),
        *(
            ({name: value}, "a number of records or of bytes")
            for name in ("attempted", "kept", "capacity", "needed_bytes", "relaunches", "number")
            for value in (-1, 1 << 62, 1 << 90)
        ),
    ],
)
def test_numbers_that_no_launch_has_are_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(DamagedError, match=said):
        read({**facts(), **more})
