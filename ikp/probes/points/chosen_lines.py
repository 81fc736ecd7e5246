"""Probe regions for one choice of source lines: clusters of the lines' landmarks.

From the first to the last instruction of a line is never the line: a compiler spreads it over the
loop. The work of a line is in its *landmarks*: products, copies, loads, stores, barriers, and the
waits for them. So a range is a cluster of landmarks, cut at those of other lines; each is named by
what it does (``load: wait``), and its message says what else it holds. Lines without a landmark get
the region between others' landmarks that holds most of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import PurePath
from typing import Protocol

from ikp.probes.points.groups import ChosenLandmark, Clusters, counted_wait
from ikp.probes.points.lines_of import AboutLines
from ikp.probes.points.naming import original
from ikp.probes.points.sese_regions import Point
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.outstanding import LoadWait
from ikp.sass.disassembly.listing import Line
from ikp.sass.disassembly.opcodes import IDLE, Landmark, work_of

_WORDS = {
    Landmark.PRODUCT: "dot",
    Landmark.PRODUCT_WAIT: "dot",
    Landmark.LOAD: "load",
    Landmark.COPY: "load",
    Landmark.TMA_LOAD: "load",
    Landmark.STORE: "store",
    Landmark.TMA_STORE: "store",
}
_WAITS = {"cp.async wait": "load", "TMA store wait": "store"}
_AHEAD = {Landmark.LOAD, Landmark.COPY, Landmark.TMA_LOAD}
"""Landmarks issued for a later iteration where the wait for them comes before them."""
_DEEP = 8
"""An instruction in a loop counts as so many outside."""
_ENOUGH = 4
"""A region counts that holds a fourth of what the best one does."""


class ChosenLines(Protocol):
    """Source lines of files, as a user chose them."""

    @property
    def first(self) -> int:
        """The first line."""

    @property
    def last(self) -> int:
        """The last one."""

    def within(self, path: str) -> bool:
        """Return whether these are lines of a file."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A region of code that works for the chosen lines."""

    name: str
    start: Point
    end: Point
    holds: tuple[int, ...]  # instructions of the chosen lines, in it
    others: tuple[int, ...] = ()  # instructions of other lines, in it
    waits: int = 0  # scoreboards that its end waits for, a bit each


