"""``tools.measure``: its measures of small sources, beside counts by hand."""

from __future__ import annotations

import ast

import pytest

from tools import measure

pytestmark = pytest.mark.any_pins


def parsed(**sources: str) -> dict[str, ast.Module]:
    return {name.replace("_", "."): ast.parse(text) for name, text in sources.items()}


def test_circles_count_all_imports() -> None:
    modules = parsed(
        p_a="from p.b import x",
        p_b="def f():\n    import p.c",
        p_c="from p.a import y",
        p_d="from p.a import x",
        p_e="from p import f",
        p_f="if TYPE_CHECKING:\n    from p.e import z",
    )
    assert sorted(map(sorted, measure.circles(modules))) == [["p.a", "p.b", "p.c"], ["p.e", "p.f"]]


def test_functions_of_many_ways_are_complex() -> None:
    simple = "def f(x):\n    return [y for y in x if y and y > 1]\n"
    branches = "".join(f"    if x == {n}: return {n}\n" for n in range(10))
    modules = parsed(a=simple, b=f"def g(x):\n{branches}")
    assert measure.complex_share(modules) == 0.5


def test_names_of_several_classes_are_found() -> None:
    modules = parsed(a="class K: ...\nclass L: ...", b="class K: ...")
    assert measure.repeated_classes(modules) == ["K"]


def test_a_file_is_visited_if_its_functions_are_called() -> None:
    from ikp.analysis.diff._interval import tail
    from ikp.patterns import dotted

    assert measure.visited(lambda: None) == {}
    assert [*measure.visited(lambda: tail(0.1, 3))] == ["analysis/diff/_interval.py"]
    both = measure.visited(lambda: (tail(0.1, 3), dotted("a*")))
    assert sorted(both) == ["analysis/diff/_interval.py", "patterns.py"]


def test_lines_count_once_however_often_they_run() -> None:
    from ikp.patterns import dotted

    once = measure.visited(lambda: dotted("a*"))
    assert once == measure.visited(lambda: [dotted("a*") for _ in range(3)])
    assert 0 < once["patterns.py"] < 40
