"""The public API: every name is there, documented, and in the reference."""

from __future__ import annotations

import importlib.util
from functools import cache
from types import ModuleType
from typing import Any

import pytest

import ikp
from tests.repo.tree import ROOT

pytestmark = pytest.mark.any_pins


def load_apidoc() -> ModuleType:
    pytest.importorskip("griffe")
    spec = importlib.util.spec_from_file_location("apidoc", ROOT / "tools" / "apidoc.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


apidoc = load_apidoc()


@cache
def public() -> dict[str, Any]:
    """Return what the package shows, by name."""
    found: dict[str, Any] = apidoc.public_objects(apidoc.load())
    return found


def test_all_is_sorted_and_listed_by_dir() -> None:
    assert list(ikp.__all__) == sorted(set(ikp.__all__))
    assert set(ikp.__all__) <= set(dir(ikp))


def test_public_names_are_there() -> None:
    assert [name for name in ikp.__all__ if getattr(ikp, name, None) is None] == []


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_verb"):
        _ = ikp.no_such_verb


def test_every_public_name_is_documented() -> None:
    objects = public()
    assert objects.keys() == {name for name in ikp.__all__ if not name.startswith("__")}
    assert [name for name, item in objects.items() if not item.docstring] == []


def test_every_public_member_is_documented() -> None:
    bare = [
        f"{name}.{member.name}"
        for name, item in public().items()
        for member in (item.members.values() if item.is_class else ())
        if (member.is_function or "property" in member.labels)
        and not member.name.startswith("_")
        and not member.docstring
    ]
    assert bare == []


def test_the_reference_is_current() -> None:
    committed = apidoc.PAGE.read_text(encoding="utf-8")
    assert committed == apidoc.reference(), "the docstrings have changed: make docs"


def test_long_signatures_get_a_line_for_each_parameter() -> None:
    short = "f(a: int) -> None"
    long = f"f(a: dict[str, int], *, b: Callable[[int], str] = (1, 2), {'c' * 80}: int) -> int"
    assert apidoc._wrap(short) == short
    assert apidoc._wrap(long).splitlines() == [
        "f(",
        "    a: dict[str, int],",
        "    *,",
        "    b: Callable[[int], str] = (1, 2),",
        f"    {'c' * 80}: int,",
        ") -> int",
    ]


def test_marks_of_docstrings_become_markdown() -> None:
    text = "See :class:`~ikp.core.trace.Trace` and ``x``::\n\n    code"
    assert apidoc.markdown(text) == "See `Trace` and `x`:\n\n    code\n"
