"""Launches with buffers taken ahead: Python is asked about few, and about each not alike."""

import json

import pytest

from tests.backends.driver.driving import drive
from tests.backends.driver.stocking import AHEAD
from tests.sass.compiled import code

pytestmark = pytest.mark.any_pins


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("driver")
    return json.loads(drive(folder, "stocking", code("matmul").compiled.asm["cubin"], "matmul"))


def test_few_of_many_launches_are_asked_about(said: dict) -> None:
    many = said["many"]
    assert many["asked"] <= 10
    assert len({*many["addresses"]}) == 200 and len({*many["functions"]}) == 1
    ahead = sum(each >= AHEAD for each in many["addresses"])
    assert ahead == 200 - many["asked"] == said["launched"]
    assert said["in order"]


@pytest.mark.parametrize(
    "part",
    [
        *("other grid", "other stream", "other thread", "captured", "other context"),
        *("inside a call of ikp's", "revoked", "other settings", "late"),
    ],
)
def test_a_launch_that_is_not_alike_is_asked_about(said: dict, part: str) -> None:
    assert said[part]["asked"] == 1
    assert not any(each >= AHEAD for each in said[part]["addresses"])


def test_a_program_that_switches_ikp_off_has_the_next_launch_plain(said: dict) -> None:
    off = said["switched off"]
    assert off["asked"] == 2 and {*off["functions"]} == {*said["after the end"]["functions"]}


def test_a_forked_child_takes_none(said: dict) -> None:
    assert said["a child takes one"] == 0


def test_a_launch_that_the_driver_refuses_is_plain_and_told(said: dict) -> None:
    assert said["refused"]["functions"] == said["after the end"]["functions"]
    assert said["refused"]["asked"] == 2 and "matmul" in said["refused, told"]
    assert said["after the end"]["asked"] == 0