@dataclass(frozen=True)
class LineChoice:
    """Finds the ranges of one choice of lines in one kernel.

    Args:
        flow: the kernel.
        origins: its source lines.
        lines: the chosen lines.
        waits: the kernel's waits for loads.
        title: the name of the lines, where that is not file and numbers.
        claimed: instructions that count for their own lines, not for those that they wait for.
    """

    flow: Flow
    origins: AboutLines
    lines: ChosenLines
    waits: Sequence[LoadWait]
    title: str = ""
    claimed: frozenset[int] = frozenset()

    def has(self, line: Line) -> bool:
        """Whether a line is among the chosen ones, or generated from one."""
        return self._named(line) is not None

    def _named(self, line: Line) -> Line | None:
        """Return a line as it was chosen; None where it was not."""
        for each in dict.fromkeys((line, original(line))):
            inside = self.lines.first <= each.number <= self.lines.last
            if inside and self.lines.within(each.file):
                return each
        return None

    @cached_property
    def own(self) -> frozenset[int]:
        """The instructions of the chosen lines: their own, or of functions inlined there."""
        return frozenset(
            at
            for at, instruction in enumerate(self.flow.code.instructions)
            if not instruction.never_runs
            and any(self.has(line) for chain in self._about(at) for line in chain)
        )

    def _about(self, at: int) -> list[tuple[Line, ...]]:
        """Return the lines that an instruction counts for: of a wait, mostly those it awaits."""
        return [self.origins.own(at)] if at in self.claimed else self.origins.about(at)

    @cached_property
    def pieces(self) -> list[Piece]:
        """The ranges, in the order of the code."""
        return list(_numbered(map(self._with_site, self.parts)))

    @cached_property
    def parts(self) -> list[Piece]:
        """The ranges without numbers and calls in their names."""
        found = [self._piece(part) for run in self._runs for part in self._fits(run)]
        held = {at for piece in found for at in piece.holds}
        work = self.own & self.work if found else self.own
        if 2 * len(held & work) < len(work):
            found += [each for each in self._stretches() if not held.intersection(each.holds)]
        return sorted(found, key=lambda piece: piece.start)

    def _with_site(self, piece: Piece) -> Piece:
        """Add a piece's call to its name, where there are several calls."""
        sites = self.sites(piece.holds)
        if len(self.sites(self.own)) < 2 or len(sites) != 1:
            return piece
        (site,) = sites
        return replace(piece, name=f"{piece.name} < {PurePath(site.file).name}:{site.number}")

    def sites(self, members: Iterable[int]) -> set[Line]:
        """Return the lines of the calls by which instructions are inlined."""
        found: set[Line] = set()
        for at in members:
            for chain in self._about(at):
                own = [n for n, line in enumerate(chain) if self.has(line)]
                found |= {*chain[own[-1] + 1 : own[-1] + 2]} if own else set()
        return found

    @property
    def where(self) -> str:
        """The chosen lines, ``"matmul.py:88-96"``."""
        lines = (line for at in sorted(self.own) for line in self._lines(at))
        file = next((line.file for line in lines), "")
        first, last = self.lines.first, self.lines.last
        return f"{PurePath(file).name}:{first}" + (f"-{last}" if last > first else "")

    def message(self, *pieces: Piece) -> str:
        """Return a message on the instructions in a range's pieces: its own, and of other lines."""
        name, places = pieces[0].name, f" in {len(pieces)} places" * (len(pieces) > 1)
        if all(piece.start == piece.end for piece in pieces):
            return f"{name}: one wait{places}"
        held = {at for piece in pieces for at in piece.holds}
        others = [at for piece in pieces for at in piece.others]
        text = f"{name}: {len(held)} of its {len(self.own)} instructions{places}"
        if not others:
            return f"{text}, no other"
        (most, count), *_ = Counter(map(self._line, others)).most_common()
        return f"{text}, {len(others)} others inside" + (f", {count} of {most}" * bool(most))

    def _line(self, at: int) -> str:
        lines = self.origins.own(at)
        return f"{PurePath(lines[0].file).name}:{lines[0].number}" if lines else ""

    def _lines(self, at: int) -> list[Line]:
        chains = self._about(at)
        return [found for chain in chains for line in chain if (found := self._named(line))]

    @cached_property
    def _clusters(self) -> Clusters:
        waits = {wait.at: wait for wait in self.waits}
        return Clusters(self.flow, self.origins.regions, self.own, self.has, waits)

    @cached_property
    def work(self) -> frozenset[int]:
        """All instructions but addresses, moves and jumps."""
        instructions = enumerate(self.flow.code.instructions)
        return frozenset(at for at, each in instructions if work_of(each) not in IDLE)

    @cached_property
    def _runs(self) -> list[list[ChosenLandmark]]:
        """The clusters of landmarks, cut where work of other lines follows a wait."""
        found = []
        for run in self._clusters.runs():
            part = run[:1]
            for event in run[1:]:
                if part[-1].verb != "issue" and self._others_work(part[-1], event):
                    found.append(part)
                    part = []
                part.append(event)
            found.append(part)
        return found

    def _others_work(self, before: ChosenLandmark, after: ChosenLandmark) -> bool:
        between = range(before.members[-1] + 1, after.members[0])
        mine = sum(at in self.own for at in between)
        return sum(at in self.work and at not in self.own for at in between) > mine

    # From clusters of landmarks to ranges.

    def _fits(self, events: list[ChosenLandmark]) -> Iterator[list[ChosenLandmark]]:
        """Yield a cluster if it can be a range, or its parts in single basic blocks."""
        if self._holds(events):
            yield events
        elif len(events) > 1:
            blocks = groupby(events, lambda event: self.origins.regions.block(event.start))
            parts = [list(part) for _, part in blocks]
            if len(parts) == 1:
                parts = [[event] for event in events]
            yield from (part for part in parts if self._holds(part))

    def _holds(self, events: list[ChosenLandmark]) -> bool:
        """Whether a cluster is a single-entry single-exit region with no other line's landmark."""
        start, end = events[0].start, events[-1].end
        if self.origins.regions.why_not(start, end):
            return False
        known = {at for event in events for at in event.members}
        return not self.others_anchors(start, end, known)

    def others_anchors(self, start: Point, end: Point, known: Container[int]) -> bool:
        """Whether there are landmarks between two points beside those that are known."""
        inside = self.origins.regions.between(start, end)
        return any(at not in known and self._clusters.landmark(at) for at in inside)

    def _piece(self, events: list[ChosenLandmark]) -> Piece:
        start, end = events[0].start, events[-1].end
        name = f"{self._what(events)} @{self.where}"
        if start == end:
            return Piece(name, start, end, events[-1].members, (), events[-1].waits)
        return self.piece(name, start, end, events[-1].waits)

    def piece(self, name: str, start: Point, end: Point, waits: int = 0) -> Piece:
        """Return the region between two points, as a piece."""
        never = self.flow.code.instructions
        inside = [at for at in self.origins.regions.between(start, end) if not never[at].never_runs]
        mine = tuple(at for at in inside if at in self.own)
        others = tuple(at for at in inside if at not in self.own)
        return Piece(name, start, end, mine, others, waits)

    def _what(self, events: list[ChosenLandmark]) -> str:
        verbs = [event.verb for event in events]
        if verbs == ["loop"]:
            return self.title or "loop"
        if set(verbs) == {"wait", "barrier"}:
            verbs = ["wait"]
        does = f"{verbs[0]} to {verbs[-1]}" if len(set(verbs)) > 1 else verbs[0]
        if does == "issue" and self._for_later(events):
            does = "issue for a later iteration"
        words = self.title or self._words(events) or self._words(self._all)
        return f"{words}: {does}" if words else does

    @cached_property
    def _all(self) -> list[ChosenLandmark]:
        return [event for run in self._runs for event in run]

    def _words(self, events: Iterable[ChosenLandmark]) -> str:
        words = dict.fromkeys(
            word for event in events for kind in event.kinds if (word := self._word(event, kind))
        )
        return " and ".join(words)

    def _word(self, event: ChosenLandmark, kind: Landmark) -> str:
        if kind is Landmark.COPY_WAIT:
            return _WAITS.get(counted_wait(self.flow, event.members[0]), "")
        if kind is Landmark.MBARRIER_WAIT:
            return "load" if event.members[0] in self.origins.awaited else "mbarrier"
        return _WORDS.get(kind, "")

    def _for_later(self, events: list[ChosenLandmark]) -> bool:
        """Whether the issued operations are waited for in a later iteration of the loop."""
        regions = self.origins.regions
        loop = regions.loop(self.flow.graph.block(events[0].members[0]))
        waits = [
            event.members[0]
            for event in self._all
            if event.verb == "wait"
            and regions.loop(self.flow.graph.block(event.members[0])) == loop
        ]
        ahead = all(kind in _AHEAD for event in events for kind in event.kinds)
        return ahead and loop is not None and bool(waits) and max(waits) < events[0].members[0]

    # Ranges of lines without landmarks.

    def _stretches(self) -> Iterator[Piece]:
        """Yield the best region of each loop; of those, the ones that hold enough."""
        best: list[tuple[int, Piece]] = []
        for region in self._clusters.open:
            pieces = [piece for gap in self._gaps(region) for piece in self._densest(gap)]
            if pieces:
                piece = max(pieces, key=lambda piece: len(piece.holds))
                best.append((len(piece.holds) * _DEEP ** self._depth(region), piece))
        most = max((weight for weight, _ in best), default=0)
        yield from (piece for weight, piece in best if _ENOUGH * weight >= most)

    def _depth(self, region: int | None) -> int:
        depth = 0
        while region is not None:
            region, depth = self.origins.regions.parent(region), depth + 1
        return depth

    def _gaps(self, region: int | None) -> Iterator[list[int]]:
        """Yield the instructions between landmarks, and between waits for loads."""
        gap: list[int] = []
        for at, loop in self._clusters.items(region):
            body = [at] if loop is None else self._clusters.instructions(loop)
            if at in self._clusters.waits or any(map(self._clusters.landmark, body)):
                yield gap
                gap = []
            else:
                gap += body
        yield gap

    def _densest(self, gap: list[int]) -> Iterator[Piece]:
        """Yield the part of a gap with most instructions of the lines and few of others."""
        run = self._run(gap)
        if run and not self.origins.regions.why_not(*_ends(run)):
            yield self.piece(self.title or self.where, *_ends(run))
        elif run:
            for _, part in groupby(gap, self.flow.graph.block):
                run = self._run(list(part))
                if run and not self.origins.regions.why_not(*_ends(run)):
                    yield self.piece(self.title or self.where, *_ends(run))

    def _run(self, gap: list[int]) -> list[int]:
        """Return the run with the best score: 2 for each instruction of the lines, else -1."""
        leaving = self.flow.graph.jumps.leaving
        best = (0, 0, 0)
        score = first = 0
        for n, at in enumerate(gap):
            if score <= 0:
                score, first = 0, n
            score += 2 if at in self.own and at not in leaving else -1
            best = max(best, (score, -first, n + 1))
        return gap[-best[1] : best[2]] if best[0] else []


def _ends(run: list[int]) -> tuple[Point, Point]:
    return Point(run[0]), Point(run[-1], after=True)


def _numbered(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Number pieces of one name, by their order in the code."""
    taken: Counter[str] = Counter()
    for piece in pieces:
        taken[piece.name] += 1
        many = taken[piece.name] > 1
        yield replace(piece, name=f"{piece.name} ({taken[piece.name]})") if many else piece
