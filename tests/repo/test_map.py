"""The map of the code in CONTRIBUTING.md: it names each folder, no other, and fits on a screen."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.repo.tree import ROOT

pytestmark = pytest.mark.any_pins

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SCREEN = 50
"""Lines of a terminal."""


def first_column(head: str) -> Iterator[list[str]]:
    """Yield the names in the first column of the table with this head, row by row."""
    table = TEXT[TEXT.index(head) :].partition("\n\n")[0]
    for row in table.splitlines()[2:]:
        yield re.findall(r"`([^`]+)`", row.split("|")[1])


def folders(path: str) -> set[str]:
    return {f"{p.name}/" for p in (ROOT / "ikp" / path).iterdir() if (p / "__init__.py").exists()}


def test_the_map_has_each_room_and_only_what_there_is() -> None:
    named = [name for row in first_column("| room in `ikp/` |") for name in row]
    assert folders("") - {*named} == set()
    known = [ROOT / "ikp", ROOT / "ikp" / "backends"]
    assert [n for n in named if not any((each / n).exists() for each in known)] == []
    assert {f"backends/{name}" for name in folders("backends")} <= {
        *named,
        *(f"backends/{name}" for name in named),
    }


@pytest.mark.parametrize("room", ["probes", "sass"])
def test_folders_of_machine_code_are_in_their_table(room: str) -> None:
    named = {name for row in first_column("| folder | what is in it |") for name in row}
    assert {f"{room}/{each}" for each in folders(room)} == {
        name for name in named if name.startswith(f"{room}/") and name.endswith("/")
    }


def test_it_fits_on_a_screen() -> None:
    heads = ("| room in `ikp/` |", "| folder | what is in it |")
    assert sum(len([*first_column(head)]) for head in heads) <= SCREEN
