"""Kernels with one known fault, recorded on an H200: it is found first, and not in repaired twins.

The traces are those that ``benchmarks/planted.py`` makes; gains.json says what the repair gained.
"""

import json
from pathlib import Path
from typing import Any

import pytest

import ikp

pytestmark = pytest.mark.any_pins

PLANTED = Path(__file__).parent / "planted"
GAINS = json.loads((PLANTED / "gains.json").read_text())
FOUND = {
    "tail": "tail",
    "slow_block": "slow-block",
    "imbalance": "imbalance",
    "launches": "launch-gaps",
    "occupancy": "low-occupancy",
    "skew": "barrier-skew",
    "stages": "few-stages",
    "epilogue": "epilogue",
    "serial_wgmma": "serial-mma",
}
UNKNOWN = ("slow_producer", "slow_consumer", "uncoalesced", "conflicts")
"""Their traces lack what would tell: the warps that load, or what ranges are in machine code."""


def findings(name: str, twin: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        ikp.load(PLANTED / f"{name}.{twin}.pftrace").explain().to_dict()["findings"]
    )
    return found


def test_all_planted_kernels_are_here() -> None:
    assert {*FOUND, *UNKNOWN} == set(GAINS)


@pytest.mark.parametrize("name", FOUND)
def test_the_planted_cause_is_the_first_finding(name: str) -> None:
    assert findings(name, "faulty")[0]["id"] == FOUND[name]
    assert FOUND[name] not in [each["id"] for each in findings(name, "repaired")]


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_a_trace_cannot_tell_is_not_guessed(name: str) -> None:
    others = {*FOUND.values(), "late-producer", "late-consumer", "bank-conflicts"}
    assert not others & {each["id"] for each in findings(name, "faulty")}
