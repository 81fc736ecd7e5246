"""Triton's launches that are left to the driver's hook: each as it would have been without."""

import json
import os
import subprocess
import sys

import pytest

from tests.backends.driver.driving import ROOT, fake_driver
from tests.backends.driver.stocking import AHEAD
from tests.backends.triton.unedited.leaving import MANY, OUT

pytestmark = pytest.mark.compiled
ROOM = "counted: no room left for recordings (--memory)"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("driver")
    fake_driver(folder)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.backends.triton.unedited.leaving"],
        cwd=ROOT,
        env={**os.environ, "LD_LIBRARY_PATH": str(folder), "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not ran.returncode, ran.stderr
    made: dict = json.loads(ran.stdout)
    return made


def test_most_of_many_are_launched_without_a_question_each_with_its_buffer(said: dict) -> None:
    many = said["many"]
    assert many["anew"] == 1 and many["asked"] < MANY // 10
    assert len({*many["addresses"]}) == MANY and len({*many["functions"]}) == 1
    assert sum(each >= AHEAD for each in many["addresses"]) > MANY * 9 // 10
    assert many["recorded"] == {"counted": MANY} and said["in order"]


def test_the_programs_arguments_stay_and_two_words_of_scratch_memory_are_the_buffer(
    said: dict,
) -> None:
    passed = {OUT.to_bytes(8, "little").hex() + (64).to_bytes(8, "little").hex()}
    for part in ("plain", "many", "other grid", "late", "slow", "refused", "no session"):
        assert {*said[part]["arguments"]} == passed, part
    assert len({*said["many"]["behind"]}) == 1
    assert {*said["late"]["behind"]} == {*said["slow"]["behind"]} == {*said["many"]["behind"]}


@pytest.mark.parametrize(
    ("part", "label"),
    [
        ("other grid", "counted"),
        ("other constant", "counted<STEP=2>"),
        ("other value", "counted<STEP=3>"),
        ("option named", "counted<num_warps=4>"),
        ("both", "counted<STEP=2, num_warps=4>"),
        ("other thread", "counted"),
        ("revoked", "counted"),
        ("late", "counted"),
        ("slow", "counted"),
    ],
)
def test_a_launch_that_is_not_alike_is_recorded_under_its_own_label(
    said: dict, part: str, label: str
) -> None:
    counted = {name: times for name, times in said[part]["recorded"].items() if times}
    assert counted == {label: 1}
    assert 0 < said[part]["addresses"][0] < AHEAD


def test_specialisations_in_turns_have_buffers_ahead_each(said: dict) -> None:
    counted = {name for name, times in said["in turns"]["recorded"].items() if times == 20}
    assert counted == {"counted<STEP=2>", "counted<STEP=3>"} and said["in turns"]["asked"] <= 10
    assert len({*said["in turns"]["functions"]}) == 2


def test_what_has_no_buffer_at_hand_is_patched_no_second_time(said: dict) -> None:
    assert said["slow"]["asked"] == 1
    assert said["slow"]["functions"] == said["many"]["functions"][:1]


@pytest.mark.parametrize("part", ["no room", "switched off", "no session", "after the end"])
def test_what_is_not_recorded_is_the_plain_kernel(said: dict, part: str) -> None:
    plain = said["after the end"]["functions"][0]
    assert {*said[part]["functions"]} == {plain} != {*said["many"]["functions"]}
    assert {*said[part]["addresses"]} == {0}
    assert said[part]["plain"].get(ROOM) == 1


def test_a_launch_that_the_driver_refuses_is_plain_and_told(said: dict) -> None:
    assert said["refused"]["functions"] == said["after the end"]["functions"]
    assert [*said["refused, told"]] == ["__main__.counted<out=int32, STEP=1>"]
    assert not any(said["refused"]["recorded"].values())
