"""Words that docs/glossary.md has replaced, and that may not come back: names and texts of ikp."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.repo.tree import ROOT, files

pytestmark = pytest.mark.any_pins
GONE = re.compile(
    r"\b(?:tells?(?<!can't tell)|told|somebody|nobody|whoever|whatever|stands?|stood|woven"
    r"|stretch(?:es)?)\b",
    re.IGNORECASE,
)
"""Pronouns for nouns, and words for what the field has a name for: report, message, is, no kernel,
the caller, inserted, region of code. "can't tell" is a verdict of ``ikp diff``."""


def _is_held(path: Path) -> bool:
    """Whether a file is of the package, or a page for users and contributors."""
    if path.suffix == ".md":
        return path.parent.name in ("", "docs") and path.name != "CHANGELOG.md"
    return path.parts[0] == "ikp" and path.suffix in (".py", ".c", ".h", ".cuh")


def test_words_that_went_do_not_come_back() -> None:
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in filter(_is_held, files())}
    found = {str(path): words for path, text in texts.items() if (words := GONE.findall(text))}
    assert found == {}


def test_the_rule_sees_them() -> None:
    assert GONE.findall("Nobody is told whoever stands there: standard, astound, can't tell") == [
        *("Nobody", "told", "whoever", "stands")
    ]
