"""One word, one thing: modules have one name only where they do one thing in several rooms."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.repo.tree import modules

pytestmark = pytest.mark.any_pins

SHARED = {
    "adapter": "what the verbs ask of a language",
    "driver": "the CUDA driver: asked in one room, launches that reach it met in another",
    "first_look": "what a viewer shows first",
    "foreign": "undocumented names of another package",
    "image": "a compiled kernel's machine code",
    "instrument": "ikp.instrument, and a language's half of it",
    "ptx": "PTX: made from the ABI in one room, a compiler's own in another",
    "render": "a result as text, table and JSON",
    "state": "what the verbs must know of the kernel that is being compiled",
    "trace": "what kernels left: its columns, and ikp.Trace around them",
    "tracks": "the rows of a timeline",
    "unedited": "kernels that nobody edited, in any language and in one",
}
"""Names that several rooms have, and the one thing that each means."""


def test_a_name_means_one_thing() -> None:
    places = defaultdict(list)
    for module in modules():
        if not module.startswith("ikp.cli."):  # named as their commands are
            places[module.rpartition(".")[2].removeprefix("_")].append(module)
    several = {name: found for name, found in places.items() if len(found) > 1}
    assert {name: found for name, found in several.items() if name not in SHARED} == {}
    assert SHARED.keys() - several.keys() == set(), "names that only one room has"
