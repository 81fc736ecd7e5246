"""Mutation testing: puts one fault at a time into a copy of the sources, and runs tests on it.

``python -m tools.mutate sass probes --count 150`` prints each fault that no test finds, and the
share that is found. It tries faults of operators, comparisons, conditions and numbers: a random
sample of all there are. The tests of the rooms run first as they are, to learn which statements
each of them executes. So a fault meets only tests that reach it, and ends with the first that
fails. A fault that changes nothing (an equivalent mutant) counts as not found: read what is
printed.
"""

from __future__ import annotations

import argparse
import ast
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

from tools import mutation_tests

ROOT = Path(__file__).resolve().parents[1]
_COPIED = (
    *("ikp", "tests", "tools", "docs", "examples"),
    *("conftest.py", "pyproject.toml", "README.md"),
)
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


def mutants(path: Path, only: set[int] | None = None) -> Iterator[Mutant]:
    """Yield all faults of a file, or those with given numbers. Annotations and messages stay."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    number = -1
    for statement, function in _statements(tree, ""):
        for node in _nodes(statement):
            for undo, change in _changes(node):
                number += 1
                if only is not None and number not in only:
                    continue
                before = ast.unparse(statement).splitlines()[0]
                change()
                after, text = ast.unparse(statement).splitlines()[0], ast.unparse(tree)
                undo()
                if before == after:  # deeper inside: show all of it
                    before, after = ast.unparse(node), "changed"
                yield Mutant(path, function, statement.lineno, before, after, text)


def sample(rooms: list[str], count: int, seed: int) -> tuple[list[Mutant], int]:
    """Return random faults of rooms, and how many there are."""
    paths = [p for room in rooms for p in sorted((ROOT / "ikp" / room).rglob("*.py"))]
    every = [(path.relative_to(ROOT), number) for path in paths for number in range(_count(path))]
    chosen = random.Random(seed).sample(every, min(count, len(every)))  # noqa: S311
    found = [next(mutants(path, {number})) for path, number in chosen]
    return found, len(every)


def _count(path: Path) -> int:
    """Return how many faults a file has."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return sum(
        1
        for statement, _ in _statements(tree, "")
        for node in _nodes(statement)
        for _ in _changes(node)
    )


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


def _copy(into: Path) -> None:
    into.mkdir()
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
    parser.add_argument("--skip", type=int, default=0, help="how many of them an earlier run did")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds",
        type=float,
        default=60,
        help="of tests that execute it, and of tests beside these, at most",
    )
    parser.add_argument(
        "--keep", type=Path, help="a folder for what tests execute and compile, for the next run"
    )
    asked = parser.parse_args()
    chosen, of = sample(asked.rooms, asked.count, asked.seed)
    chosen = chosen[asked.skip :]
    with tempfile.TemporaryDirectory() as folder:
        where, kept = Path(folder) / "project", asked.keep or Path(folder) / "kept"
        kept.mkdir(parents=True, exist_ok=True)
        _copy(where)
        learned = _learned(where, asked.rooms, kept)
        mutation_tests.prepare(learned)
        unreached, alive = 0, 0
        for number, mutant in enumerate(chosen, asked.skip + 1):
            tests = learned.reaching(mutant.path, mutant.line, asked.seconds)
            _write(where / mutant.path, mutant.text)
            if not tests or mutation_tests.passes(where, tests, kept, 6 * asked.seconds):
                alive, unreached = alive + 1, unreached + (not tests)
                note = f"{len(tests)} tests pass" if tests else "no test reaches it"
                sys.stdout.write(f"[{number}/{asked.count}] {mutant} ({note})\n")
                sys.stdout.flush()
            _write(where / mutant.path, (ROOT / mutant.path).read_text(encoding="utf-8"))
    killed = len(chosen) - alive
    sys.stdout.write(
        f"{killed} of {len(chosen)} found ({killed / len(chosen):.1%}), {unreached} reached by no "
        f"test; {of} faults in {', '.join(asked.rooms)}\n"
    )


def _learned(project: Path, rooms: list[str], kept: Path) -> mutation_tests.Learned:
    """Return what each test of the rooms executes, by a run of all in the copy."""
    sources = [p for room in rooms for p in sorted((ROOT / "ikp" / room).rglob("*.py"))]
    for source in sources:
        path, text = source.relative_to(ROOT), source.read_text(encoding="utf-8")
        _write(project / path, mutation_tests.noting(text, path))
    learned = mutation_tests.learn(project, [f"tests/{room}" for room in rooms], kept)
    for source in sources:
        _write(project / source.relative_to(ROOT), source.read_text(encoding="utf-8"))
    return learned


if __name__ == "__main__":
    main()
