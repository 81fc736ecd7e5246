"""The checkout that the tests in this folder look at."""

from __future__ import annotations

import ast
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@cache
def files() -> tuple[Path, ...]:
    """Return every file that git tracks or would add, relative to the checkout."""
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("not a git checkout: which files belong to the project is unknown")
    # safe.directory: a container may mount a checkout that belongs to another user
    git = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT)]
    listed = subprocess.run(
        [*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    paths = (Path(name) for name in sorted(set(listed.split("\0"))) if name)
    return tuple(path for path in paths if (ROOT / path).is_file())


@cache
def syntax(path: Path) -> ast.Module:
    """Return a file's syntax tree."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Return what ``ast.walk`` yields: several tests look at all of it."""
    return tuple(ast.walk(tree))


def modules() -> dict[str, Path]:
    """Return the package's modules: dotted name to absolute path."""
    found = {}
    for path in files():
        if path.parts[0] == "ikp" and path.suffix == ".py":
            parts = path.with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = ROOT / path
    return found
