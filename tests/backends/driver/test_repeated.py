"""Launches at the driver that repeat an earlier one: each has a buffer of its own."""

import json

import pytest

from ikp.backends.timed import MOST
from tests.backends.driver.driving import drive
from tests.sass.compiled import code

pytestmark = pytest.mark.any_pins


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("driver")
    return json.loads(drive(folder, "repeating", code("matmul").compiled.asm["cubin"], "matmul"))


def test_each_launch_passes_the_address_of_a_buffer_of_its_own(said: dict) -> None:
    first = said["first"]
    assert (first["anew"], first["buffers"], first["counted"]) == (1, 5, {"matmul": 5})
    assert len({*first["launched"]}) == 5 and len({*first["functions"]}) == 1
    passed = [int.from_bytes(bytes.fromhex(each)[-16:-8], "little") for each in first["launched"]]
    assert passed == [(1 << 33) + 1024 * number for number in range(5)]
    assert len({each[-16:] for each in first["launched"]}) == 1, "the rest is the same"
    assert first["held"] == 1, "until the thread launches again"


def test_launches_that_repeat_one_are_timed_as_the_first_ones_are(said: dict) -> None:
    """The rule: a launch is timed, and yet prepared but once; a slow one leaves the GPU idle."""
    assert (said["first"]["anew"], said["first"]["events"]) == (1, 2 * 5)
    assert (said["many"]["anew"], said["many"]["events"]) == (1, 2 * MOST)


@pytest.mark.parametrize(("part", "stream"), [("other grid", 0), ("other stream", 5)])
def test_another_grid_or_stream_repeats_none(said: dict, part: str, stream: int) -> None:
    assert (said[part]["anew"], said[part]["buffers"]) == (1, 2)
    assert stream in said[part]["streams"][1] and said[part]["streams"][1] == [stream]


def test_so_does_another_thread_a_capture_and_another_session(said: dict) -> None:
    assert (said["other thread"]["anew"], said["other thread"]["buffers"]) == (1, 2)
    assert said["captured"]["anew"] == 1
    assert (said["other session"]["anew"], said["other session"]["buffers"]) == (1, 3)


def test_another_context_is_refused_as_before(said: dict) -> None:
    assert said["other context"]["buffers"] == 0 and said["other context"]["anew"] == 1


def test_a_launch_that_the_driver_refuses_is_plain_and_not_counted(said: dict) -> None:
    counted = [said[part]["counted"]["matmul"] for part in ("other context", "refused")]
    assert counted[0] == counted[1] and said["refused"]["buffers"] == 1
    assert said["refused"]["anew"] == 0, "it had repeated one"
    assert said["refused"]["functions"] != said["first"]["functions"][:1]


def test_what_is_not_chosen_is_plain(said: dict) -> None:
    assert (said["off"]["anew"], said["off"]["buffers"]) == (0, 0)
    assert said["off"]["functions"] == said["refused"]["functions"]


def test_what_another_launcher_patched_is_asked_about_once(said: dict) -> None:
    assert said["asked of its own"] == 1
