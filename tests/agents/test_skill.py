"""The skill file: its form, and that what it names is there."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from click.testing import CliRunner

import ikp.agents
from ikp.agents import commands
from ikp.cli._skill import FILE
from ikp.cli.main import cli
from tests.documents import schema
from tests.repo import test_docs
from tests.repo.test_words import GONE

pytestmark = pytest.mark.any_pins
TEXT = FILE.read_text(encoding="utf-8")
FIELD = re.compile(r"^\| `([\w.\[\]]+)` \|", re.MULTILINE)


def test_the_command_prints_the_file_that_ships() -> None:
    result = CliRunner().invoke(cli, ["skill"])
    assert (result.exit_code, result.stdout) == (0, TEXT)


def test_its_head_has_the_form_of_agent_skills() -> None:
    """Of agentskills.io: the name is the folder's; a description of at most 1,024 characters."""
    opened, head, body = TEXT.split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    assert opened == "" and fields.keys() == {"name", "description", "license"}
    assert fields["name"] == FILE.parent.name and re.fullmatch(r"[a-z0-9-]{1,64}", fields["name"])
    assert 100 < len(fields["description"]) <= 1024 and ": " not in fields["description"]
    assert len(body.splitlines()) < 500 and len(body.encode()) < commands.ANSWER


def test_its_commands_have_these_options() -> None:
    flat = re.sub(r"^ +", "", TEXT, flags=re.MULTILINE)
    block = [body for language, body in test_docs.BLOCK.findall(flat) if language == "sh"]
    inline = re.findall(r"`(ikp [^`]+)`", TEXT)
    found = [words for body in (*block, *inline) for words in test_docs.commands(body)]
    assert len(found) > 14
    assert [words for words in found if test_docs.unknown_words(words)] == []


def test_its_fields_are_those_of_the_verdict() -> None:
    names = FIELD.findall(TEXT.partition("## Fields of a verdict")[2])
    assert len(names) > 6
    for name in names:
        assert has(schema("explain"), name.split(".")), name


def has(found: dict[str, Any], names: list[str]) -> bool:
    name, _, each = names[0].partition("[")
    inner = found.get("properties", {}).get(name)
    if inner is None:
        return False
    return len(names) == 1 or has(inner["items"] if each else inner, names[1:])


def test_a_field_that_is_not_there_is_seen() -> None:
    assert not has(schema("explain"), ["findings[]", "bound"])
    assert not has(schema("explain"), ["not_known"])


def test_without_the_sdk_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ikp.agents.server", raising=False)
    monkeypatch.delattr(ikp.agents, "server", raising=False)
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    result = CliRunner().invoke(cli, ["mcp"])
    assert result.exit_code == 1
    assert "needs the package mcp, 2 or newer" in result.stderr
    assert "Do: pip install 'ikp[mcp]'" in result.stderr


def test_words_that_went_do_not_come_back() -> None:
    assert GONE.findall(TEXT) == []
