"""What a plan of marks means by what its user wrote."""

from __future__ import annotations

from typing import Any

import pytest

from ikp.errors import UsageError
from ikp.unedited.plan import BEST, plan

pytestmark = pytest.mark.any_pins


@pytest.mark.parametrize(
    ("lines", "path", "meant"),
    [
        ("88", "/src/me/kernels.py", True),
        ("kernels.py:88", "/src/me/kernels.py", True),
        ("./kernels.py:88", "/src/me/kernels.py", True),
        ("me/kernels.py:88", "/src/me/kernels.py", True),
        ("/src/me/kernels.py:88", "/src/me/kernels.py", True),
        ("kernels.py:88", "/src/me/more_kernels.py", False),
        ("me/kernels.py:88", "/src/she_and_me/kernels.py", False),
        ("me/kernels.py:88", "kernels.py", False),
        ("kernels.py:88", "/src/kernels.py/other.py", False),
        ("/me/kernels.py:88", "/src/me/kernels.py", False),
    ],
)
def test_lines_are_of_files_whose_path_ends_in_the_given_parts(
    lines: str, path: str, meant: bool
) -> None:
    (chosen,) = plan(lines=lines).lines
    assert chosen.within(path) is meant
    assert chosen.hold(path, 88, 88) is meant
    assert not chosen.hold(path, 87, 88) and not chosen.hold(path, 88, 89)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"detail": "waits", "level": "source"}, "level='machine'"),
        ({"level": "scheduled"}, "no level any more: level='machine' .* level='ptx'"),
        ({"level": "sass"}, "'sass' is unknown: use one of source, machine, ptx"),
        ({"detail": "best"}, "detail='best' is unknown"),
        ({"functions": "softened", "level": "source"}, "level='machine'"),
        ({"max_overhead": 1.05, "level": "source"}, "level='machine'"),
        ({"check": True, "level": "source"}, "level='machine'"),
        ({"functions": "softened", "level": "ptx"}, "level='machine'"),
        ({"ranges": True, "level": "source"}, "level='machine'"),
        ({"ranges": True, "level": "ptx"}, "level='machine'"),
        ({"max_overhead": 1.05, "level": "ptx"}, "level='machine'"),
        ({"lines": "88", "level": "ptx"}, "not with level='ptx'"),
        ({"max_overhead": 0.05, "level": None}, "no ratio above 1"),
        ({"max_overhead": float("nan"), "level": "machine"}, "no ratio above 1"),
        ({"functions": "a.b", "level": "machine"}, "no name of a function"),
        ({"sample": 0, "level": "machine"}, "sample=0 can't be used"),
        ({"sample": 7, "level": "ptx"}, "level='machine', not level='ptx'"),
        ({"sample": 7, "level": None, "buffer": ["blocks", "size"]}, "chosen blocks don't go"),
        ({"sample": 7, "level": None, "buffer": ["warps", "blocks"]}, "blocks and warps don't"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        plan(**options)
    assert plan("waits", level="machine").level == "machine"
    assert plan("waits", level="ptx", check=True).afterwards
    assert plan(level="ptx", sample=1, buffer=["warps"]).sample == 1  # all that are chosen


@pytest.mark.parametrize(
    "options",
    [
        *({"detail": "waits"}, {"functions": "f"}, {"ranges": True}, {"check": True}),
        {"max_overhead": 1.05},
    ],
)
def test_what_only_machine_code_can_do_needs_no_level(options: dict[str, Any]) -> None:
    made = plan(**options, level=None)
    assert made.level == BEST and made.afterwards and made.needs_machine_code
    assert not plan(level=None).needs_machine_code


def test_what_marks_in_ptx_have_not_is_told() -> None:
    assert plan("waits", level=None, check=True).lost_in_ptx == ""
    assert plan(lines="3", level=None, max_overhead=1.1).lost_in_ptx == "chosen lines, max_overhead"
    assert plan(functions="f", level=None).lost_in_ptx == "chosen functions"
    assert plan(ranges=True, level=None).lost_in_ptx == "ranges that the source names"


def test_what_is_chosen_lets_the_rest_be() -> None:
    chosen = plan(lines="k.py:8", functions=("f", "g"), level="machine")
    assert str(chosen) == "level=machine detail=kernel lines=k.py:8 functions=f,g"
    assert plan(functions="f", level="machine").functions == ("f",)
    named = plan(ranges=True, level=None)
    assert str(named) == "level=best detail=kernel ranges" and named.ranges
    assert str(plan(level="machine", max_overhead=1.05)).endswith("detail=loops max_overhead=1.05")
