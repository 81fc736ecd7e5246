"""What stands in the files: nothing that holds on one machine only, and no dead links."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.repo.tree import ROOT, files

pytestmark = pytest.mark.any_pins

LOCAL = {
    "a path of one machine": r"(?<![\w.-])/(?:work|home|root|Users)/|/tmp/\w/|/opt/\w|\.\./shared",
    "a package host": r"pypi\.org|pythonhosted\.|npmjs\.|deb\.debian\.",
    "a ticket": r"\bissue #?\d|(?<![\w&/#])#\d+\b",
    "a helper": r"(?i)\b(?:[c]laude|[c]hatgpt|[c]odex|[s]ubagent)\b",
}
OTHERS_WORDS = {Path("LICENSE"), Path("plugins/ikp-amd/LICENSE")}
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
LITERAL = re.compile(r"\s*[rf]*\"(.*)\"\s*")
"""A line that is one string, which the next one continues."""
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def texts() -> list[Path]:
    return [
        path for path in files() if path.suffix not in {".png", ".svg", ".bin", ".pftrace", ".xz"}
    ]


def test_files_say_nothing_that_holds_here_only() -> None:
    found = [
        (str(path), what, hits)
        for path in set(texts()) - OTHERS_WORDS
        for what, pattern in LOCAL.items()
        if (hits := re.findall(pattern, (ROOT / path).read_text(encoding="utf-8")))
    ]
    assert sorted(found) == []


def test_links_between_files_lead_somewhere() -> None:
    dead = [
        (str(path), to)
        for path in texts()
        if path.suffix == ".md"
        for to in LINK.findall(CODE.sub("", (ROOT / path).read_text(encoding="utf-8")))
        if not (ROOT / path.parent / to).exists()
    ]
    assert dead == []


def torn(text: str) -> list[str]:
    """Return the lines that end in the middle of a sentence though the next word had room.

    Of a text that is laid over several lines, one string each: what a rewrap by hand leaves behind.
    And lines of a docstring that begin with the quotes that should have ended it.
    """
    lines = text.splitlines()
    found = [line for line in lines if re.match(r'\s*""\w', line)]
    for line, following in pairwise(lines):
        one, two = LITERAL.fullmatch(line), LITERAL.match(following)
        if one and two and re.search(r"[\w)\'] $", one[1]) and "=" not in one[1]:
            word = two[1].split(" ")[0]
            fits = len(line) + len(word) < WIDE - SLACK and "{" not in word
            found += [line] if fits else []
    return found


WIDE, SLACK = 100, 30
"""Columns of a line, and how many may stay empty before a word that would fit."""


def test_no_message_is_torn() -> None:
    sources = [path for path in texts() if path.suffix == ".py"]
    found = {path: torn((ROOT / path).read_text(encoding="utf-8")) for path in sources}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_a_torn_message_is_seen() -> None:
    assert torn('raise E(\n    "pass that to "\n    "the kernel."\n)') == ['    "pass that to "']
    assert torn('    """The bit for "\n    ""hashed".\n    """') != []
    assert torn('f(\n    "A sentence. "\n    "Another."\n)\ng(\n    "a",\n    "b",\n)') == []
