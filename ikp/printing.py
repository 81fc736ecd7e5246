"""Printers of results, bound apart from the results' classes; plain values as JSON and CSV.

A result is data: statistics, a verdict, a difference, a report. It knows no printer, so that
programs that read it load none. ``ikp.trace`` and the inspector bind the printers by class.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, slots=True)
class Printer:
    """The functions that show an object of one class."""

    text: Callable[[Any], str]
    rich: Callable[[Any], RenderableType]  # what rich prints on a terminal
    html: Callable[[Any], str] | None = None  # in a notebook; None: as text
    json: Callable[[Any], str] | None = None  # where that is less than all of ``to_dict``


_loaders: dict[str, Callable[[], Printer]] = {}


def bind(kind: str, load: Callable[[], Printer]) -> None:
    """Bind a printer to a class.

    Args:
        kind: the module and name of the class, ``"ikp.analysis.stats.Stats"``.
        load: returns the printer; called where an object is printed, so it may import.
    """
    _loaders[kind] = load


class Printed:
    """Base of a result: printed by the printer bound to its class, or as ``repr`` without one."""

    def __str__(self) -> str:
        printer = _printer(self)
        return printer.text(self) if printer else repr(self)

    def __rich__(self) -> RenderableType:
        printer = _printer(self)
        return printer.rich(self) if printer else repr(self)

    def _repr_html_(self) -> str | None:
        printer = _printer(self)
        return printer.html(self) if printer and printer.html else None


def _printer(result: Printed) -> Printer | None:
    kind = type(result)
    load = _loaders.get(f"{kind.__module__}.{kind.__qualname__}")
    return load() if load else None


def json_of(result: Printed) -> str:
    """Return a result as the JSON that its class's printer makes.

    Raises:
        LookupError: none is bound.
    """
    printer = _printer(result)
    if printer is None or printer.json is None:
        raise LookupError(f"no printer of JSON is bound to {type(result)}: import ikp.trace first.")
    return printer.json(result)


def as_json(content: Any) -> str:
    """Return ``content`` as indented JSON."""
    return json.dumps(content, indent=2)


def as_csv(header: Iterable[str], lines: Iterable[Iterable[Any]]) -> str:
    """Return a header and lines as CSV; None is an empty field."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return out.getvalue()
