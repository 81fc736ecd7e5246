"""Ends that Python does not see: C's exit(), and a reset of the GPU."""

from pathlib import Path

import pytest

from tests.backends.driver.driving import drive
from tests.sass.compiled import code

pytestmark = pytest.mark.any_pins


@pytest.mark.parametrize(
    ("way", "ends", "said"),
    [
        ("exit", 5, "told 11.0"),
        ("exit at once", 5, "told 11.0"),
        ("exit elsewhere", 5, "told 11.0"),
        ("quick exit", 5, "told 11.0"),
        # Where recording has ended, and where Python itself ends, it is no news.
        ("exit late", 5, ""),
        ("return", 0, ""),
        ("thread ends", 0, ""),
    ],
)
def test_exit_of_c_is_told_while_launches_are_recorded(
    way: str, ends: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAY", way)
    cubin = code("matmul").compiled.asm["cubin"]
    assert drive(tmp_path, "ending", cubin, "matmul", ends=ends).strip() == said


def test_no_event_is_asked_for_its_time_after_a_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAY", "reset")
    log = drive(tmp_path, "ending", code("matmul").compiled.asm["cubin"], "matmul")
    assert "reset 0" in log and "gone" not in log
