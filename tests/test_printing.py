"""Printers of results, bound apart from their classes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import pytest

from ikp.printing import Printed, Printer, bind, json_of

pytestmark = pytest.mark.any_pins


@dataclass(frozen=True, slots=True)
class Unbound(Printed):
    """A result without a printer."""

    number: int


@dataclass(frozen=True, slots=True)
class Bound(Printed):
    """A result with one."""

    number: int


bind(
    f"{__name__}.Bound",
    lambda: Printer(lambda one: f"<{one.number}>", lambda one: [one.number], json=lambda _: "{}"),
)


def test_a_result_is_printed_by_the_printer_of_its_class() -> None:
    assert (str(Bound(1)), Bound(1).__rich__(), json_of(Bound(1))) == ("<1>", [1], "{}")
    assert Bound(1)._repr_html_() is None


def test_without_one_it_is_printed_as_any_dataclass() -> None:
    assert str(Unbound(1)) == repr(Unbound(1)) == Unbound(1).__rich__() == "Unbound(number=1)"
    with pytest.raises(LookupError, match="import ikp"):
        json_of(Unbound(1))


def test_statistics_load_no_printer_until_they_are_printed() -> None:
    code = """
import sys
import ikp.trace
from ikp.analysis.stats import Stats
table = Stats((), (), ())
assert not {"ikp.analysis.render", "ikp.analysis.summary", "rich"} & set(sys.modules)
str(table)
assert "ikp.analysis.render" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
