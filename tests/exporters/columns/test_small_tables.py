"""Launches from a file's facts: numbers that no column of a table has room for are refused."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from ikp.core.trace import Launch
from ikp.exporters.columns.small_tables import launches_of
from ikp.exporters.protobuf.varints import DamagedError
from tests.analysis.explain.launches import Scene, Warp

pytestmark = pytest.mark.any_pins


def launch() -> Launch:
    scene = Scene()
    scene.add(Warp(0, 0, 0, 0, 100, [("mix", 0, 50)]))
    return scene.trace().launches[0]


def facts() -> dict[str, Any]:
    return {**asdict(launch()), "grid": [*launch().grid], "block": [*launch().block], "notes": []}


def read(*some: dict[str, Any]) -> tuple[Launch, ...]:
    """Read launches of a file's table, which has a column for each fact."""
    return launches_of({"launches": {name: [one[name] for one in some] for name in some[0]}})


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
