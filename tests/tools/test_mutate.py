"""``tools.mutate``: the faults that it makes of a source, and those that no test finds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import mutate

pytestmark = pytest.mark.any_pins

SOURCE = '''\
"""A module."""
LIMIT = 8


def clamp(value: int, low: int = 0) -> int:
    """Return a value within limits."""
    if value < low and low is not None:
        return low
    return [each for each in (value, LIMIT) if each <= LIMIT][0]


def unused(value: int) -> bool:
    return not value == 3
'''
TESTS = """\
from ikp.room.module import clamp

def test_clamp():
    assert [clamp(value) for value in (-1, 0, 5, 8, 9)] == [0, 0, 5, 8, 8]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project of one room, with the tool that looks at it."""
    for name in ("ikp", "ikp/room", "tests", "tests/room", "tools"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    (tmp_path / "ikp/room/module.py").write_text(SOURCE)
    (tmp_path / "tests/room/test_module.py").write_text(TESTS)
    (tmp_path / "tools/mutate.py").write_text(Path(mutate.__file__).read_text())
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    return tmp_path


def test_each_operator_comparison_condition_and_number_is_changed(project: Path) -> None:
    found = [*mutate.mutants(Path("ikp/room/module.py"))]
    places = {(each.function, each.line) for each in found}
    assert places == {("", 2), ("clamp", 7), ("clamp", 9), ("unused", 13)}
    after = "\n".join(each.after for each in found)
    for part in (
        *("LIMIT = 9", "value <= low and", "value < low or", "low is None", "if not (value"),
        *("each < LIMIT][0]", "(value, LIMIT)][0]", "<= LIMIT][1]", "not value != 3", "== 4"),
    ):
        assert part in after
    assert all(each.text != SOURCE for each in found)
    assert not any("int = 1" in each.after for each in found), "defaults stay"


def test_what_no_test_finds_is_printed(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.mutate", "room", "--count", "99"],
        capture_output=True,
        text=True,
        check=False,
        cwd=project,
    )
    *lines, last = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum("unused" in line for line in lines) == 2
    known = ("unused", "is None", "<= low")
    assert [line for line in lines if not any(part in line for part in known)] == []
    tried = sum(1 for _ in mutate.mutants(Path("ikp/room/module.py")))
    assert last.startswith(f"{tried - len(lines)} of {tried} found")
