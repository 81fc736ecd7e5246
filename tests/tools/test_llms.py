"""llms.txt: the documents as the index has them, and all of them."""

from __future__ import annotations

import re

import pytest

from tests.repo.test_docs import manual
from tools.llms import FILE, purposes, text

pytestmark = pytest.mark.any_pins


def test_the_file_is_what_the_documents_make() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), "run python -m tools.llms"


def test_it_has_the_form_of_llmstxt_org_and_each_document_once() -> None:
    lines = text().splitlines()
    assert lines[0] == "# ikp" and lines[2].startswith("> ")
    assert [line for line in lines if line.startswith("## ")] == ["## Documents", "## Optional"]
    items = [line for line in lines if line.startswith("- ")]
    found = [re.fullmatch(r"- \[.+\]\(([\w./-]+)\): .+", item) for item in items]
    paths = [each[1] for each in found if each]
    assert len(paths) == len(items) == len(set(paths))
    index = "docs/index.md"
    assert {str(path) for path in manual()} - {index} <= set(paths), "name it in docs/index.md"


def test_a_row_of_several_documents_gives_each_the_words_of_its_link() -> None:
    index = "| to | read |\n| --- | --- |\n| see all | [A](story.md#x), [its b](verdict.md) |\n"
    assert purposes(index) == {"docs/story.md": "A", "docs/verdict.md": "its b"}
    later = index + "| read it | [S](story.md) |\n"
    assert purposes(later)["docs/story.md"] == "to read it"
