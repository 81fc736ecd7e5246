"""Probe regions of the lines and functions that a user chose, and of the ranges that a kernel's
source names.

Where there are none, messages say why: on lines or functions that have no code in a kernel, they
name those that have.

A range in source means all code from its first line to its last, calls included. So it is one
region if possible, for each call of its function. The longest region is taken that holds nearly all
its code, no landmark of other lines, and less of their work than of its own. A compiler may have
spread the code, or unrolled the loop around it. Then each cluster of landmarks is a piece of its
own, as with chosen lines.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import PurePath

from ikp.probes.points.chosen_lines import ChosenLines, LineChoice, Piece
from ikp.probes.points.lines_of import AboutLines
from ikp.probes.points.naming import is_library, some
from ikp.probes.points.sese_regions import Point
from ikp.probes.points.source_ranges import NamedRange, Unpaired, written
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.outstanding import LoadWait
from ikp.sass.disassembly.listing import Code, Line
from ikp.sass.disassembly.sources import syntax

_SHOWN = 4
"""How many lines a message names."""


@dataclass(frozen=True, slots=True)
class FunctionLines:
    """The lines of a function."""

    name: str
    file: str
    first: int
    last: int

    def within(self, path: str) -> bool:
        """Return whether the function is in a file."""
        return path == self.file


def files(code: Code) -> dict[str, Counter[int]]:
    """Return how many instructions each line of each file has."""
    found: dict[str, Counter[int]] = {}
    for instruction in code.instructions:
        for line in instruction.lines if not instruction.never_runs else ():
            found.setdefault(line.file, Counter())[line.number] += 1
    return found


def functions(code: Code, name: str) -> list[FunctionLines]:
    """Return the functions of a name in the files that a kernel's code comes from."""
    return [
        FunctionLines(name, file, node.lineno, node.end_lineno or node.lineno)
        for file in files(code)
        for node in _functions(file)
        if node.name == name
    ]


def no_function(code: Code, name: str) -> str:
    """Return a message on an unknown function, with the names of those that there are."""
    known = sorted(
        {
            node.name
            for file, numbers in files(code).items()
            if not is_library(file)
            for node in _functions(file)
            if any(node.lineno <= number <= (node.end_lineno or 0) for number in numbers)
        }
    )
    there = f"Its code is of {', '.join(known)}." if known else "Its source is not there."
    return f"no code of {code.name} comes from a function {name}. {there}"


def no_code(code: Code, path: str, first: int, last: int, matching: Iterable[str]) -> str:
    """Return a message on why lines of a file have no code in a kernel.

    Args:
        code: the kernel.
        path: the lines, as they were chosen: ``"matmul.py:88-96"``.
        first: the first line.
        last: the last one.
        matching: the kernel's files that they may be of.
    """
    if not code.has_lines:
        return (
            f"the machine code of {code.name} has no line numbers, so no code of {path} can be "
            "found: compile it with them (in Triton: TRITON_DISABLE_LINE_INFO=0)."
        )
    there = files(code)
    found = list(matching)
    if not found:
        own = [file for file in there if not is_library(file)] or [*there]
        shown = _spans(own, there)
        return f"no code of {code.name} comes from {path}: it comes from {shown}."
    span = f"{first}" if first == last else f"{first}-{last}"
    path = f"{PurePath(found[0]).name}:{span}"
    merged = [text for file in found if (text := _merged(file, first, last, there[file]))]
    if merged:
        return f"{path} has no instructions of its own in {code.name}: {merged[0]}."
    shown = _spans(found, there)
    return f"{path} has no instructions in {code.name}, whose code comes from {shown}."


def _spans(some: Iterable[str], there: Mapping[str, Counter[int]]) -> str:
    """Return the lines of some files that have code, in words."""
    return ", ".join(_span(file, there[file]) for file in some)


