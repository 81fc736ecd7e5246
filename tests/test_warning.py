"""Warnings of ikp are Python's, but for programs under ``ikp run``: these don't notice them."""

from __future__ import annotations

import warnings

import pytest

from ikp.errors import IkpWarning
from ikp.warning import diverted, joined, warn

pytestmark = pytest.mark.any_pins


def caller(stacklevel: int) -> None:
    warn("careful", stacklevel)


def test_a_warning_is_pythons_and_names_the_line_that_asked_for_it() -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        caller(stacklevel=1)
        caller(stacklevel=2)
    assert [(each.category, str(each.message)) for each in found] == [(IkpWarning, "careful")] * 2
    asked = caller.__code__.co_firstlineno + 1
    assert found[0].lineno == asked
    assert found[1].lineno not in (asked, warn.__code__.co_firstlineno)
    assert {each.filename for each in found} == {__file__}


def test_a_program_that_makes_warnings_errors_gets_none_while_they_are_diverted() -> None:
    texts: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with diverted(texts.append):
            caller(stacklevel=1)
        with pytest.raises(IkpWarning):
            caller(stacklevel=1)
    assert texts == ["careful"]


def test_warnings_alike_but_for_the_kernel_are_one_and_others_stand_as_they_are() -> None:
    alike = [f"kernel_{k}: loop is not recorded: no register is free." for k in range(5)]
    others = ["kernel_9: loop is not recorded: it is empty.", "the disk is full"]
    assert joined([alike[0], *others, *alike[1:]]) == [
        "kernel_0, kernel_1 and 3 more: loop is not recorded: no register is free.",
        *others,
    ]
    assert joined([*alike[:3], *others]) == [*alike[:3], *others]
    assert joined([]) == []
