"""Tracebacks that have gone through ikp look as if they had not."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator

from ikp.core.regions import checked_name
from ikp.running.startup import ikp_frames as frames


def through_ikp(function: Callable[[], object]) -> None:
    """Call a function from within ikp."""

    class Name(str):
        __slots__ = ()

        def __iter__(self) -> Iterator[str]:
            function()
            return iter("x")

    checked_name(Name("x"))


def own() -> None:
    raise ValueError("of the program")


def twice() -> None:
    try:
        through_ikp(own)
    except ValueError as error:
        raise ExceptionGroup("both", [error]) from error


def test_frames_of_ikp_are_gone_from_an_error_its_cause_and_its_group() -> None:
    try:
        through_ikp(twice)
    except ExceptionGroup as error:
        caught = error
    assert "regions.py" in "".join(traceback.format_exception(caught))
    frames.strip(caught, set())
    text = "".join(traceback.format_exception(caught))
    assert "regions.py" not in text
    assert text.count("in own") == 2
    assert text.count("in through_ikp") == 3
