"""Probe regions of all ranges that a kernel's source names; messages on those without one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from ikp.probes.points.absent_lines import files
from ikp.probes.points.chosen_lines import Chosen
from ikp.probes.points.chosen_ranges import Choice
from ikp.probes.points.lines_of import AboutLines
from ikp.probes.points.load_waits import LoadWait
from ikp.probes.points.named_range import Named
from ikp.probes.points.naming import some
from ikp.probes.points.source_ranges import Unpaired, Written, written
from ikp.sass.control_flow.flow import Flow


def named_in_source(flow: Flow, origins: AboutLines, waits: Sequence[LoadWait]) -> Iterator[Choice]:
    """Yield the ranges of the functions that have code in a kernel; last, messages on the others.

    Args:
        flow: the kernel.
        origins: its source lines.
        waits: its waits for loads.
    """
    ranges: list[Written] = []
    unpaired: list[Unpaired] = []
    for file, numbers in files(flow.code).items():
        for each in written(file):
            if numbers.keys().isdisjoint(each.around):
                continue
            if isinstance(each, Unpaired):
                unpaired.append(each)
            else:
                ranges.append(each)
    claimed, without = _claimed(origins, ranges), []
    for each in ranges:
        found = list(_pieces(Chosen(flow, origins, each, waits, each.name, claimed)))
        yield from found
        if not found:
            without.append(_where(each.name, each.file, each.first))
    yield from _message(without, "no code of their own in one region")
    apart = [_where(each.name, each.file, each.line) for each in unpaired]
    yield from _message(apart, "no start and end in one block of statements")


def _pieces(chosen: Chosen) -> Iterator[Choice]:
    """Yield the pieces of a range; of those of one name, the first has a message on all."""
    pieces = Named(chosen).pieces if chosen.own else []
    for name in dict.fromkeys(piece.name for piece in pieces):
        alike = [piece for piece in pieces if piece.name == name]
        yield Choice(alike[0], chosen.message(*alike))
        yield from (Choice(piece, "") for piece in alike[1:])


def _claimed(origins: AboutLines, ranges: Sequence[Written]) -> frozenset[int]:
    """Return the instructions whose own lines lie in some range.

    So a wait that lies in a range is not of another one, whose products it awaits.
    """
    spans: dict[str, set[int]] = {}
    for each in ranges:
        spans.setdefault(each.file, set()).update(range(each.first, each.last + 1))
    return frozenset(
        at
        for at in range(len(origins.flow.code.instructions))
        if any(line.number in spans.get(line.file, ()) for line in origins.own(at))
    )


def _where(name: str, file: str, line: int) -> str:
    return f"{name!r} ({PurePath(file).name}:{line})"


def _message(names: list[str], lack: str) -> Iterator[Choice]:
    if names:
        yield Choice(None, f"ranges that the source names and that have {lack}: {some(names)}.")
