"""Lines whose by-work takes the time: comparisons, conversions, bits; not sums or addresses."""

from __future__ import annotations

import pytest

from ikp.analysis.explain.verdict import Finding
from ikp.core.code_facts import LineFacts, RangeFacts
from tests.analysis.explain.test_counted import found

pytestmark = pytest.mark.any_pins

LINE = "/src/k.cu:64"


def spent(kind: str, count: float, beside: float = 75.0, line: str = LINE) -> Finding | None:
    """Return the finding on a line with instructions of a kind, beside multiply-adds of another."""
    mix = {"integer": (count, 0, 0), "fma": (beside, 0, 0)}
    other = LineFacts("/src/k.cu:63", beside, parts={"fma": beside})
    lines = (LineFacts(line, count, parts={kind: count}), other)
    return found(RangeFacts("compute", mix=mix, lines=lines), "costly-line")


def test_a_line_of_checks_that_takes_the_time() -> None:
    one = spent("compare", 150)
    assert one is not None and one.where.lines == (LINE,) and "comparisons" in one.title
    assert one.bound_share == pytest.approx(2 / 3, abs=0.01)
    assert spent("compare", 10) is None, "a tenth of the time"


@pytest.mark.parametrize("kind", ["fma", "load.global", "addresses", "branch", "tensor"])
def test_what_a_kernel_is_for_is_no_by_work(kind: str) -> None:
    assert spent(kind, 150) is None


def test_lines_of_the_compilers_own_library_are_as_they_are() -> None:
    assert spent("compare", 150, line="/lib/triton/language/standard.py:388") is None


def test_code_that_waits_has_no_costly_line() -> None:
    assert spent("compare", 8, beside=2) is None, "few instructions in 2,000 cycles"


def divides(count: float, beside: float = 75.0) -> Finding | None:
    """Return the finding on a line that divides, beside multiply-adds of another."""
    mix = {"fma": (count + beside, 0, 0)}
    other = LineFacts("/src/k.cu:63", beside, parts={"fma": beside})
    line = LineFacts(LINE, count, {"division": count / 10}, parts={"fma": count})
    return found(RangeFacts("compute", mix=mix, lines=(line, other)), "slow-arithmetic")


def test_slow_functions_are_told_by_the_time_of_their_lines() -> None:
    one = divides(75)
    assert one is not None and one.confidence == "likely" and "division" in one.title
    assert one.where.lines == (LINE,) and "reciprocal" in one.suggestion
    assert one.bound_share == pytest.approx(0.6 / 2, abs=0.01), "what is as fast stays"
    few = divides(25)
    assert few is None or few.confidence == "possible"


def test_random_numbers_of_the_library_are_told_together() -> None:
    mix = {"integer": (90, 0, 0), "fma": (75, 0, 0)}
    some = tuple(
        LineFacts(f"/lib/triton/language/random.py:{at}", 30, parts={"integer": 30})
        for at in (35, 36, 37)
    )
    one = found(RangeFacts("compute", mix=mix, lines=some), "unused-random-numbers")
    assert one is not None and one.bound_share == pytest.approx(90 / 165, abs=0.01)
    few = found(RangeFacts("compute", mix=mix, lines=some[:1]), "unused-random-numbers")
    assert few is None
