"""What only a GPU runs uses names of ikp that there are: no test here would miss them."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.repo.tree import ROOT, files, nodes

pytestmark = pytest.mark.any_pins

FOLDERS = (("tests", "gpu"), ("benchmarks",))


def programs(text: str) -> Iterator[ast.Module]:
    """Yield the syntax tree of a file, and those of programs in its strings."""
    tree = ast.parse(text)
    yield tree
    for node in nodes(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "ikp" in node.value:
            try:
                yield ast.parse(node.value)
            except SyntaxError:  # no program
                continue


def module(name: str) -> ModuleType | None:
    """Return a module of ikp, None where there is none."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("ikp"):
            pytest.skip(f"{name} needs {error.name}, which is not installed")
        return None


def imported(tree: ast.Module) -> Iterator[tuple[str, str, object]]:
    """Yield each import from ikp: the name that it binds, what is imported, and what that is."""
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "ikp":
                    found = module(alias.name)
                    yield (
                        alias.asname or "ikp",
                        alias.name,
                        found if alias.asname else module("ikp"),
                    )
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ikp":
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found = getattr(module(str(node.module)), alias.name, None) or module(name)
                yield alias.asname or alias.name, name, found


def missing(tree: ast.Module) -> Iterator[str]:
    """Yield what a program takes from modules of ikp that they have not."""
    bound = {}
    for as_name, name, found in imported(tree):
        bound[as_name] = found
        if found is None:
            yield name
    for node in nodes(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found = bound.get(node.value.id)
            if isinstance(found, ModuleType) and not hasattr(found, node.attr):
                yield f"{found.__name__}.{node.attr}"


def paths() -> list[Path]:
    return [
        path
        for path in files()
        if path.suffix == ".py" and any(path.parts[: len(each)] == each for each in FOLDERS)
    ]


def test_every_name_is_there() -> None:
    found = {
        str(path): absent
        for path in paths()
        for tree in programs((ROOT / path).read_text(encoding="utf-8"))
        if (absent := sorted(set(missing(tree))))
    }
    assert found == {}


def test_a_name_that_is_gone_is_found() -> None:
    text = "from ikp.backends import patched\nTEXT = 'import ikp; ikp.gone()'\npatched.patch = 1"
    assert [list(missing(each)) for each in programs(text)] == [
        ["ikp.backends.patched.patch"],
        ["ikp.gone"],
    ]
