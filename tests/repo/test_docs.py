"""The documents: how long they may be, that links end at a heading, and that examples would run."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import ikp
from ikp.cli.main import cli
from tests.repo.tree import ROOT, files

pytestmark = pytest.mark.any_pins

WORDS = 35_500
"""Of README and docs, without the API reference and decisions."""
README_LINES = 120
SENTENCE_WORDS = 25
"""That nine in ten sentences do not exceed."""
SENTENCE = re.compile(r"[^.:?!\n](?:[^.?!]|[.?!](?!\s|$))*[.?!](?=\s|$)")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
NAMED = re.compile(r'<a id="([^"]+)">')
LINK = re.compile(r"\]\(([^)\s]*?\.md)?#([^)\s]+)\)")


def pages() -> list[Path]:
    return [path for path in files() if path.suffix == ".md"]


def manual() -> list[Path]:
    """README and the documents of users: not the API reference, which is generated."""
    docs = [path for path in pages() if path.parent == Path("docs") and path.name != "api.md"]
    return [Path("README.md"), *docs]


def text_of(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def is_word(part: str) -> bool:
    """Return whether a part of a text is a word or a figure, and no border of a table."""
    return any(map(str.isalnum, part))


def test_documents_stay_short() -> None:
    parts = {str(path): text_of(path).split() for path in manual()}
    words = {path: sum(map(is_word, each)) for path, each in parts.items()}
    assert sum(words.values()) <= WORDS, sorted(words.items(), key=lambda item: -item[1])
    assert len(text_of(Path("README.md")).splitlines()) <= README_LINES


def sentences(text: str) -> list[str]:
    """Return the sentences of a page's prose: not of tables, headings, code and links' targets."""
    parts = re.sub(r"\]\([^)]*\)", "]", BLOCK.sub("", text)).split("\n\n")
    prose = (part.strip() for part in parts if not part.lstrip().startswith(("#", "|")))
    items = (item for part in prose for item in re.split(r"\n(?=- |\d+\. )", part))
    return [one for item in items for one in SENTENCE.findall(item)]


def test_each_document_is_in_the_sites_navigation() -> None:
    navigation = text_of(Path("mkdocs.yml")).partition("\nnav:")[2]
    named = set(re.findall(r"^ +- ([\w-]+\.md)$", navigation, re.MULTILINE))
    assert {path.name for path in manual() if path.parts[0] == "docs"} - named == {"index.md"}


def test_sentences_stay_short() -> None:
    lengths = sorted(len(one.split()) for path in manual() for one in sentences(text_of(path)))
    assert lengths[len(lengths) * 9 // 10] <= SENTENCE_WORDS


def slugs(text: str) -> set[str]:
    """Return the anchors of a page, as GitHub makes them from headings."""
    found: dict[str, int] = {}
    anchors = set(NAMED.findall(text))
    for title in HEADING.findall(BLOCK.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = found.get(slug, 0)
        found[slug] = count + 1
        anchors.add(f"{slug}-{count}" if count else slug)
    return anchors


def dead_anchors(path: Path) -> Iterator[tuple[str, str]]:
    for page, anchor in LINK.findall(BLOCK.sub("", text_of(path))):
        target = (ROOT / path.parent / page).resolve() if page else ROOT / path
        if target.exists() and anchor not in slugs(target.read_text(encoding="utf-8")):
            yield str(path), f"{page}#{anchor}"


def test_links_end_at_a_heading() -> None:
    assert [dead for path in pages() for dead in dead_anchors(path)] == []


def test_anchors_are_made_as_github_makes_them() -> None:
    assert slugs("# `ikp run`, a *try*: 2.5\n## It\n## It\n") == {"ikp-run-a-try-25", "it", "it-1"}


def blocks(language: str) -> list[tuple[str, str]]:
    found = ((str(path), BLOCK.findall(text_of(path))) for path in manual())
    return [(path, body) for path, bodies in found for of, body in bodies if of == language]


def test_python_in_documents_is_python() -> None:
    assert len(blocks("python")) > 20
    for path, body in blocks("python"):
        ast.parse(body, filename=path)


NAME = re.compile(r"(?<![\w.\"/-])ikp((?:\.[a-z_A-Z]\w*)+)")


def test_names_in_documents_exist() -> None:
    """``ikp.edit.connect`` of a document is one, in inline code and in blocks of Python."""
    missing = set()
    others = {".py", ".languages"}  # a program's own file; a group of entry points
    for path in manual():
        body = text_of(path)
        inline = re.findall(r"`([^`\n]+)`", BLOCK.sub("", body))
        code = [each for language, each in BLOCK.findall(body) if language == "python"]
        for dotted in {name for text in (*inline, *code) for name in NAME.findall(text)} - others:
            if not found_below_ikp(dotted.split(".")[1:]):
                missing.add((str(path), dotted))
    assert missing == set()


def found_below_ikp(parts: list[str]) -> bool:
    value: object = ikp
    for at, part in enumerate(parts):
        try:
            value = getattr(value, part)
        except AttributeError:
            try:
                value = importlib.import_module(".".join(["ikp", *parts[: at + 1]]))
            except ImportError:
                return False
    return True


def commands(body: str) -> Iterator[list[str]]:
    """Yield the words of each command of ``ikp`` in a block of shell, up to a pipe or a comment."""
    for line in body.replace("\\\n", " ").splitlines():
        words = shlex.split(re.sub(r"\$\([^)]*\)", "x", line), comments=True)
        while words and (re.fullmatch(r"[A-Z_]+=\S*", words[0]) or words[0] == "timeout"):
            words = words[1:]
        if words[:1] == ["ikp"] and len(words) > 1 and not words[1].startswith(("-", "COMMAND")):
            stop = next((at for at, word in enumerate(words) if word in {"|", "||", "&&"}), None)
            yield words[1:stop]


def unknown_words(words: list[str]) -> list[str]:
    """Return the options that a command does not have, or its name where there is no such one."""
    command = cli.get_command(click.Context(cli), words[0])
    if command is None:
        return words[:1]
    known = {one for each in command.params for one in (*each.opts, *each.secondary_opts)}
    known |= {"-h", "--help"}
    own = words[1:]
    if words[0] == "run":  # what follows the program is the program's
        own = list(options_before_target(own, command))
    return [
        word for word in own if word.startswith("-") and word.split("=")[0] not in known | {"-"}
    ]


def options_before_target(words: list[str], command: click.Command) -> Iterator[str]:
    flags = {one for each in command.params if getattr(each, "is_flag", False) for one in each.opts}
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word in {"-m", "-c", "-"}:
            return
        yield word
        if word.split("=")[0] not in flags and "=" not in word:
            next(rest, None)


def test_commands_in_documents_have_these_options() -> None:
    found = [(path, words) for path, body in blocks("sh") for words in commands(body)]
    assert len(found) > 40
    wrong = [(path, words, bad) for path, words in found if (bad := unknown_words(words))]
    assert wrong == []


def test_an_option_that_is_not_there_is_seen() -> None:
    (words,) = commands("ikp run --detial ops -m x --own  # why\n")
    assert unknown_words(words) == ["--detial"]
    assert unknown_words(["frobnicate"]) == ["frobnicate"]
