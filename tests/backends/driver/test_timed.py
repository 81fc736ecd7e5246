"""Recorded and plain launches of a kernel are timed by events, the first few of each."""

import json

import pytest

from ikp.backends.timed import MOST
from tests.backends.driver.driving import drive
from tests.sass.compiled import code

pytestmark = pytest.mark.any_pins


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("driver")
    return json.loads(drive(folder, "timing", code("matmul").compiled.asm["cubin"], "matmul"))


def test_events_are_right_around_the_first_launches(said: dict) -> None:
    *first, beyond = said["recorded"]
    for number, lines in enumerate(first):
        begin, end = (f"event {2 * number + each} on 5" for each in (1, 2))
        at = lines.index(begin)
        assert lines[at + 1].startswith("launch ") and lines[at + 2 :] == [end]
    assert len(first) == MOST and not [line for line in beyond if "event" in line]


def test_plain_launches_of_the_same_grid_are_timed_once_none_is_recorded(said: dict) -> None:
    left = MOST - 1 - len(said["held"])  # the first of all, which is late, keeps its place
    for lines in said["plain"][:left]:
        begin, launch, end = lines
        assert begin.startswith("event ") and launch.startswith("launch 2 ") and "event" in end
    assert said["plain"][-1] == ["launch 2 12x256 on 5"]


def test_an_idle_gpu_is_held_until_a_timed_launch_is_queued(said: dict) -> None:
    """The rule: between a launch's events is no time of the host, of an idle GPU either."""
    for lines in said["held"]:
        held, begin, launch, end = lines
        assert held == "held on 5" and launch.startswith("launch 2 ")
        assert begin != end and "event" in begin and "event" in end
    assert min(said["held for"]) < 500, "it goes on once all is queued, not at the limit"


@pytest.mark.parametrize("case", ["late", "waits"])
def test_a_launch_that_an_idle_gpu_waited_for_has_no_time(said: dict, case: str) -> None:
    """The rule: between a launch's events is no time of the host.

    Some drivers can't hold the GPU. A launch that loads code may wait for the GPU, whose hold ends.
    """
    for lines in said[case]:
        begin, launch, end, again = [line for line in lines if not line.startswith("held")]
        assert launch.startswith("launch 2 ") and again == begin != end and "event" in end


def test_no_graph_and_no_other_grid_has_events(said: dict) -> None:
    for lines in (said["captured"], said["other grid"]):
        assert not [line for line in lines if "event" in line]


def test_the_session_gets_the_medians(said: dict) -> None:
    (key,) = said["facts"]
    made = json.loads(said["facts"][key])
    assert key == "timed matmul" and made["grid"] == [12, 1, 1]
    assert made["recorded_us"] == pytest.approx(10, abs=0.1)
    assert said["destroyed"] == 2 * (2 * MOST + len(said["late"]) + len(said["waits"]) - 1)
    assert made["plain_us"] == pytest.approx(10, abs=0.1) and made["launches"] == [
        MOST - 1,
        MOST - 1,
    ]
