"""Words that docs/glossary.md has replaced, and that may not come back: names and texts of ikp."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.repo.tree import ROOT, files

pytestmark = pytest.mark.any_pins
GONE = re.compile(
    r"\b(?:tells?|told|somebody|nobody|whoever|whatever|stands?|stood|woven|stretch(?:es)?)\b",
    re.IGNORECASE,
)
"""Pronouns for nouns, and words for what the field has a name for: report, message, is, no kernel,
the caller, inserted, region of code."""
LEFT: dict[str, int] = {"analysis": 20, "backends": 32, "inspection": 1, "running": 4}
"""How many are left in rooms that were not gone through to the end: fewer, with each change."""


def test_words_that_went_do_not_come_back() -> None:
    found = Counter[str]()
    for path in files():
        if path.parts[0] == "ikp" and path.suffix == ".py":
            room = path.parts[1].removesuffix(".py")
            found[room] += len(GONE.findall((ROOT / path).read_text(encoding="utf-8")))
    grown = {room: count for room, count in found.items() if count > LEFT.get(room, 0)}
    assert grown == {}


def test_the_rule_sees_them() -> None:
    assert GONE.findall("Nobody is told whoever stands there: standard, astound") == [
        *("Nobody", "told", "whoever", "stands")
    ]
