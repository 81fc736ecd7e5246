"""How a launch is made, found by capturing it: nothing runs."""

import json

import pytest

from tests.backends.driver.driving import drive
from tests.backends.driver.test_checked import PTX
from tests.sass.assembled import cubin

pytestmark = [pytest.mark.any_pins, pytest.mark.compiled]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What the program printed."""
    folder = tmp_path_factory.mktemp("driver")
    return json.loads(drive(folder, "capturing", cubin(PTX, "sm_90a"), "adds"))


def test_a_captured_launch_has_its_shape_and_its_arguments(said: dict) -> None:
    grid, block, shared, attributes = said["shape"]
    assert (grid, block, shared) == ([12, 2, 1], [64, 1, 1], 512)
    assert bytes.fromhex(attributes) == bytes([4, *[0] * 7, 2, 0, 0, 0, 1, 0, 0, 0, 1]).ljust(
        72, b"\0"
    )
    words = b"".join(each.to_bytes(8, "little") for each in (9, 8, 7, 6))
    assert said["values"] == [
        [0, (words + b"\5").hex()],
        [33, "00"],
        [40, (4).to_bytes(8, "little").hex()],
    ]
    assert said["beside"], "what a launcher does beside launching is left out"


def test_nothing_runs(said: dict) -> None:
    assert said["log"] == ["with 4 "]


def test_what_is_not_one_kernel_is_refused(said: dict) -> None:
    assert said["twice"] == "a launch was captured that has 2 kernels."
    assert said["none"] == "a launch was captured that has 0 kernels."
