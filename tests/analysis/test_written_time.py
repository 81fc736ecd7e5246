"""A time as people write it: one reading of it, for windows on the command line and in ``by``."""

from __future__ import annotations

import pytest

from ikp.analysis.counting_regions import stats
from ikp.analysis.written_time import written_time
from tests.analysis.example import trace

pytestmark = pytest.mark.any_pins


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        *(("10ns", 10.0), ("10us", 1e4), (" 1.5 ms ", 1.5e6), ("2.s", 2e9), (".5us", 500.0)),
        *(("0", 0.0), ("10", None)),
    ],
)
def test_a_number_and_a_unit(text: str, ns: float | None) -> None:
    found = written_time(text)
    assert found is not None and found.ns() == ns


def test_the_usual_unit_is_that_of_a_number_without_one() -> None:
    bare, with_unit = written_time("10"), written_time("10ms")
    assert bare is not None and bare.ns("us") == 1e4
    assert with_unit is not None and with_unit.ns("us") == 1e7


@pytest.mark.parametrize("text", ["", "us", "1ps", "-1us", "1e3us", "1us2", "10:20us"])
def test_what_is_no_time(text: str) -> None:
    assert written_time(text) is None


@pytest.mark.parametrize("width", ["50ns", ".05us", "0.05 us", "50. ns"])
def test_a_width_of_windows_is_one(width: str) -> None:
    made = trace([(0, 0, 0, 20), (0, 0, 40, 60)], slots=[(0, 0)], residence=60)
    assert [row.group for row in stats(made, f"window:{width}")] == ["0 ns to 50 ns"]
