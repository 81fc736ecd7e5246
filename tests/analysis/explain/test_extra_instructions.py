"""Findings on extra instructions and serial code: each by its counts, and not where roofs hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ikp.analysis.explain.findings.extra_instructions import _KINDS
from ikp.analysis.explain.verdict import Finding
from ikp.core.code_facts import RangeFacts
from ikp.core.extra_work import ExtraWork
from tests.analysis.explain.test_counted import STEPS, TOOK, access, found

pytestmark = pytest.mark.any_pins

BUSY = RangeFacts("compute", mix={"fma": (60, 0, 0), "integer": (40, 0, 0)})
CYCLES = 2 * TOOK


def extra(kind: str, count: float, parts: float = 1.0, facts: RangeFacts = BUSY) -> RangeFacts:
    return replace(facts, extra={kind: ExtraWork(count, parts, "/src/k.cu:7")})


@pytest.mark.parametrize("kind", _KINDS)
def test_each_kind_is_found_by_its_count(kind: str) -> None:
    one = found(extra(kind, 50), _KINDS[kind].name)
    assert one is not None and one.confidence == "likely" and one.where.lines == ("/src/k.cu:7",)
    assert one.bound_share <= 0.51, "half of the instructions"
    assert found(BUSY, _KINDS[kind].name) is None
    assert found(extra(kind, 1), _KINDS[kind].name) is None, "one in a hundred"


def test_memory_at_its_rate_leaves_nothing_for_fewer_instructions() -> None:
    moved = access("load.global.16", cost=16.0, least=16.0)
    (one,) = moved.accesses
    full = replace(moved, accesses=(replace(one, count=4.1),))
    assert found(extra("unfused", 75, facts=full), "unfused-sums") is None


def sums(cycles: float, additions: float) -> Finding | None:
    return found(extra("chain", cycles, additions), "serial-sums")


def test_sums_that_take_the_time_of_their_range() -> None:
    one = sums(0.9 * CYCLES, 100)
    assert one is not None and "90 % of the time" in one.title
    assert one.bound_share == pytest.approx(0.9 * 0.75, abs=0.01)
    assert sums(0.3 * CYCLES, 100) is None, "something else takes the time"
    assert sums(0.9 * CYCLES, 2) is None, "too few to make beside each other"


def search(steps: float) -> Finding | None:
    return found(extra("search", steps / STEPS), "linear-search")


def test_searches_of_many_steps() -> None:
    one = search(40)
    assert one is not None and "40 steps" in one.title
    assert search(4) is None


def test_sums_in_memory() -> None:
    one = found(extra("in memory", 2, 1), "repeated-stores")
    assert one is not None and "keeps a sum in memory" in one.title
    assert found(extra("in memory", 2 / STEPS, 1 / STEPS), "repeated-stores") is None, "once"


def test_values_that_are_written_back() -> None:
    both = access("store.global.4")
    lines = tuple(replace(each, line="/src/k.cu:7") for each in both.accesses)
    both = replace(both, accesses=lines)
    one = found(extra("written back", 2, 1, both), "unchanged-values")
    assert one is not None and "100 % of all bytes" in one.title
    assert found(both, "unchanged-values") is None


def shared(size: int, **mix: Any) -> Finding | None:
    facts = RangeFacts("load", mix={"load.global.4": (4, 0, 0), **mix})
    return found(facts, "unused-shared-memory", shared=size)


def test_shared_memory_that_nothing_accesses() -> None:
    one = shared(100 << 10)
    assert one is not None and "100 KiB" in one.title
    assert shared(1 << 10) is None
    assert shared(100 << 10, **{"store.shared.4": (1, 0, 0)}) is None
    assert shared(100 << 10, **{"copy.bulk": (1, 0, 0)}) is None
