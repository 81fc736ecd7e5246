"""Probe regions of the ranges that a kernel's source names, and messages on those without one.

A range in source means all code from its first line to its last, calls included. So it is one
region if possible, for each call of its function. The longest region is taken that holds nearly all
its code, no landmark of other lines, and less of their work than of its own. A compiler may have
spread the code, or unrolled the loop around it. Then each cluster of landmarks is a piece of its
own, as with chosen lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath

from ikp.probes.points.chosen_lines import LineChoice, Piece
from ikp.probes.points.chosen_ranges import Choice, files
from ikp.probes.points.lines_of import AboutLines
from ikp.probes.points.naming import some
from ikp.probes.points.sese_regions import Point
from ikp.probes.points.source_ranges import NamedRange, Unpaired, written
from ikp.probes.points.waits import LoadWait
from ikp.sass.control_flow.flow import Flow
from ikp.sass.disassembly.listing import Line

_NEARLY = 0.9
"""The part of its code, addresses and moves aside, that one region for a range must hold."""
_TRIED = 8
"""How many basic blocks are tried for its start; four times as many for its end."""


@dataclass(frozen=True)
class Named:
    """Finds the pieces of one range.

    Args:
        chosen: the range's lines; their title is its name.
    """

    chosen: LineChoice

    @cached_property
    def pieces(self) -> list[Piece]:
        """The regions, in the order of the code; those of one name do the same."""
        found: list[Piece] = []
        left = self.chosen.parts
        for members in self._calls.values():
            made, left = self._of_call(members, left)
            found += made
        return sorted(found, key=lambda piece: piece.start)

    def _of_call(self, members: list[int], parts: list[Piece]) -> tuple[list[Piece], list[Piece]]:
        """Return the regions of one call of the range's function, and the parts of other calls."""
        mine = [each for each in parts if not self._about(each).isdisjoint(members)]
        others = [each for each in parts if each not in mine]
        if whole := self._whole(members):
            rest = [each for each in mine if self._about(each).isdisjoint(whole.holds)]
            return [whole, *map(self._named, rest)], others
        if len({each.name for each in mine}) == 1:  # all parts do one thing: that is the range
            return [replace(each, name=self.chosen.title) for each in mine], others
        return [*map(self._named, mine)], others

    def _named(self, piece: Piece) -> Piece:
        """Name a piece without its lines: the source has the range's name there."""
        return replace(piece, name=piece.name.removesuffix(f" @{self.chosen.where}"))

    def _about(self, piece: Piece) -> set[int]:
        """Return the instructions that a piece is for: of a wait for loads, the loads, too."""
        waits = (each for each in self.chosen.waits if piece.waits and each.at == piece.end.index)
        return {*piece.holds, *(load for wait in waits for load in wait.loads)}

    @property
    def _calls(self) -> dict[frozenset[Line], list[int]]:
        """The range's instructions, by the call of their function."""
        found: dict[frozenset[Line], list[int]] = {}
        for at in sorted(self.chosen.own):
            found.setdefault(frozenset(self.chosen.sites([at])), []).append(at)
        return found

    def _whole(self, members: list[int]) -> Piece | None:
        """Return the region that holds nearly all of some instructions, where there is one."""
        work = self.chosen.work.intersection(members) or set(members)
        for start, end in self._ends(sorted(work)):  # compilers put moves and addresses anywhere
            if not self.chosen.origins.regions.why_not(start, end):
                piece = self.chosen.piece(self.chosen.title, start, end)
                held = len(work.intersection(piece.holds))
                if held < _NEARLY * len(work):
                    return None  # those that follow hold less
                others = len(self.chosen.work.intersection(piece.others))
                if others < held and not self.chosen.others_anchors(start, end, self.chosen.own):
                    return piece
        return None

    def _ends(self, work: list[int]) -> Iterator[tuple[Point, Point]]:
        """Yield candidates for the region's start and end, the farthest apart first."""
        graph = self.chosen.flow.graph
        blocks: dict[int, list[int]] = {}
        for at in work:
            if at not in graph.jumps.leaving:
                blocks.setdefault(graph.block(at), []).append(at)
        firsts = [each[0] for each in blocks.values()][:_TRIED]
        lasts = [each[-1] for each in blocks.values()][::-1][: 4 * _TRIED]
        pairs = [(first, last) for first in firsts for last in lasts if first <= last]
        for first, last in sorted(pairs, key=lambda pair: pair[0] - pair[1]):
            yield Point(first), Point(last, after=True)


def named_in_source(flow: Flow, origins: AboutLines, waits: Sequence[LoadWait]) -> Iterator[Choice]:
    """Yield the ranges of the functions that have code in a kernel; last, messages on the others.

    Args:
        flow: the kernel.
        origins: its source lines.
        waits: its waits for loads.
    """
    ranges: list[NamedRange] = []
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
        found = list(_pieces(LineChoice(flow, origins, each, waits, each.name, claimed)))
        yield from found
        if not found:
            without.append(_where(each.name, each.file, each.first))
    yield from _message(without, "no code of their own in one region")
    apart = [_where(each.name, each.file, each.line) for each in unpaired]
    yield from _message(apart, "no start and end in one block of statements")


def _pieces(chosen: LineChoice) -> Iterator[Choice]:
    """Yield the pieces of a range; of those of one name, the first has a message on all."""
    pieces = Named(chosen).pieces if chosen.own else []
    for name in dict.fromkeys(piece.name for piece in pieces):
        alike = [piece for piece in pieces if piece.name == name]
        yield Choice(alike[0], chosen.message(*alike))
        yield from (Choice(piece, "") for piece in alike[1:])


def _claimed(origins: AboutLines, ranges: Sequence[NamedRange]) -> frozenset[int]:
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
