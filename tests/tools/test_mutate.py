"""``tools.mutate``: the faults that it makes of a source, and those that no test finds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import mutate, mutation_tests

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
    for module in (mutate, mutation_tests):
        (tmp_path / "tools" / Path(str(module.__file__)).name).write_text(
            Path(str(module.__file__)).read_text()
        )
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


def test_a_statement_notes_that_it_is_executed_and_does_what_it_did(project: Path) -> None:
    path = Path("ikp/room/module.py")
    names: dict[str, Any] = {}
    exec(mutation_tests.noting(SOURCE, path), names)  # noqa: S102
    mutation_tests.EXECUTED.clear()
    assert names["clamp"](5) == 5
    assert names["clamp"].__doc__ == "Return a value within limits."
    assert {f"{path}:7", f"{path}:9"} == mutation_tests.EXECUTED, "no statement that was skipped"


def test_a_fault_meets_the_shortest_tests_that_execute_it() -> None:
    file = Path("ikp/a.py")
    learned = mutation_tests.Learned(
        executed={"long": ["ikp/a.py:1"], "short": ["ikp/a.py:1"], "other": ["ikp/a.py:12"]},
        seconds={"long": 3, "short": 1, "other": 2},
    )
    assert learned.reaching(file, 1, most=9) == ["short", "long"]
    assert learned.reaching(file, 1, most=2) == ["short"]
    assert learned.reaching(file, 12, most=1) == ["other"], "one test is always run"
    assert learned.reaching(file, 7, most=9) == ["short", "other", "long"], "any of the file"
    assert learned.reaching(Path("ikp/b.py"), 1, most=9) == []


def test_tests_beside_those_that_execute_a_fault_come_last() -> None:
    """They may use what a test before them has made, and executed nothing for it themselves."""
    learned = mutation_tests.Learned(
        executed={"a::makes": ["ikp/a.py:1"], "a::uses": ["ikp/a.py:2"], "b::other": []},
        seconds={"a::makes": 3, "a::uses": 1, "b::other": 1},
    )
    assert learned.reaching(Path("ikp/a.py"), 1, most=9) == ["a::makes", "a::uses"]
