"""Kernels with one known fault, recorded on an H200: it is found first, and not in repaired twins.

The traces are those that ``benchmarks/planted.py`` makes; gains.json says what the repair gained,
of the kernels without records.
"""

import json
from pathlib import Path
from typing import Any

import pytest

import ikp
from tests.others import without_records

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
LIMITS = {
    "occupancy": "slow-memory",  # it follows links: latency is all there is
    "slow_consumer": "queued-copies",  # eight copies at once queue for memory
    "launches": "few-warps",  # one for each scheduler: what makes its launches short
    "stages": "epilogue",  # both groups of warps store at once, while no product is under way
}
"""What the verdict says of repaired kernels: not their fault; mending it was not tried."""
FAR = {
    "slow_consumer": "without its work it is memory that limits, whose rate the trace doesn't say",
    "stages": "one more stage than two could double the rate; cores and memory don't go with it",
    "serial_wgmma": "the twin's warps are held while they issue products: it overlaps little",
}
"""Of whose gain the bound is no tenth near, and what is likely to be why."""


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


@pytest.mark.parametrize("name", FOUND)
def test_a_repaired_kernel_has_no_cause_but_what_limits_it(name: str) -> None:
    told = [each["id"] for each in findings(name, "repaired")]
    assert FOUND[name] not in told
    assert set(told) <= {LIMITS.get(name)}


@pytest.mark.parametrize("twin", ["faulty", "repaired"])
@pytest.mark.parametrize("name", FOUND)
def test_one_block_in_seven_tells_the_same(name: str, twin: str) -> None:
    """Of the others it is known when they ran: all that is said of lanes is the same."""
    trace = ikp.load(PLANTED / f"{name}.{twin}.pftrace")
    blocks = set(zip(trace.slots.launch.tolist(), trace.slots.block.tolist(), strict=True))
    sample = without_records(trace, {(launch, block) for launch, block in blocks if block % 7})
    whole, some = trace.explain(), sample.explain()
    assert [one.id for one in some.every] == [one.id for one in whole.every]
    assert some.lanes == whole.lanes
    assert some.launch is not None and whole.launch is not None
    for fact in ("duration_ns", "median_ns", "index", "sms", "blocks_seen"):
        assert getattr(some.launch, fact) == getattr(whole.launch, fact), fact
    assert some.launch.blocks == -(-whole.launch.blocks // 7)
    for fact in ("flop", "bytes"):
        mine, all_of = (getattr(one.hardware, fact) for one in (some, whole))
        assert (mine or 0) == pytest.approx(all_of or 0, rel=0.05), fact
    for fact in ("limited_by", "warps_at_once", "shared_bytes"):
        assert getattr(some.hardware, fact) == getattr(whole.hardware, fact), fact
    for mine, all_of in zip(some.every, whole.every, strict=True):
        assert mine.bound_share == pytest.approx(all_of.bound_share, abs=0.02)


@pytest.mark.parametrize("name", FOUND)
def test_the_bound_is_near_what_the_repair_gained(name: str) -> None:
    times = GAINS[name]
    gain = 1 - times["repaired_us"] / times["faulty_us"]
    bound = findings(name, "faulty")[0]["bound_share"]
    assert bound > 0.9 * gain  # it is what can be won at most
    assert (bound <= 1.1 * gain) == (name not in FAR)
