"""One kernel of a PTX text: its instructions as code, their source lines, and its control flow.

The lines are from ``.file``, ``.loc`` and ``inlined_at``. Jumps, basic blocks and regions are
subclasses of those of SASS.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePath
from typing import TypeVar

from ikp.errors import PatchError
from ikp.probes.points.sese_regions import Regions
from ikp.ptx.instructions import PtxInstruction as Parsed
from ikp.ptx.instructions import (
    Statement,
    StatementKind,
    joined,
    parse,
    statements,
    without_counted_lines,
)
from ikp.sass.control_flow.flow import Flow
from ikp.sass.control_flow.graph import Graph, Jumps, inverse
from ikp.sass.disassembly.listing import Code, Instruction, Line

_FILE = re.compile(r'\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"')
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_INLINED = re.compile(r"inlined_at\s+(\d+)\s+(\d+)\s+(\d+)")
_COMMENT = re.compile(r"//\s*([^\n]*@\[[^\n]*)")
_PLACE = re.compile(r"([^\s:\[]+):(\d+):\d+")
_DEEPEST = 32

_Place = tuple[int, int, int]
"""The number of a file, line and column."""


class Locations:
    """The source lines of one kernel's instructions.

    ``inlined_at`` has the source location of the call of a line's function; that location may have
    an ``inlined_at`` itself. Triton 3.6 writes the whole chain in a comment instead.
    """

    def __init__(self, parts: Sequence[Statement], head: int, end: int) -> None:
        """Read the files of a module, and the locations between two of its statements."""
        self._files = _files_of(parts)
        self._calls: dict[_Place, _Place] = {}
        self._chains: dict[int, tuple[Line, ...]] = {}
        located = [at for at in range(head, end) if parts[at].kind is StatementKind.LOCATION]
        for at in located:
            if (found := _INLINED.search(parts[at].code)) and (own := _LOC.match(parts[at].code)):
                self._calls[_location(own)] = _location(found)
        current: tuple[Line, ...] = ()
        for at in range(head, end):
            if parts[at].kind is StatementKind.LOCATION:
                current = self._chain(parts[at])
            self._chains[at] = current

    def of(self, at: int) -> tuple[Line, ...]:
        """Return the lines of a statement, the innermost function's first; none where unknown."""
        return self._chains.get(at, ())

    def _chain(self, location: Statement) -> tuple[Line, ...]:
        if commented := _COMMENT.search(location.text):
            return self._of_comment(commented[1])
        own = _LOC.match(location.code)
        if own is None or not int(own[2]):
            return ()  # line 0: the compiler doesn't say
        places = [_location(own)]
        called = _INLINED.search(location.code)
        following = _location(called) if called else None
        while following is not None and len(places) < _DEEPEST:
            places.append(following)
            following = self._calls.get(following)
        return tuple(Line(self._files.get(file, ""), number) for file, number, _ in places)

    def _of_comment(self, text: str) -> tuple[Line, ...]:
        """Return the lines of ``k.py:44:26 @[ k.py:63:60 ]``, with the files' whole paths."""
        paths = {PurePath(path).name: path for path in self._files.values()}
        return tuple(
            Line(paths.get(name, name), int(number))
            for name, number in _PLACE.findall(text)
            if int(number)
        )


def _location(found: re.Match[str]) -> _Place:
    return int(found[1]), int(found[2]), int(found[3])


_ENTRY = re.compile(r"(?:\.(?:visible|weak|extern)\s+)*\.entry\s+([\w$%]+)")
_BLOCK = re.compile(r"\.reqntid\s+(\d+)\s*(?:,\s*(\d+)\s*)?(?:,\s*(\d+)\s*)?")
_TARGET = re.compile(r"\.target\s+(\w+)")
_TABLE = re.compile(r"([\w$%]+) ?: ?\.branchtargets (.+?) ?;")
JUMP = "bra"
TABLE_JUMP = "brx"

_Named = TypeVar("_Named")


@dataclass(slots=True)
class _ScopedNames:
    """Labels and branch tables, each by its scope and name."""

    labels: dict[tuple[int, str], int] = field(default_factory=dict)  # the instruction that follows
    tables: dict[tuple[int, str], tuple[str, ...]] = field(default_factory=dict)  # their labels


