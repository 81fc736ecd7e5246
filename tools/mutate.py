"""Mutation testing: puts one fault at a time into a copy of the sources, and runs tests on it.

``python -m tools.mutate sass probes --count 150`` prints each fault that no test finds, and the
share that is found. It tries faults of operators, comparisons, conditions and numbers: a random
sample of all there are. The tests of the rooms run first as they are, to learn which functions
each of them calls. So a fault meets only tests that reach it, and ends with the first that fails.
A fault that changes nothing (an equivalent mutant) counts as not found: read what is printed.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CALLS = "IKP_MUTATE_CALLS"
"""The environment variable with the file that a run of tests writes its calls to."""
_COPIED = ("ikp", "tests", "tools", "docs", "examples", "pyproject.toml", "README.md")
_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
"""Operators, each with the one that takes its place."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: a file with one node changed."""

    path: Path  # relative to the project
    function: str  # the qualified name, "" for code of the module
    line: int
    before: str
    after: str
    text: str  # of the whole file

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}"
        return f"{where} {self.function or '<module>'}: {self.before}  ->  {self.after}"


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield all faults of a file. Annotations and messages stay as they are."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    for statement, function in _statements(tree, ""):
        for node in _nodes(statement):
            for undo, change in _changes(node):
                before = ast.unparse(statement).splitlines()[0]
                change()
                after, text = ast.unparse(statement).splitlines()[0], ast.unparse(tree)
                undo()
                if before == after:  # deeper inside: show all of it
                    before, after = ast.unparse(node), "changed"
                yield Mutant(path, function, statement.lineno, before, after, text)


def _statements(
    node: ast.AST, name: str, *, inside: bool = False
) -> Iterator[tuple[ast.stmt, str]]:
    """Yield the statements below a node, each with the name of the outermost function around it.

    Of a class, the function is a method; code beside methods is of the module.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            function = not isinstance(child, ast.ClassDef)
            below = name if inside else f"{name}.{child.name}".strip(".")
            yield from _statements(child, below, inside=inside or function)
            continue
        if isinstance(child, ast.stmt):
            yield child, name if inside else ""
        yield from _statements(child, name, inside=inside)


def _nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the expressions of a statement, not those of statements inside it."""
    if isinstance(statement, (ast.Raise, ast.Import, ast.ImportFrom)):
        return
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        skipped = getattr(node, "annotation", None)
        waiting += [
            each
            for each in ast.iter_child_nodes(node)
            if each is not skipped and not isinstance(each, (ast.stmt, ast.JoinedStr))
        ]


