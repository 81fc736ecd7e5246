"""The page for those who know another profiler: each numbered row has tests, and they exist."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.repo.tree import ROOT

pytestmark = pytest.mark.any_pins

PAGE = ROOT / "docs" / "migrating.md"
SHOWN_BY = Path(__file__).with_name("migrating.toml")
"""Section, row -> the tests that show what it says, as ``path::name``."""
ROW = re.compile(r"^\| (\d+) \| .*\|$", re.MULTILINE)
SECTIONS = {
    "Triton-distributed": 15,
    "Proton": 20,
    "SM Profiler for Triton": 9,
    "transformer_nuggets": 12,
}
"""How many rows each tool's document takes."""
BRIEF = {"IKET": 14, "FlashInfer's profiler": 7, "TileLang": 5, "FlyDSL (KTRACE)": 7}
"""Tools that no example is ported from, and the rows of their tables, headings aside."""


@cache
def shown_by() -> dict[str, dict[str, list[str]]]:
    return tomllib.loads(SHOWN_BY.read_text(encoding="utf-8"))


@cache
def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def section(title: str) -> str:
    text = PAGE.read_text(encoding="utf-8")
    (found,) = re.findall(rf"^## {re.escape(title)}$(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    return str(found)


def test_every_named_test_exists() -> None:
    named = [each for rows in shown_by().values() for tests in rows.values() for each in tests]
    split = [each.split("::") for each in named]
    missing = [(path, name) for path, name in split if name not in functions_of(ROOT / path)]
    assert len(named) > len(SECTIONS) and missing == []


def test_every_row_has_a_test() -> None:
    assert shown_by().keys() == SECTIONS.keys()
    for title, count in SECTIONS.items():
        rows = ROW.findall(section(title))
        assert rows == [str(number) for number in range(1, count + 1)], title
        assert list(shown_by()[title]) == rows and all(shown_by()[title].values()), title


def test_every_tool_has_a_program_to_run() -> None:
    for title in SECTIONS:
        (example,) = set(re.findall(r"\.\./examples/(from_\w+\.py)", section(title)))
        assert (ROOT / "examples" / example).exists()


def test_tools_without_a_ported_example_have_their_verbs() -> None:
    for title, count in BRIEF.items():
        lines = [line for line in section(title).splitlines() if line.startswith("| ")]
        assert len(lines) - 2 == count, title
        assert re.search(r"\]\(https://", section(title)), title