@dataclass(frozen=True)
class Body:
    """A kernel in its module.

    ``code`` has its instructions, in the order of the text; the target of a jump is a number there,
    as all labels are, and the targets of a jump by a table replace the table's name. ``at`` has the
    statement of each instruction.
    """

    parts: Sequence[Statement]  # of the whole module
    head: int  # the statement with the kernel's name
    end: int  # ... and with the brace that closes it
    code: Code
    at: tuple[int, ...]

    @classmethod
    def read(cls, ptx: str, name: str) -> Body:
        """Return a kernel of a PTX text.

        Raises:
            PatchError: it is not there, or not known well enough.
        """
        parts = without_counted_lines(statements(ptx))
        head = _head(parts, name)
        end = _end(parts, head)
        at, code = _read(parts, head, end, name)
        if not at:
            raise PatchError(f"the PTX of {name} has no instructions.")
        return cls(parts, head, end, code, at)

    @property
    def block(self) -> tuple[int, int, int] | None:
        """How many threads a block has; None where the kernel doesn't say."""
        found = _BLOCK.search(self.parts[self.head].code)
        return (int(found[1]), int(found[2] or 1), int(found[3] or 1)) if found else None

    @property
    def limits_registers(self) -> bool:
        """Whether the kernel has a ``.maxnreg`` directive."""
        return ".maxnreg" in self.parts[self.head].code

    def location(self, at: int) -> Statement | None:
        """Return the ``.loc`` that holds for a statement, if any does.

        One with line 0 names no line: the assembler goes on with the last one that does.
        """
        before = (self.parts[each] for each in range(at, self.head, -1))
        locations = (each for each in before if each.kind is StatementKind.LOCATION)
        return next((each for each in locations if each.code.split()[2] != "0"), None)

    def with_head(self, directive: str) -> Body:
        """Return the same kernel with one more directive."""
        head = self.parts[self.head]
        changed = replace(head, text=f"{head.text.rstrip()}\n{directive}\n")
        return replace(
            self, parts=[*self.parts[: self.head], changed, *self.parts[self.head + 1 :]]
        )

    @property
    def text(self) -> str:
        """The module's text."""
        return joined(self.parts)


def _head(parts: Sequence[Statement], name: str) -> int:
    heads = [at for at, each in enumerate(parts) if each.kind is StatementKind.HEAD]
    named = {found[1]: at for at in heads if (found := _ENTRY.match(parts[at].code))}
    if name not in named:
        there = ", ".join(named) or "none"
        raise PatchError(f"the PTX has no kernel {name}; its kernels: {there}.")
    return named[name]


def _end(parts: Sequence[Statement], head: int) -> int:
    depth = 0
    for at in range(head + 1, len(parts)):
        depth += {StatementKind.OPEN: 1, StatementKind.CLOSE: -1}.get(parts[at].kind, 0)
        if parts[at].kind is StatementKind.CLOSE and depth == 0:
            return at
    raise PatchError("the PTX ends in the middle of a kernel.")


def _read(
    parts: Sequence[Statement], head: int, end: int, name: str
) -> tuple[tuple[int, ...], Code]:
    """Return the indices of the statements that are instructions, and their code."""
    lines = Locations(parts, head, end)
    at: list[int] = []
    parsed: list[Parsed] = []
    inside: list[tuple[int, ...]] = []  # the scopes around each instruction, outer ones first
    names = _ScopedNames()
    scopes: list[int] = []
    for number in range(head + 1, end):
        part = parts[number]
        if part.kind is StatementKind.OPEN:
            scopes.append(number)
        elif part.kind is StatementKind.CLOSE:
            scopes.pop()
        elif part.kind is StatementKind.LABEL:
            names.labels[scopes[-1], part.code.rstrip(": ")] = len(at)
        elif part.kind is StatementKind.DIRECTIVE and (table := _TABLE.fullmatch(part.code)):
            names.tables[scopes[-1], table[1]] = tuple(table[2].replace(" ", "").split(","))
        elif part.kind is StatementKind.INSTRUCTION:
            at.append(number)
            parsed.append(_parsed(part, name))
            inside.append(tuple(scopes))
    made = [
        Instruction(index, *_words(each, around, names, len(at), name), lines.of(number))
        for index, (each, around, number) in enumerate(zip(parsed, inside, at, strict=True))
    ]
    known = {str(to): to for to in names.labels.values()}
    return tuple(at), Code(name, _target(parts), tuple(made), known)


