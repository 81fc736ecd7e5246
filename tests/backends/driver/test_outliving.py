"""The process that checks kernels ends with the program, however it ends, and disturbs nothing."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends.driver.driving import drive
from tests.backends.driver.test_checked import ended

pytestmark = pytest.mark.any_pins


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("driver")


def said(folder: Path, way: str, code: int = 0) -> dict:
    return json.loads(drive(folder, "outliving", b"", way, code).splitlines()[-1])


def test_it_ends_with_the_program_and_has_nothing_of_its_streams(folder: Path) -> None:
    made = said(folder, "returns")
    assert ended(made["pid"]) and made["streams"] == ["/dev/null"] * 3 and made["served"]


def test_its_libraries_lie_where_no_program_has_memory_of_a_device(folder: Path) -> None:
    """Programs have it near where their own libraries are."""
    code = "import ctypes; print(ctypes.CDLL(None).personality(0x200000))"
    if (
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
        == b"-1\n"
    ):
        pytest.skip("this system allows no other layout of addresses")
    assert said(folder, "returns")["highest"] < 1 << 46


def test_a_program_that_waits_for_all_children_does_not_wait_for_it(folder: Path) -> None:
    assert said(folder, "waits")["waited"] is None


def test_it_ends_though_a_child_of_the_program_lives_on(folder: Path) -> None:
    assert ended(said(folder, "forks")["pid"])


def test_it_ends_with_a_program_that_is_killed(folder: Path) -> None:
    assert ended(said(folder, "killed", -signal.SIGKILL)["pid"])


def test_a_forked_child_has_one_of_its_own_and_leaves_the_programs(folder: Path) -> None:
    made = said(folder, "forked")
    assert not made["had"] and made["other"] != made["pid"] and not made["gone"]
    assert ended(made["other"])


def test_control_c_is_the_programs(folder: Path) -> None:
    made = said(folder, "interrupted")
    assert not made["gone"] and made["pid again"] == made["pid"]


def test_one_that_was_killed_is_replaced(folder: Path) -> None:
    made = said(folder, "loses")
    assert made["other"] != made["pid"] and ended(made["other"])


def test_without_an_interpreter_nothing_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    from ikp.checking import process

    for wrong, words in (
        ("", "does not know"),
        ("/bin/false", "ends with 1"),
        ("/none", "No such"),
    ):
        monkeypatch.setattr("sys.executable", wrong)
        with pytest.raises(process.LostError, match=f"no process can be started: .*{words}"):
            process.Process(bytes(16))
