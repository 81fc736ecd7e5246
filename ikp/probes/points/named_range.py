"""The code of a range that the source names: one stretch where that can be, else what it does.

Who writes a range means all from its first line to its last, calls and all. So the longest stretch
is taken that holds nearly all its code, no anchor of other lines, and less of their work than of
its own; once for each place that its function is called at. Where a compiler has spread the code,
or unrolled the loop around it, each thing that it does is a piece of its own, as with lines that
somebody has chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from ikp.probes.points.chosen_lines import Chosen, Piece
from ikp.probes.points.sese_regions import Point
from ikp.sass.disassembly.listing import Line

_NEARLY = 0.9
"""A range is one stretch if that holds such a part of its code, addresses and moves aside."""
_TRIED = 8
"""How many blocks it may begin in, and end in."""


@dataclass(frozen=True)
class Named:
    """Finds the pieces of one.

    Args:
        chosen: its lines; their title is its name.
    """

    chosen: Chosen

    @cached_property
    def pieces(self) -> list[Piece]:
        """The stretches, in the order of the code; those of one name do the same."""
        found: list[Piece] = []
        left = self.chosen.parts
        for members in self._calls.values():
            made, left = self._of_call(members, left)
            found += made
        return sorted(found, key=lambda piece: piece.start)

    def _of_call(self, members: list[int], parts: list[Piece]) -> tuple[list[Piece], list[Piece]]:
        """Return the stretches of one call of the range's function, and the parts of others."""
        mine = [each for each in parts if not self._about(each).isdisjoint(members)]
        others = [each for each in parts if each not in mine]
        if whole := self._whole(members):
            rest = [each for each in mine if self._about(each).isdisjoint(whole.holds)]
            return [whole, *map(self._named, rest)], others
        if len({each.name for each in mine}) == 1:  # all does one thing: that is the range
            return [replace(each, name=self.chosen.title) for each in mine], others
        return [*map(self._named, mine)], others

    def _named(self, piece: Piece) -> Piece:
        """Name a piece without its lines: the source has the range's name there."""
        return replace(piece, name=piece.name.removesuffix(f" @{self.chosen.where}"))

    def _about(self, piece: Piece) -> set[int]:
        """Return the instructions that a piece is for: of a wait for loads, these."""
        waits = (each for each in self.chosen.waits if piece.waits and each.at == piece.end.index)
        return {*piece.holds, *(load for wait in waits for load in wait.loads)}

    @property
    def _calls(self) -> dict[frozenset[Line], list[int]]:
        """The instructions, by the call of their function."""
        found: dict[frozenset[Line], list[int]] = {}
        for at in sorted(self.chosen.own):
            found.setdefault(frozenset(self.chosen.sites([at])), []).append(at)
        return found

    def _whole(self, members: list[int]) -> Piece | None:
        """Return the stretch that holds nearly all of some instructions, where there is one."""
        work = self.chosen.work.intersection(members) or set(members)
        for start, end in self._ends(sorted(work)):  # what is idle, a compiler puts anywhere
            if not self.chosen.origins.regions.why_not(start, end):
                piece = self.chosen.stretch(self.chosen.title, start, end)
                held = len(work.intersection(piece.holds))
                if held < _NEARLY * len(work):
                    return None  # those that follow hold less
                others = len(self.chosen.work.intersection(piece.others))
                if others < held and not self.chosen.others_anchors(start, end, self.chosen.own):
                    return piece
        return None

    def _ends(self, work: list[int]) -> Iterator[tuple[Point, Point]]:
        """Yield where it may begin and end, the farthest apart first."""
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
