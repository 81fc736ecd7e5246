"""What stands in the files: nothing that holds on one machine only, and no dead links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.repo.tree import ROOT, files

LOCAL = {
    "a path of one machine": r"(?<![\w.-])/(?:work|home|root|Users)/|/tmp/\w/|/opt/\w|\.\./shared",
    "a package host": r"pypi\.org|pythonhosted\.|npmjs\.|deb\.debian\.",
    "a ticket": r"\bissue #?\d|(?<![\w&/#])#\d+\b",
    "a helper": r"(?i)\b(?:[c]laude|[c]hatgpt|[c]odex|[s]ubagent)\b",
}
OTHERS_WORDS = {Path("LICENSE")}
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def texts() -> list[Path]:
    return [path for path in files() if path.suffix not in {".png", ".svg", ".bin"}]


@pytest.mark.parametrize("path", sorted(set(texts()) - OTHERS_WORDS), ids=str)
def test_a_file_says_nothing_that_holds_here_only(path: Path) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    found = {what: re.findall(pattern, text) for what, pattern in LOCAL.items()}
    assert {what: hits for what, hits in found.items() if hits} == {}


@pytest.mark.parametrize("path", [path for path in texts() if path.suffix == ".md"], ids=str)
def test_links_between_files_lead_somewhere(path: Path) -> None:
    text = CODE.sub("", (ROOT / path).read_text(encoding="utf-8"))
    targets = LINK.findall(text)
    assert [to for to in targets if not (ROOT / path.parent / to).exists()] == []