def _changes(node: ast.AST) -> Iterator[tuple[Any, Any]]:
    """Yield pairs of functions, that undo and make one change of a node."""

    def swap(holder: Any, name: str, new: Any) -> tuple[Any, Any]:
        old = getattr(holder, name)
        return (lambda: setattr(holder, name, old)), (lambda: setattr(holder, name, new))

    if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in _SWAPS:
        yield swap(node, "op", _SWAPS[type(node.op)]())
    if isinstance(node, ast.Compare):
        for at, each in enumerate(node.ops):
            if type(each) in _SWAPS:
                changed = [*node.ops[:at], _SWAPS[type(each)](), *node.ops[at + 1 :]]
                yield swap(node, "ops", changed)
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        yield swap(node, "test", ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, ast.comprehension) and node.ifs:
        yield swap(node, "ifs", [])
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield swap(node, "value", not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield swap(node, "value", node.value + 1)


class Calls:
    """A plugin of pytest that notes which functions of ``ikp`` each test calls, and its seconds."""

    def __init__(self, into: Path) -> None:
        self._into = into
        self._found: dict[str, tuple[list[str], float]] = {}
        self._codes: set[CodeType] = set()
        self._begun = 0.0

    def pytest_runtest_logstart(self) -> None:
        """Begin with nothing."""
        self._codes, self._begun = set(), time.monotonic()
        sys.settrace(self._note)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Keep what was called, by file and name."""
        sys.settrace(None)
        root = str(ROOT / "ikp")
        called = [c for c in self._codes if c.co_filename.startswith(root)]
        names = sorted(f"{Path(c.co_filename).relative_to(ROOT)}:{_name(c)}" for c in called)
        self._found[nodeid] = (names, time.monotonic() - self._begun)

    def pytest_sessionfinish(self) -> None:
        """Write all."""
        self._into.write_text(json.dumps(self._found), encoding="utf-8")

    def _note(self, frame: FrameType, *_: object) -> None:  # of calls alone: no line is traced
        self._codes.add(frame.f_code)


def _name(code: CodeType) -> str:
    """Return a function's name; of a comprehension or a lambda in it, the function's."""
    return code.co_qualname.partition(".<locals>")[0]


def pytest_configure(config: Any) -> None:
    """Note calls, where a run of tests is asked to (``-p tools.mutate``)."""
    if into := os.environ.get(CALLS):
        config.pluginmanager.register(Calls(Path(into)))


def _pytest(where: Path, arguments: list[str], seconds: float, **more: str) -> int | None:
    """Run pytest in a copy of the project; return its exit code, None if it took too long."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--hypothesis-seed=0", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(where), **more}
    try:
        done = subprocess.run(
            command, cwd=where, env=environment, timeout=seconds, capture_output=True, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    return done.returncode


def _learned(rooms: list[str], kept: Path) -> dict[str, tuple[list[str], float]]:
    """Return the calls and seconds of each test, from a file if an earlier run left it."""
    if not kept.exists():
        tests = [f"tests/{room}" for room in rooms]
        code = _pytest(ROOT, ["-p", "tools.mutate", *tests], 3600, **{CALLS: str(kept)})
        if code != 0:
            raise SystemExit(f"tools.mutate: the tests fail without a fault (pytest: {code})")
    found: dict[str, tuple[list[str], float]] = json.loads(kept.read_text(encoding="utf-8"))
    return found


def _reaching(
    mutant: Mutant, learned: dict[str, tuple[list[str], float]], most: float
) -> list[str]:
    """Return the tests that reach a fault, the shortest first, as many as ``most`` seconds take.

    Of code of a module, and of functions whose results an earlier test left in a cache, these are
    the tests that call any function of the file.
    """
    reached: dict[str, float] = {}
    for key in (f"{mutant.path}:{mutant.function}", f"{mutant.path}:"):
        exact = not key.endswith(":")
        reached = {
            test: seconds
            for test, (names, seconds) in learned.items()
            if any(name == key if exact else name.startswith(key) for name in names)
        }
        if reached:
            break
    found: list[str] = []
    sum_of = 0.0
    for test, seconds in sorted(reached.items(), key=lambda each: each[1]):
        sum_of += seconds
        if sum_of > most and found:
            break
        found.append(test)
    return found


def _copy(into: Path) -> None:
    for each in _COPIED:
        if (ROOT / each).is_dir():
            shutil.copytree(ROOT / each, into / each, ignore=shutil.ignore_patterns("__pycache__"))
        elif (ROOT / each).exists():
            shutil.copy(ROOT / each, into / each)


def _write(path: Path, text: str) -> None:
    """Write a module; remove its compiled code.

    Python takes compiled code as a file's if size and second of the last change are the same.
    """
    path.write_text(text, encoding="utf-8")
    Path(cache_from_source(str(path))).unlink(missing_ok=True)


def main() -> None:
    """Sample faults, run tests with each, print what no test finds."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutate", description=__doc__)
    parser.add_argument("rooms", nargs="+", help="folders of ikp/ with a folder in tests/: sass")
    parser.add_argument("--count", type=int, default=150, help="how many faults to try")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60, help="of tests for each, at most")
    parser.add_argument("--calls", type=Path, help="keep there what each test calls, for next time")
    asked = parser.parse_args()
    sources = [p for room in asked.rooms for p in sorted((ROOT / "ikp" / room).rglob("*.py"))]
    every = [each for path in sources for each in mutants(path.relative_to(ROOT))]
    chosen = random.Random(asked.seed).sample(every, min(asked.count, len(every)))  # noqa: S311
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder) / "project"
        where.mkdir()
        _copy(where)
        learned = _learned(asked.rooms, asked.calls or Path(folder) / "calls.json")
        unreached, alive = 0, 0
        for number, mutant in enumerate(chosen, 1):
            tests = _reaching(mutant, learned, asked.seconds)
            _write(where / mutant.path, mutant.text)
            code = _pytest(where, tests, 3 * asked.seconds + 60) if tests else 0
            _write(where / mutant.path, (ROOT / mutant.path).read_text(encoding="utf-8"))
            if code == 0:
                alive, unreached = alive + 1, unreached + (not tests)
                note = f"{len(tests)} tests pass" if tests else "no test reaches it"
                sys.stdout.write(f"[{number}/{len(chosen)}] {mutant} ({note})\n")
                sys.stdout.flush()
    killed = len(chosen) - alive
    sys.stdout.write(
        f"{killed} of {len(chosen)} found ({killed / len(chosen):.1%}), {unreached} reached by no "
        f"test; {len(every)} faults in {', '.join(asked.rooms)}\n"
    )


if __name__ == "__main__":
    main()
