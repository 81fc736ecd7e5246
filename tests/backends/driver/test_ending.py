"""Ends that Python does not see: C's exit(), and a reset of the GPU."""

import json

import pytest

from tests.backends.driver.driving import drive
from tests.sass.compiled import code

pytestmark = pytest.mark.any_pins


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """Exit code and output of a program for each way to end."""
    folder = tmp_path_factory.mktemp("driver")
    return json.loads(drive(folder, "ending", code("matmul").compiled.asm["cubin"], "matmul"))


@pytest.mark.parametrize(
    ("way", "ends", "told"),
    [
        ("exit", 5, "told 11.0"),
        ("exit at once", 5, "told 11.0"),
        ("exit elsewhere", 5, "told 11.0"),
        ("quick exit", 5, "told 11.0"),
        # Where recording has ended, and where Python itself ends, it is no news.
        ("exit late", 5, ""),
        ("return", 0, ""),
        ("thread ends", 0, ""),
    ],
)
def test_exit_of_c_is_told_while_launches_are_recorded(
    way: str, ends: int, told: str, said: dict
) -> None:
    assert said[way] == [ends, told]


def test_no_event_is_asked_for_its_time_after_a_reset(said: dict) -> None:
    ends, log = said["reset"]
    assert ends == 0 and "reset 0" in log and "gone" not in log
