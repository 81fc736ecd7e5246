"""JSON of every command, against the JSON Schema that ships with it."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from ikp.calibration import calibrate as calibrating
from ikp.cli import main
from ikp.cli._schema import names, text_of
from ikp.core.overhead import Figure, Overhead
from ikp.running.finishing import finish
from tests.documents import check_document
from tests.running.test_answer import part, skewed
from tools.schemas import DOCUMENTS, made

pytestmark = pytest.mark.any_pins
FIGURE = Figure(1.0, 0.5, 2.0)


def said(*words: object) -> Any:
    result = CliRunner().invoke(main.cli, [*map(str, words), "--format", "json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return json.loads(result.stdout)


@pytest.fixture
def document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes the JSON of a command."""
    path, plain = tmp_path / "x.pftrace", tmp_path / "plain.pftrace"
    skewed().save(path)
    skewed("hot", 2).save(plain)

    def run() -> Any:
        trace = skewed()
        options = SimpleNamespace(explain=True, folder="/w", output="json", path=str(path))
        parts, traces = [part(trace, str(path))], {str(path): trace}
        finish(options, str(path), None, parts, traces, lines=["a warning"])  # type: ignore[arg-type]
        return json.loads((tmp_path / "x.run.json").read_text())

    def calibrate() -> Any:
        found = Overhead("a GPU", "cycles", *[FIGURE] * 5)
        monkeypatch.setattr(calibrating, "calibrate", lambda **_: found)
        return said("calibrate")

    made = {
        "run": run,
        "calibrate": calibrate,
        "stats": lambda: said("stats", path, "--histogram"),
        "explain": lambda: said("explain", path),
        "diff": lambda: said("diff", plain, path, "--fail-over", "duration=+3%"),
        "doctor": lambda: said("doctor"),
    }
    return lambda name: made[name]()


ELSEWHERE = {
    "addresses": "tests/analysis/test_access_table.py",
    "inspect": "tests/cli/test_inspect.py",
    "verify": "tests/cli/test_verify.py",
}
"""Documents that are checked where there is something to make them of."""
HERE = ("run", "calibrate", "stats", "explain", "diff", "doctor")


@pytest.mark.parametrize("name", HERE)
def test_what_a_command_prints_has_the_fields_of_its_schema(name: str, document: Any) -> None:
    found = document(name)
    check_document(found, name)
    for change in ("missing", "unknown", "kind"):
        for place in places(found):
            other = deepcopy(found)
            inner = at(other, place)
            if change == "unknown":
                inner["surely_not_there"] = 1
            elif change == "missing":
                del inner[next(iter(inner))]
            else:
                inner[list(inner)[-1]] = {"no": object()}
            with pytest.raises(AssertionError):
                check_document(other, name)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to the objects of a document whose names are fields: a few of each list."""
    if isinstance(value, list):
        return [found for i, each in enumerate(value[:1]) for found in places(each, (*path, i))]
    free = ("packages", "tools", "environment", "recorded", "left_out")
    if not isinstance(value, dict) or (path and path[-1] in free):
        return []
    inner = [found for name, each in value.items() for found in places(each, (*path, name))]
    return [path, *inner]


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for each in path:
        value = value[each]
    return value


def test_each_command_that_prints_json_has_a_schema() -> None:
    commands = {name for name in main.COMMANDS if prints_json(name)}
    assert commands | {"addresses"} == set(names()) == DOCUMENTS.keys()
    assert {*HERE, *ELSEWHERE} == DOCUMENTS.keys()


def prints_json(name: str) -> bool:
    command = main.cli.get_command(None, name)  # type: ignore[arg-type]
    return any("json" in getattr(each.type, "choices", ()) for each in command.params)  # type: ignore[union-attr]


def test_the_files_are_those_that_the_types_make() -> None:
    for name, text in made().items():
        assert text == text_of(name), f"{name}: run python -m tools.schemas"


def test_a_schema_is_printed_by_its_name() -> None:
    run = CliRunner().invoke
    assert run(main.cli, ["schema"]).stdout.split() == names()
    assert run(main.cli, ["schema", "stats"]).stdout == text_of("stats")
    wrong = run(main.cli, ["schema", "stat"])
    assert wrong.exit_code == 2 and "'stat': there are addresses, calibrate" in wrong.stderr


def test_a_run_without_a_verdict_or_a_trace_has_the_same_fields(tmp_path: Path) -> None:
    path = str(tmp_path / "x.pftrace")
    options = SimpleNamespace(explain=False, folder="/w", output="json", path=path)
    lost = replace(part(skewed(), path), trace=None, times=())
    for parts in ([], [lost], [part(skewed(), path)]):
        finish(options, path, None, parts)  # type: ignore[arg-type]
        found = json.loads((tmp_path / "x.run.json").read_text())
        check_document(found, "run")
        assert found["verdict"] is None and len(found["processes"]) == len(parts)
