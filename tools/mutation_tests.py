"""Tests for ``tools.mutate``: which statements each test executes, and tests run on a fault.

To start Python and to import pytest, torch and Triton takes longer than most tests. So tests run in
a fork of a process that has imported all that the tests import, but the project.
"""

from __future__ import annotations

import ast
import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import _lru_cache_wrapper
from importlib import import_module
from pathlib import Path
from typing import Any

RESULTS = "IKP_MUTATE_RESULTS"
"""The environment variable with the file for what a run of tests executes."""
EXECUTED: set[str] = set()
"""Statements that were executed, as ``ikp/file.py:line``: noted by the copy's own code."""
_KEPT = {"IKP_TESTS_KEPT": "texts", "TRITON_CACHE_DIR": "triton"}
"""Variables that name folders which tests keep results in, and the folders' names."""
_OPTIONS = ("-q", "-x", "--hypothesis-seed=0", "-W", "ignore::pytest.PytestAssertRewriteWarning")


@dataclass(slots=True)
class Learned:
    """What each test executes, its seconds of a processor, and the modules that tests import."""

    executed: dict[str, list[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    modules: list[str] = field(default_factory=list)

    def reaching(self, file: Path, line: int, most: float) -> list[str]:
        """Return the tests that execute a statement, the shortest first, ``most`` seconds in all.

        Of code of a module, and of what only a fixture executes, these are the tests that execute
        anything of the file. Behind them come the tests beside these, ``most`` seconds once more:
        what the first test of a file has made may be kept for the next ones.
        """
        key = f"{file}:{line}"
        found = [test for test, all_of in self.executed.items() if key in all_of]
        if not found:
            found = [
                test
                for test, all_of in self.executed.items()
                if any(each.startswith(f"{file}:") for each in all_of)
            ]
        files = {_file_of(each) for each in found}
        beside = [each for each in self.executed if _file_of(each) in files and each not in found]
        return [*self._shortest(found, most), *self._shortest(beside, most)]

    def _shortest(self, tests: list[str], most: float) -> list[str]:
        """Return the shortest tests, one at least, ``most`` seconds in all."""
        taken: list[str] = []
        total = 0.0
        for test in sorted(tests, key=lambda each: self.seconds[each]):
            total += self.seconds[test]
            if total > most and taken:
                break
            taken.append(test)
        return taken


def _file_of(test: str) -> str:
    return test.partition("::")[0]


def noting(text: str, file: Path) -> str:
    """Return a module's text whose functions note each statement that they execute."""
    tree = ast.parse(text)
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for holder in ast.walk(function):
                for name in ("body", "orelse", "finalbody"):
                    if isinstance(block := getattr(holder, name, None), list):
                        setattr(holder, name, _noted(block, file))
    at = next(
        (
            at
            for at, each in enumerate(tree.body)
            if not (
                isinstance(each, ast.Expr)
                or (isinstance(each, ast.ImportFrom) and each.module == "__future__")
            )
        ),
        len(tree.body),
    )
    tree.body[at:at] = ast.parse(f"from {__name__} import EXECUTED as _EXECUTED").body
    return ast.unparse(ast.fix_missing_locations(tree))


def _noted(block: list[ast.stmt], file: Path) -> list[ast.stmt]:
    """Return a block with a note before each statement that has none, but a docstring."""
    found: list[ast.stmt] = []
    for statement in block:
        previous = ast.unparse(found[-1]) if found else ""
        text = ast.unparse(statement) if isinstance(statement, ast.Expr) else ""
        is_note = text.startswith("_EXECUTED.add(")
        is_docstring = not found and text[:1] in {"'", '"'}
        if not is_note and not is_docstring and not previous.startswith("_EXECUTED.add("):
            found += ast.parse(f"_EXECUTED.add({f'{file}:{statement.lineno}'!r})").body
        found.append(statement)
    return found


class Notes:
    """A plugin of pytest that writes what each test executes, and its seconds."""

    def __init__(self, into: Path) -> None:
        self._into = into
        self._found = Learned()
        self._begun = 0.0

    def pytest_runtest_logstart(self) -> None:
        """Begin with nothing, and with no results in caches."""
        for name, module in [*sys.modules.items()]:
            if name.startswith("ikp."):
                for each in vars(module).values():
                    if isinstance(each, _lru_cache_wrapper):
                        each.cache_clear()
        EXECUTED.clear()
        self._begun = _seconds()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Keep what was executed."""
        self._found.executed[nodeid] = sorted(EXECUTED)
        self._found.seconds[nodeid] = _seconds() - self._begun

    def pytest_sessionfinish(self) -> None:
        """Write all, with the modules that are no part of the project."""
        root = str(Path(__file__).resolve().parents[1])
        self._found.modules = [
            name
            for name, module in sys.modules.items()
            if not str(getattr(module, "__file__", None) or root).startswith(root)
            and name.partition(".")[0] not in {"ikp", "tests", "tools"}
        ]
        self._into.write_text(json.dumps(asdict(self._found)), encoding="utf-8")


class Kept:
    """A plugin of pytest that gives all runs the same folders for what tests keep."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def pytest_configure(self) -> None:
        """Name the folders, after the tests' own configuration has."""
        for variable, name in _KEPT.items():
            (self._folder / name).mkdir(parents=True, exist_ok=True)
            os.environ[variable] = str(self._folder / name)


def pytest_configure(config: Any) -> None:
    """Note what is executed, where a run of tests is asked to (``-p tools.mutation_tests``)."""
    if into := os.environ.get(RESULTS):
        config.pluginmanager.register(Notes(Path(into)))


def learn(project: Path, tests: list[str], kept: Path) -> Learned:
    """Run tests in a copy whose functions note what they execute; keep the result in a file."""
    results = kept / "learned.json"
    if not results.exists():
        command = [sys.executable, "-m", "pytest", *_OPTIONS, "-p", __name__, *tests]
        environment = {**os.environ, "PYTHONPATH": str(project), RESULTS: str(results)}
        done = subprocess.run(
            command, cwd=project, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            results.unlink(missing_ok=True)
            end = done.stdout[-2000:] + done.stderr[-2000:]
            raise SystemExit(f"tools.mutate: the tests fail without a fault:\n{end}")
    return Learned(**json.loads(results.read_text(encoding="utf-8")))


def prepare(learned: Learned) -> None:
    """Import what the tests import, but the project; what refuses to be is left to the tests."""
    for name in ("pytest", *learned.modules):
        with suppress(Exception):
            import_module(name)


def passes(project: Path, tests: list[str], kept: Path, most: float) -> bool:
    """Return whether tests pass in a copy, in a fork with ``most`` seconds of a processor."""
    child = os.fork()
    if not child:
        _run(project, tests, kept, most)
    deadline = time.monotonic() + 20 * most  # where tests wait for each other and take no processor
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.02)


def _run(project: Path, tests: list[str], kept: Path, most: float) -> None:
    """Run tests and end the process with pytest's exit code."""
    code = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (int(most) + 1, int(most) + 2))
        os.chdir(project)
        sys.path[:] = [str(project), *(each for each in sys.path if each)]
        os.environ["PYTHONPATH"] = str(project)
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            for descriptor in (1, 2):
                os.dup2(nowhere.fileno(), descriptor)
        for name in [each for each in sys.modules if each.partition(".")[0] == "tools"]:
            del sys.modules[name]
        import pytest

        code = int(pytest.main([*_OPTIONS, *tests], plugins=[Kept(kept)]))
    finally:
        os._exit(code)


def _seconds() -> float:
    """Return the seconds of a processor that this process and those it waited for have taken."""
    return sum(os.times()[:4])
