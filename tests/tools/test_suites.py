"""``tools.suites``: what differs is found, and what differs by itself is not."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tools.suites.comparing import compare
from tools.suites.reading import Run, steady
from tools.suites.running import run
from tools.suites.suite import Suite
from tools.suites.table import launches, page

pytestmark = pytest.mark.any_pins

RUN = Run(
    0,
    1.0,
    outcomes={"a": "passed", "b": "failed"},
    texts={"a": "", "b": "E 1"},
    printed={"a": "out: x\n", "b": ""},
    warnings=Counter(["b | call | x.py:1 | UserWarning | careful"]),
    output=Counter(["1 failed, 1 passed"]),
)
OTHERWISE = {
    "code": replace(RUN, code=1),
    "outcomes": replace(RUN, outcomes={"a": "timed out", "b": "failed"}),
    "failures": replace(RUN, texts={"a": "", "b": "E 2"}),
    "printed": replace(RUN, printed={"a": "", "b": ""}),
    "warnings": replace(RUN, warnings=Counter()),
    "output": replace(RUN, output=RUN.output + Counter(["one line more"])),
}
TESTS = """\
import sys, time, warnings
import pytest

def test_passes():
    print("seen")

def test_fails():
    warnings.warn("careful")
    assert 0

@pytest.mark.skip
def test_skipped(): pass

def test_takes_long():
    time.sleep(60)

def test_sees_ikp():
    assert not any(type(each).__module__ == "sitecustomize" for each in sys.meta_path)
"""


@pytest.mark.parametrize("kind", OTHERWISE)
def test_each_kind_of_difference_is_found(kind: str) -> None:
    found = compare(RUN, OTHERWISE[kind], RUN)
    assert len(getattr(found, kind)) == 1
    assert len(found) == 1
    assert len(compare(RUN, RUN, RUN)) == 0


@pytest.mark.parametrize("kind", OTHERWISE)
def test_what_differs_by_itself_is_no_difference(kind: str) -> None:
    assert len(compare(RUN, OTHERWISE[kind], OTHERWISE[kind])) == 0
    assert len(compare(RUN, RUN, OTHERWISE[kind])) == 0


def test_tests_are_compared_that_a_killed_run_came_to() -> None:
    killed = replace(RUN, code=None, outcomes={"a": "passed"}, texts={"a": ""}, output=Counter())
    assert [*compare(killed, RUN, killed).unsteady] == []
    assert len(compare(killed, RUN, killed)) == 1  # the code
    assert len(compare(killed, killed, killed)) == 0


def test_texts_lose_what_no_two_runs_share(tmp_path: Path) -> None:
    text = f"<f at 0x7f21> took 1.2s in {tmp_path}/cache, 12:01:59"
    assert steady(text, tmp_path) == "<f at 0x> took TIME in SCRATCH/cache, CLOCK"


def test_launches_are_counted() -> None:
    text = "ikp: a: 8 of 1,200 launches recorded; 4 x\nikp: b<c: d>: 1 of 2 launches recorded\n"
    assert launches(text) == "9 of 1,202"
    assert launches("ikp: no kernel") == "none"


def test_a_suite_is_run_and_a_test_that_sees_ikp_is_named(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "test_it.py").write_text(TESTS)
    suite = Suite("small", "develop", "cpu", "here", (), ("test_it.py",), folder="small", limit=1)
    runs = [
        run(suite, sys.executable, tmp_path, minutes=2, recorded=recorded)
        for recorded in (False, True, False)
    ]
    assert runs[0].outcomes == {
        "test_it.py::test_passes": "passed",
        "test_it.py::test_fails": "failed",
        "test_it.py::test_skipped": "skipped",
        "test_it.py::test_takes_long": "timed out",
        "test_it.py::test_sees_ikp": "passed",
    }
    assert runs[0].code == 1
    assert runs[0].ended
    assert sum(runs[0].warnings.values()) == 1
    assert runs[0].printed["test_it.py::test_passes"] == "out: seen\n\n"
    found = compare(*runs)
    assert [each.split(":")[2] for each in found.outcomes] == ["test_sees_ikp"]
    assert found.warnings == found.printed == found.code == found.unsteady == []


def test_the_page_counts_by_role() -> None:
    facts = RUN.facts()
    result = {
        "suite": {"name": "x", "role": "judge", "venue": "cpu", "source": "y", "sample": 3},
        "date": "2026-01-01",
        "versions": {"y": "1.0"},
        "runs": {"plain": facts, "recorded": {**facts, "stderr": ""}, "again": facts},
        "difference": {**{kind: [] for kind in OTHERWISE}, "outcomes": ["b"], "unsteady": []},
    }
    text = "".join(page([result]))
    assert "| x | judge | 2 | 1 | 1 | 0 | 0 | 0 | 1 | none | 1 outcomes | 0 |" in text
    assert "*judge*: 1 suites, 2 tests, 1 with another outcome." in text
