"""``python -m tools.llms``: writes llms.txt, a list of the documents in the form of llmstxt.org.

Titles are the documents' own; what each is for is what docs/index.md says of it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FILE: Final = ROOT / "llms.txt"
OPTIONAL: Final = {
    *("docs/abi.md", "docs/benchmarks.md", "docs/fuzzing.md", "docs/plugins.md", "docs/suites.md"),
    *("docs/rewriting-a-cubin.md", "CHANGELOG.md", "CONTRIBUTING.md"),
}
"""What a reader with little room may leave out."""
_ROW: Final = re.compile(r"^\| (?!to \|)([^|]+) \| (.+) \|$", re.MULTILINE)
_LINK: Final = re.compile(r"\[([^\]]+)\]\(([\w./-]+\.md)(?:#[\w-]+)?\)")


def text() -> str:
    """Return what the file has to hold."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    notes = purposes((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    first = {path: note for path, note in notes.items() if path not in OPTIONAL}
    skill = "ikp/agents/skills/ikp/SKILL.md"
    return "\n".join(
        (
            "# ikp\n",
            f"> {project['description']}\n",
            "Programs are recorded unedited by `ikp run`; `ikp explain` says what takes a kernel's",
            "time, and what a change could win. A trace is read on any machine, without a GPU.\n",
            "## Documents\n",
            f"- [How a coding agent uses ikp]({skill}): the loop, commands, fields, pitfalls",
            *_lines(first),
            "\n## Optional\n",
            *_lines({path: note for path, note in notes.items() if path in OPTIONAL}),
            "",
        )
    )


def purposes(index: str) -> dict[str, str]:
    """Return what each document is for, by its path from the root, in the order of the index.

    That is its row of the index; where a row has several documents, the words of the link.

    Args:
        index: the text of docs/index.md.
    """
    alone: dict[str, str] = {}
    beside: dict[str, str] = {}
    for purpose, links in _ROW.findall(index):
        found = _LINK.findall(links)
        for words, target in found:
            path = (ROOT / "docs" / target).resolve().relative_to(ROOT).as_posix()
            if len(found) == 1:
                alone.setdefault(path, f"to {purpose}")
            beside.setdefault(path, words)
    return {path: alone.get(path, words) for path, words in beside.items()}


def _lines(notes: dict[str, str]) -> Iterator[str]:
    for path, note in notes.items():
        title = re.search(r"^# (.+)$", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
        yield f"- [{title[1] if title else path}]({path}): {note}"


def main() -> None:
    """Write the file."""
    FILE.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
