"""Kernels that a program loads as PTX: what the driver compiled of them is recorded."""

import json

import pytest

from tests.backends.driver.driving import drive
from tests.sass.compiled import code

pytestmark = pytest.mark.any_pins


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What the program printed, by its parts."""
    folder = tmp_path_factory.mktemp("driver")
    return json.loads(drive(folder, "compiling", code("matmul").compiled.asm["cubin"], "matmul"))


@pytest.mark.parametrize(
    ("part", "asked"),
    [
        ("PTX", "module\n"),
        ("fatbin", "module\n"),
        ("options", "module 1=128 0=32\n"),
        ("library", "library 0=40\n"),
    ],
)
def test_what_the_driver_compiled_is_patched(said: dict, part: str, asked: str) -> None:
    """Another process compiles with the program's own options, and not into the program's logs."""
    assert said[part]["plain"] == []
    assert said[part]["asked"] == asked
    loaded, *_, launched = said[part]["log"]
    number = int(loaded.removeprefix("load ").removesuffix(" patched"))
    assert launched == f"launch {number + 1} 12x256 on 0"


def test_it_is_compiled_once(said: dict) -> None:
    assert said["again"]["asked"] is None
    assert said["again"]["plain"] == []


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ("addresses", "the program compiles it with option 17, which is not known."),
        ("other code", "compiled anew, it has other shared memory and constants."),
        (
            "another tool",
            (
                "another process can't load it: cuptiSubscribe fails: "
                "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED."
            ),
        ),
        (
            "other device",
            "another process can't load it: the device is not found in another process.",
        ),
        ("not shown", "CUPTI shows no files with it where one is loaded."),
    ],
)
def test_what_cannot_be_had_runs_plain_and_is_told(said: dict, part: str, reason: str) -> None:
    (told,) = said[part]["plain"]
    assert told == (
        "matmul: could not be marked: it was loaded as PTX, and what the driver compiles of it: "
        f"{reason}"
    )
    assert said[part]["log"][-1].startswith("launch ")
    assert not any(each.endswith(" patched") for each in said[part]["log"])
