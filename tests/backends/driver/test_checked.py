"""Launches through the CUDA driver, compared with the plain kernel's on the same memory."""

import json

import pytest

from tests.backends.driver.driving import drive
from tests.machine.assembled import cubin

pytestmark = [pytest.mark.any_pins, pytest.mark.compiled]

_COUNT = 40
"""So many values are held at once that records need no more registers than there are."""
PTX = f"""
.global .align 4 .b32 counter;
.visible .entry adds(.param .align 8 .b8 s[33], .param .u8 n, .param .u64 p)
{{
 .reg .u64 a, b; .reg .u32 t, v<{_COUNT}>;
 ld.param.u64 a, [p]; ld.param.u64 b, [s+8];
 {" ".join(f"ld.volatile.global.u32 v{n}, [b+{4 * n}];" for n in range(_COUNT))}
 mov.u32 t, 0; {" ".join(f"add.u32 t, t, v{n};" for n in range(_COUNT))}
 st.global.u32 [a], t; mov.u64 a, counter; st.global.u32 [a], t; ret;
}}
"""
EQUAL = (
    "5 buffers, 6,148 bytes, equal bit for bit; memory that is reached otherwise was not compared"
)
"""The struct's two, the pointer's, what one of these points to, and the module's variable."""
PLAIN, RECORDED = "launch 2 12x64 on 0", "launch 4 12x64 on 0"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What the program printed."""
    return json.loads(
        drive(tmp_path_factory.mktemp("driver"), "checking", cubin(PTX, "sm_90a"), "adds")
    )


def launches(lines: list[str]) -> list[str]:
    """Return the launches, but for their arguments."""
    return [line.partition(" given ")[0] for line in lines if "launch" in line]


TOLD = (1 << 33).to_bytes(8, "little").hex()
"""Where to record: what recorded launches are given beside."""


def test_it_runs_plain_plain_and_recorded_and_leaves_what_one_run_does(said: dict) -> None:
    first = said["first"]
    assert first["check"] == EQUAL and first["memory"] == [41] and not first["plain"]
    assert launches(first["log"]) == [PLAIN, PLAIN, RECORDED]
    assert [TOLD in line for line in first["log"] if "launch" in line] == [False, False, True]


def test_the_next_launch_is_not_compared(said: dict) -> None:
    twice = said["twice"]
    assert len(launches(twice["log"])) == 4
    assert TOLD in twice["log"][-1] and twice["memory"] == [42]


@pytest.mark.parametrize(
    ("part", "added"),
    [("packed", "launch"), ("together", "with 2 launch"), ("attributes", "with 4 launch")],
)
def test_however_it_is_launched(said: dict, part: str, added: str) -> None:
    made = said[part]
    assert made["check"] == EQUAL and made["memory"] == [41], made["plain"]
    ran = launches(made["log"])
    assert len(ran) == 3 and all(line.startswith(added) for line in ran)


def test_where_not_all_blocks_could_run_at_once_it_runs_plain(said: dict) -> None:
    fewer = said["fewer"]
    assert launches(fewer["log"]) == [f"together {PLAIN}"] and fewer["check"] is None
    assert "all its blocks must run at once" in fewer["plain"][0]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("captured", "a CUDA graph captures its launch"),
        ("large", "3,072 MiB are more than the 2,048 MiB that are copied"),
        ("no room", "no room for copies of its buffers"),
    ],
)
def test_what_is_not_checked_is_recorded_and_told(said: dict, part: str, words: str) -> None:
    made = said[part]
    assert made["check"].startswith("not checked: ") and words in made["check"]
    assert len(launches(made["log"])) == 1 and made["memory"] == [41]


def test_without_torchs_allocator_the_programs_own_memory_is_compared(said: dict) -> None:
    assert said["unknown"]["check"].startswith("2 buffers, 4,100 bytes, equal")


def test_a_difference_leaves_the_plain_results_and_no_record(said: dict) -> None:
    differs = said["differs"]
    assert differs["check"] == (
        "argument 0 (byte 24) differs from what the plain kernel writes, in 2 of 4,096 bytes, "
        "first at byte 15"
    )
    assert differs["memory"] == [41]
    assert differs["plain"] == ["adds: compute something else with records (--check)"]
    assert said["counted"] == said["buffers"] == 0
    (told, _) = said["told"]
    assert told.startswith("adds with records computes something else than without: argument 0")


def test_a_kernel_that_was_found_wrong_runs_plain(said: dict) -> None:
    twice = said["differs twice"]
    assert launches(twice["log"])[3:] == [PLAIN] and twice["memory"] == [42]
