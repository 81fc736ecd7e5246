"""Kernels with work that results don't need, recorded on a GPU: it is found first, and in no twin.

The traces are some of those that ``benchmarks/planted_code.py`` makes of
tests/kernels/planted/needless.cu, on one H100, without paths of that machine.
"""

from pathlib import Path

import pytest

import ikp
from ikp.analysis.explain.verdict import Finding

pytestmark = pytest.mark.any_pins

PLANTED = Path(__file__).parent / "planted"
FOUND = {
    "horner": "unfused-sums",
    "walk": "checks",
    "alike": "alike-lanes",
    "search": "linear-search",
}


def findings(name: str, twin: str) -> tuple[Finding, ...]:
    return ikp.load(PLANTED / f"{name}.{twin}.pftrace").explain().findings


@pytest.mark.parametrize("name", ["search", "horner", "walk"])
def test_work_that_results_do_not_need_is_the_first_finding(name: str) -> None:
    assert findings(name, "faulty")[0].id == FOUND[name]


@pytest.mark.parametrize("name", ["search", "horner", "alike"])
def test_a_twin_without_it_has_no_such_finding(name: str) -> None:
    assert not {*FOUND.values()} & {one.id for one in findings(name, "repaired")}
