"""The page for those who know another profiler: each row has tests, and they exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.repo.tree import ROOT

pytestmark = pytest.mark.any_pins

PAGE = ROOT / "docs" / "migrating.md"
TEST = re.compile(r"\[(test_\w+)\]\(([^)]*/tests/[^)]+\.py)\)")
ROW = re.compile(r"^\| \d+ \| .*\|$", re.MULTILINE)
SECTIONS = {
    "Triton-distributed": 15,
    "Proton": 20,
    "SM Profiler for Triton": 9,
    "transformer_nuggets": 12,
}
"""How many rows each tool's document takes."""


@cache
def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def section(title: str) -> str:
    text = PAGE.read_text(encoding="utf-8")
    (found,) = re.findall(rf"^## {re.escape(title)}$(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    return str(found)


def test_every_linked_test_exists() -> None:
    linked = TEST.findall(PAGE.read_text(encoding="utf-8"))
    missing = [
        (name, path)
        for name, path in linked
        if name not in functions_of((PAGE.parent / path).resolve())
    ]
    assert linked and missing == []


def test_every_row_has_a_test() -> None:
    for title, count in SECTIONS.items():
        rows = ROW.findall(section(title))
        assert [int(row.split("|")[1]) for row in rows] == list(range(1, count + 1)), title
        assert [row for row in rows if not TEST.search(row)] == []


def test_every_tool_has_a_program_to_run() -> None:
    for title in SECTIONS:
        (example,) = set(re.findall(r"\.\./examples/(from_\w+\.py)", section(title)))
        assert (ROOT / "examples" / example).exists()