def _target(parts: Sequence[Statement]) -> str:
    found = (_TARGET.match(each.code) for each in parts if each.kind is StatementKind.DIRECTIVE)
    return next((each[1] for each in found if each), "")


def _parsed(part: Statement, name: str) -> Parsed:
    made = parse(part.code)
    if made is None:
        raise PatchError(f"{name} has a statement that is not known: {part.code[:80]!r}.")
    if any("ikp_" in each for each in made.operands):
        raise PatchError(f"{name} calls ikp.init itself: it records without being marked.")
    return made


def _words(
    made: Parsed, around: tuple[int, ...], names: _ScopedNames, count: int, name: str
) -> tuple[str, str, str]:
    """Return guard, opcode and operands; a jump's operands are the numbers of its targets."""
    guard = ("!" if made.negated else "") + made.guard
    operands = list(made.operands)
    if made.name in (JUMP, TABLE_JUMP):
        *index, label = operands
        table = _found(names.tables, label, around) if index else (label,)
        if table is None:
            raise PatchError(f"{name} jumps by a table {label}, which is not in it.")
        operands = [*index, *(_place(to, around, names, count, name) for to in table)]
    return guard, made.op, ", ".join(operands)


def _place(label: str, around: tuple[int, ...], names: _ScopedNames, count: int, name: str) -> str:
    """Return the number of the instruction behind a label."""
    to = _found(names.labels, label, around)
    if to is None or to >= count:
        raise PatchError(f"{name} jumps to {label}, which is not in it.")
    return str(to)


def _found(
    known: Mapping[tuple[int, str], _Named], name: str, around: Sequence[int]
) -> _Named | None:
    """Return the value of a name in the innermost scope that has it."""
    scopes = (scope for scope in reversed(around) if (scope, name) in known)
    inner = next(scopes, None)
    return None if inner is None else known[inner, name]


ENDS = ("ret", "exit")
"""Operations that end a thread: its header is stored before. Before a trap, none is stored."""
_LEAVING = (JUMP, TABLE_JUMP, "trap", *ENDS)


@dataclass(frozen=True)
class Branches(Jumps):
    """The jumps of one kernel: PTX names the targets of each."""

    @cached_property
    def leaving(self) -> dict[int, list[tuple[int, str]]]:
        """Jump -> (index, guard) of what may run next."""
        found: dict[int, list[tuple[int, str]]] = {}
        for at, each in enumerate(self.code.instructions):
            if each.op in _LEAVING:
                falls = [(at + 1, inverse(each.guard))] if each.guard else []
                found[at] = [*((to, each.guard) for to in _targets(each)), *falls]
        return found

    @cached_property
    def calls(self) -> dict[int, list[int]]:
        """Empty: a function is another body, and a call goes on to the next instruction."""
        return {}

    def ends(self, at: int) -> bool:
        """Whether a thread may end at an instruction."""
        return self.code.instructions[at].op in (*ENDS, "trap")


def _targets(instruction: Instruction) -> list[int]:
    """Return the targets of a jump; none for other instructions."""
    if instruction.op == JUMP:
        return [int(instruction.rest)]
    if instruction.op == TABLE_JUMP:
        return sorted({int(to) for to in instruction.operands[1:]})
    return []


@dataclass(frozen=True)
class PtxGraph(Graph):
    """The graph of one kernel's basic blocks."""

    @cached_property
    def jumps(self) -> Jumps:
        """The jumps and other ends of blocks."""
        return Branches(self.code)


@dataclass(frozen=True)
class PtxFlow(Flow):
    """The control flow of one kernel."""

    @cached_property
    def graph(self) -> Graph:
        """The basic blocks."""
        return PtxGraph(self.code)


@dataclass(frozen=True)
class Ways(Regions):
    """Regions of one kernel for a single thread, with no divergence."""

    @cached_property
    def divergent(self) -> set[int]:
        """Empty: a record is of a warp's first thread, wherever the others are meanwhile."""
        return set()


def _files_of(parts: Sequence[Statement]) -> dict[int, str]:
    """Return the source files that a module names, by number."""
    directives = (each.code for each in parts if each.kind is StatementKind.DIRECTIVE)
    return {int(found[1]): found[2] for code in directives if (found := _FILE.match(code))}
