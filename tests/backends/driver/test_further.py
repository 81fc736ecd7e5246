"""Kernels that are recorded no more: some launches have records to be timed, which are not kept."""

import json

import pytest

from ikp.backends.timed import FURTHER, QUIET
from tests.backends.driver.driving import drive
from tests.sass.compiled import code

pytestmark = pytest.mark.any_pins


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("driver")
    return json.loads(drive(folder, "further", code("matmul").compiled.asm["cubin"], "matmul"))


def test_further_launches_come_in_turn_and_end(said: dict) -> None:
    """The rule: they are plain and recorded in the order of Thue and Morse, and plain for good."""
    turns = "".join(".R"[each.bit_count() % 2] for each in range(FURTHER))
    assert said["in turn"].startswith(turns[:8]) and said["in turn"].endswith("..")
    assert turns.startswith(said["in turn"].rstrip(".")[:FURTHER])


def test_their_memory_is_one_that_the_session_does_not_read(said: dict) -> None:
    assert said["in turn asked"] == 1 and said["buffers"] == 3


@pytest.mark.parametrize(
    "part",
    ["other block", "chosen", "windows", "failed", "no memory", "refused memory", "captured"],
)
def test_a_launch_is_plain_where_it_can_or_shall_not_be_recorded(said: dict, part: str) -> None:
    """The rule: what the user chose, what failed and what differs is launched as it is."""
    assert set(said[part]) == {"."}, part


def test_memory_that_is_not_at_hand_is_taken_by_another_thread(said: dict) -> None:
    """The rule: sizes of buffers follow what launches record, and a new one asks the device."""
    assert said["slow"] == said["in turn"] and said["slow asked"] == 2


def test_where_launches_overlap_further_ones_come_later(said: dict) -> None:
    """The rule: no event is beside a launch that the trace shows, and what overlaps is measured."""
    quiet, later = said["overlapping"][:QUIET], said["overlapping"][QUIET:]
    assert set(quiet) == {"."} and later.startswith(said["in turn"][:8])


def test_one_that_the_driver_refuses_is_the_last(said: dict) -> None:
    assert said["refused"].count("R") <= 1