def _span(file: str, numbers: Counter[int]) -> str:
    return f"{PurePath(file).name}:{min(numbers)}-{max(numbers)}"


def _made_and_read(around: ast.AST, chosen: range) -> tuple[set[str], set[int]]:
    """Return the variables that chosen lines set, and the other lines that read these."""
    names = [each for each in ast.walk(around) if isinstance(each, ast.Name)]
    made = {each.id for each in names if isinstance(each.ctx, ast.Store) and each.lineno in chosen}
    reads = (each for each in names if isinstance(each.ctx, ast.Load) and each.id in made)
    return made, {each.lineno for each in reads}.difference(chosen)


def _merged(file: str, first: int, last: int, numbers: Counter[int]) -> str:
    """Return which lines use the variables that the chosen ones set; "" where none is found."""
    around = _around(file, first)
    if around is None:
        return ""
    made, reading = _made_and_read(around, range(first, last + 1))
    users = sorted(line for line in reading if numbers[line])
    if not users:
        return ""
    shown = ", ".join(f"{n} ({numbers[n]} instructions)" for n in users[:_SHOWN])
    more = f" and {len(users) - _SHOWN} more" if len(users) > _SHOWN else ""
    return (
        f"what it computes is part of the code of the lines that use {', '.join(sorted(made))}: "
        f"{shown}{more}"
    )


def _around(file: str, number: int) -> ast.FunctionDef | None:
    inner = [n for n in _functions(file) if n.lineno <= number <= (n.end_lineno or 0)]
    return max(inner, key=lambda node: node.lineno, default=None)


@lru_cache(maxsize=64)
def _functions(file: str) -> Sequence[ast.FunctionDef]:
    nodes = ast.walk(tree) if (tree := syntax(file)) else ()
    return [node for node in nodes if isinstance(node, ast.FunctionDef)]


@dataclass(frozen=True, slots=True)
class Choice:
    """One range with a message on what it holds; or none, with the reason."""

    piece: Piece | None
    message: str


def choices(
    flow: Flow,
    origins: AboutLines,
    waits: Sequence[LoadWait],
    lines: Sequence[ChosenLines],
    names: Sequence[str],
) -> Iterator[Choice]:
    """Yield the ranges of chosen lines, then those of functions.

    Args:
        flow: the kernel.
        origins: its source lines.
        waits: its waits for loads.
        lines: the chosen lines.
        names: the names of chosen functions.
    """
    code = flow.code
    for span in lines:
        matching = [file for file in files(code) if span.within(file)]
        why = no_code(code, str(span), span.first, span.last, matching)
        yield from _of(LineChoice(flow, origins, span, waits), why)
    for name in names:
        bodies = functions(code, name)
        made = [LineChoice(flow, origins, body, waits, f"{name}()") for body in bodies]
        with_code = [each for each in made if each.own]
        for each in with_code:
            yield from _of(each, "")
        if not with_code:
            yield Choice(None, no_function(code, name))


def _of(chosen: LineChoice, why: str) -> Iterator[Choice]:
    if not chosen.own:
        yield Choice(None, why)
    elif not chosen.pieces:
        yield Choice(None, f"{chosen.where} has no region that is entered and left at one point.")
    for piece in chosen.pieces if chosen.own else ():
        yield Choice(piece, chosen.message(piece))


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

    def _parted(
        self, parts: list[Piece], members: Iterable[int]
    ) -> tuple[list[Piece], list[Piece]]:
        """Return the parts that are about some instructions, and the others."""
        some = {*members}
        mine = [each for each in parts if not self._about(each).isdisjoint(some)]
        return mine, [each for each in parts if each not in mine]

    def _of_call(self, members: list[int], parts: list[Piece]) -> tuple[list[Piece], list[Piece]]:
        """Return the regions of one call of the range's function, and the parts of other calls."""
        mine, others = self._parted(parts, members)
        if whole := self._whole(members):
            _, rest = self._parted(mine, whole.holds)
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
