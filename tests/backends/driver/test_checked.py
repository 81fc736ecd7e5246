"""Launches through the CUDA driver, compared with the plain kernel's on the same memory."""

import json
import time
from pathlib import Path

import pytest

from tests.backends.driver.driving import drive
from tests.sass.assembled import cubin

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
EQUAL = "5 buffers, 6,148 bytes, equal bit for bit"
"""The struct's two, the pointer's, what one of these points to, and the module's variable."""
PLAIN, RECORDED = "launch 2 12x64 on 0", "launch 4 12x64 on 0"
REFUSED = "adds: fail the check (--check)"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What the program printed."""
    return json.loads(
        drive(tmp_path_factory.mktemp("driver"), "checking", cubin(PTX, "sm_90a"), "adds")
    )


def ended(pid: int, seconds: float = 20) -> bool:
    """Return whether a process ends within a time."""
    until = time.monotonic() + seconds
    while (alive := Path(f"/proc/{pid}").exists()) and time.monotonic() < until:
        time.sleep(0.05)
    return not alive


def launches(lines: list[str]) -> list[str]:
    """Return the launches, but for their arguments."""
    return [line.partition(" given ")[0] for line in lines if "launch" in line]


TOLD = (1 << 33).to_bytes(8, "little").hex()
"""Where to record: what recorded launches are given beside."""


def test_in_the_program_it_runs_once_and_with_records(said: dict) -> None:
    first = said["first"]
    assert first["check"] == EQUAL and first["memory"] == [41] and not first["plain"]
    assert launches(first["log"]) == [RECORDED] and TOLD in first["log"][-1]


def test_the_next_launch_is_not_compared(said: dict) -> None:
    twice = said["twice"]
    assert len(launches(twice["log"])) == 2 and twice["memory"] == [42]
    assert said["first"]["pid"] == twice["pid"] == said["attributes"]["pid"] != []


def test_a_later_session_has_a_check_of_its_own(said: dict) -> None:
    assert said["two sessions"]["later check"] == EQUAL


def test_each_session_has_the_arguments_of_its_own_first_launch(said: dict) -> None:
    assert [said[name]["arguments"]["33"] for name in ("first", "twice")] == ["00", "05"]


@pytest.mark.parametrize(
    ("part", "added"),
    [("packed", "launch"), ("together", "together launch"), ("attributes", "with 4 launch")],
)
def test_however_it_is_launched(said: dict, part: str, added: str) -> None:
    made = said[part]
    assert made["check"] == EQUAL and made["memory"] == [41], made["plain"]
    (ran,) = launches(made["log"])
    assert ran.startswith(added)


def test_where_not_all_blocks_could_run_at_once_it_runs_plain(said: dict) -> None:
    fewer = said["fewer"]
    assert launches(fewer["log"]) == [f"together {PLAIN}"] and fewer["check"] is None
    assert "all its blocks must run at once" in fewer["plain"][0]


def test_it_has_the_programs_addresses_though_a_context_would_take_them(said: dict) -> None:
    claims = said["claims"]
    assert claims["check"] == EQUAL and claims["memory"] == [41] and not claims["plain"]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("captured", "a CUDA graph captures its launch"),
        ("large", "5 buffers, 3,073 MiB are more than the 2,048 MiB that are copied"),
        ("no room", "no room for copies of its buffers: the CUDA driver could not allocate"),
        ("taken", "at 0x200000000 the driver has something else"),
        ("other device", "the device is not found in another process"),
        ("no context", "the CUDA driver could not begin"),
        ("fault plain", "on a copy of its memory, the plain kernel ends in CUDA_ERROR_ILLEGAL_ADD"),
        ("die plain", "the process that checks kernels has died"),
        ("unknown", "on a copy of its memory, the plain kernel ends in CUDA_ERROR_ILLEGAL_ADD"),
    ],
)
def test_what_can_not_be_checked_is_recorded_and_told(said: dict, part: str, words: str) -> None:
    """``unknown``: without torch's blocks, the plain kernel reaches memory that is not found."""
    made = said[part]
    assert made["check"].startswith("not checked: ") and words in made["check"]
    assert len(launches(made["log"])) == 1 and made["memory"] == [41] and not made["plain"]
    assert TOLD in made["log"][-1] or part == "captured"


def test_after_a_kernel_has_failed_another_process_checks_the_next(said: dict) -> None:
    after = said["after a fault"]
    assert after["check"] == EQUAL and after["pid"] != said["unknown"]["pid"]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("fault patched", "with records it ends in CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("die patched", "with records, the process that checks kernels has died"),
        ("hang patched", "with records it has not ended after 10 s"),
        (
            "differs",
            (
                "argument 0 (byte 24) differs from what the plain kernel writes, in 2 of 4,096 "
                "bytes, first at byte 15"
            ),
        ),
    ],
)
def test_a_kernel_that_fails_with_records_runs_plain_and_leaves_no_record(
    said: dict, part: str, words: str
) -> None:
    made = said[part]
    assert made["check"] == words and made["memory"] == [41]
    assert launches(made["log"]) == [PLAIN] and made["plain"] == [REFUSED]
    assert said["counted"] == said["buffers"] == 0
    assert any(each.startswith(f"adds fails the check: {words}. It runs") for each in said["told"])


def test_a_kernel_that_never_ends_takes_ten_seconds(said: dict) -> None:
    assert 9 < said["hang patched"]["seconds"] < 40


def test_a_kernel_that_was_refused_once_never_runs_with_records(said: dict) -> None:
    twice = said["differs twice"]
    assert launches(twice["log"]) == [PLAIN, PLAIN] and twice["memory"] == [42]
    assert twice["plain"] == [REFUSED, REFUSED]


def test_the_process_ends_with_the_program(said: dict) -> None:
    (pid,) = said["last"]["pid"]
    assert ended(pid)
