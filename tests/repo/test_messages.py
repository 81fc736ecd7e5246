"""docs/messages.md quotes each warning as the code words it, and says what to do about it."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.repo.tree import ROOT, modules, nodes, syntax

pytestmark = pytest.mark.any_pins

PAGE = ROOT / "docs" / "messages.md"
MADE_IN = tomllib.loads(Path(__file__).with_name("messages.toml").read_text(encoding="utf-8"))
"""File -> parts of the messages that it makes."""
ROW = re.compile(r"^\| (`.*?) \| (.*) \|$", re.MULTILINE)
WARNS = {"warn", "IkpWarning"}


def parts_of(path: Path) -> str:
    """Return all texts of a file; what is filled in at run time is left out."""
    found = [each.value for each in nodes(syntax(path)) if isinstance(each, ast.Constant)]
    return "\n".join(each for each in found if isinstance(each, str))


def warns(path: Path) -> bool:
    """Return whether a file has a call of ``warn`` or of ``warnings.warn``."""
    calls = [each.func for each in nodes(syntax(path)) if isinstance(each, ast.Call)]
    names = {getattr(each, "attr", getattr(each, "id", "")) for each in calls}
    return bool(names & WARNS)


def quoted() -> set[str]:
    page = PAGE.read_text(encoding="utf-8").partition("## Warnings")[2]
    return {text for first, _ in ROW.findall(page) for text in re.findall(r"`([^`]+)`", first)}


def test_each_file_that_warns_is_listed() -> None:
    paths = {path.relative_to(ROOT) for path in modules().values()}
    found = {str(path) for path in paths if warns(path)} - {"ikp/warning.py"}
    assert found - set(MADE_IN) == set(), "name its messages in messages.toml and docs/messages.md"


def test_each_message_is_worded_as_in_the_code() -> None:
    wrong = [
        (path, text)
        for path, texts in MADE_IN.items()
        for text in texts
        if text not in parts_of(Path(path))
    ]
    assert wrong == []


def test_the_page_quotes_each_message() -> None:
    page, made = quoted(), [text for texts in MADE_IN.values() for text in texts]
    missing = [text for text in made if not any(each.startswith(text) for each in page)]
    assert missing == []


def test_the_page_quotes_nothing_else() -> None:
    made = [text for texts in MADE_IN.values() for text in texts]
    assert [each for each in quoted() if not any(each.startswith(text) for text in made)] == []


def test_each_message_has_a_remedy() -> None:
    page = PAGE.read_text(encoding="utf-8").partition("## Warnings")[2]
    assert [first for first, rest in ROW.findall(page) if not rest.split(" | ")[-1].strip()] == []
