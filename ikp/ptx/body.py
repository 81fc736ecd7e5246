"""One kernel of a PTX text: its instructions, where they stand, and where they come from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ikp.errors import PatchError
from ikp.machine.sass import Code, Instruction
from ikp.ptx.counted_lines import without_counted_lines
from ikp.ptx.instructions import Instruction as Parsed
from ikp.ptx.instructions import parse
from ikp.ptx.locations import Locations
from ikp.ptx.statements import Kind, Statement, joined, statements

_ENTRY = re.compile(r"(?:\.(?:visible|weak|extern)\s+)*\.entry\s+([\w$%]+)")
_BLOCK = re.compile(r"\.reqntid\s+(\d+)\s*(?:,\s*(\d+)\s*)?(?:,\s*(\d+)\s*)?")
_TARGET = re.compile(r"\.target\s+(\w+)")
JUMP = "bra"


@dataclass(frozen=True)
class Body:
    """A kernel in its module.

    ``code`` has its instructions, in the order of the text; the target of a jump is a number there,
    as all labels are. ``at`` says which statement each instruction is.
    """

    parts: Sequence[Statement]  # of the whole module
    head: int  # the statement with the kernel's name
    end: int  # ... and with the brace that closes it
    code: Code
    at: tuple[int, ...]

    @classmethod
    def read(cls, ptx: str, name: str) -> Body:
        """Find a kernel.

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
        """Whether the kernel says itself how many registers a thread may have."""
        return ".maxnreg" in self.parts[self.head].code

    def location(self, at: int) -> Statement | None:
        """Return the ``.loc`` that holds for a statement, if any does."""
        before = (self.parts[each] for each in range(at, self.head, -1))
        return next((each for each in before if each.kind is Kind.LOCATION), None)

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
    heads = [at for at, each in enumerate(parts) if each.kind is Kind.HEAD]
    named = {found[1]: at for at in heads if (found := _ENTRY.match(parts[at].code))}
    if name not in named:
        there = ", ".join(named) or "none"
        raise PatchError(f"the PTX has no kernel {name}; its kernels: {there}.")
    return named[name]


def _end(parts: Sequence[Statement], head: int) -> int:
    depth = 0
    for at in range(head + 1, len(parts)):
        depth += {Kind.OPEN: 1, Kind.CLOSE: -1}.get(parts[at].kind, 0)
        if parts[at].kind is Kind.CLOSE and depth == 0:
            return at
    raise PatchError("the PTX ends in the middle of a kernel.")


def _read(
    parts: Sequence[Statement], head: int, end: int, name: str
) -> tuple[tuple[int, ...], Code]:
    """Return the statements that are instructions, and these as code."""
    lines = Locations(parts, head, end)
    at: list[int] = []
    parsed: list[Parsed] = []
    inside: list[tuple[int, ...]] = []  # the scopes around each instruction, outer ones first
    labels: dict[tuple[int, str], int] = {}  # (scope, name) -> the instruction that follows
    scopes: list[int] = []
    for number in range(head + 1, end):
        part = parts[number]
        if part.kind is Kind.OPEN:
            scopes.append(number)
        elif part.kind is Kind.CLOSE:
            scopes.pop()
        elif part.kind is Kind.LABEL:
            labels[scopes[-1], part.code.rstrip(": ")] = len(at)
        elif part.kind is Kind.INSTRUCTION:
            at.append(number)
            parsed.append(_parsed(part, name))
            inside.append(tuple(scopes))
    made = [
        Instruction(index, *_words(each, around, labels, len(at), name), lines.of(number))
        for index, (each, around, number) in enumerate(zip(parsed, inside, at, strict=True))
    ]
    known = {str(to): to for to in labels.values()}
    return tuple(at), Code(name, _target(parts), tuple(made), known)


def _target(parts: Sequence[Statement]) -> str:
    found = (_TARGET.match(each.code) for each in parts if each.kind is Kind.DIRECTIVE)
    return next((each[1] for each in found if each), "")


def _parsed(part: Statement, name: str) -> Parsed:
    made = parse(part.code)
    if made is None:
        raise PatchError(f"{name} has a statement that is not known: {part.code[:80]!r}.")
    if made.name == "brx":
        raise PatchError(f"{name} jumps by a table (brx), whose ways are not known here.")
    if any("ikp_" in each for each in made.operands):
        raise PatchError(f"{name} calls ikp.init itself: it records without being marked.")
    return made


def _words(
    made: Parsed,
    around: tuple[int, ...],
    labels: dict[tuple[int, str], int],
    count: int,
    name: str,
) -> tuple[str, str, str]:
    """Return guard, opcode and operands; a jump's is where it leads."""
    guard = ("!" if made.negated else "") + made.guard
    if made.name != JUMP:
        return guard, made.op, ", ".join(made.operands)
    label = made.operands[0]
    found = (labels[scope, label] for scope in reversed(around) if (scope, label) in labels)
    to = next(found, None)
    if to is None or to >= count:
        raise PatchError(f"{name} jumps to {label}, which is not in it.")
    return guard, made.op, str(to)
