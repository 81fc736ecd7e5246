"""Kernels with one known fault, recorded on an H200: it is found first, and not in repaired twins.

The traces are those that ``benchmarks/planted.py`` makes; gains.json says what the repair gained,
of the kernels without records.
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
    "slow_producer": "late-producer",
    "slow_consumer": "late-consumer",
    "imbalance": "imbalance",
    "launches": "launch-gaps",
    "occupancy": "low-occupancy",
    "skew": "barrier-skew",
    "stages": "few-stages",
    "epilogue": "epilogue",
    "serial_wgmma": "serial-mma",
    "uncoalesced": "narrow-loads",
    "conflicts": "bank-conflicts",
}


def findings(name: str, twin: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        ikp.load(PLANTED / f"{name}.{twin}.pftrace").explain().to_dict()["findings"]
    )
    return found


def test_all_planted_kernels_are_here() -> None:
    assert set(FOUND) == set(GAINS)


@pytest.mark.parametrize("name", FOUND)
def test_the_planted_cause_is_the_first_finding(name: str) -> None:
    assert findings(name, "faulty")[0]["id"] == FOUND[name]
    assert FOUND[name] not in [each["id"] for each in findings(name, "repaired")]
