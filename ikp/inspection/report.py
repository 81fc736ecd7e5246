"""The report of ``ikp inspect`` as dataclasses and JSON: kernels, ranges, copies, discrepancies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypedDict

from ikp.inspection._source import Source
from ikp.json_schema import headed
from ikp.printing import Printed, as_json
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.opcodes import Work, count, work_of

VERSION: Final = 2
"""Version of what :meth:`Report.to_dict` returns."""


@dataclass(frozen=True)
class Copy:
    """One record in the machine code. Unrolled loops and inlined helpers hold a range's many times.

    Addresses are bytes from the start of the kernel.
    """

    starts: tuple[int, ...]  # clock reads that its start can come from: several, if it was open
    ends: tuple[int, ...]  # before a loop, say
    store: int
    instructions: tuple[Instruction, ...]
    """Everything on any path from a start to its end, but for ikp's own reads and stores."""
    named: int | None = None
    """With records in finished machine code: how many of them, or of the loads that it waits for,
    are what its name says. None where it says nothing of the kind, as of a loop."""

    @cached_property
    def counts(self) -> Counter[Work]:
        """How many instructions of each kind it holds. Those in loops count once."""
        return count(self.instructions)


@dataclass(frozen=True)
class CodeRange:
    """A range or instant of a kernel's source, and what its records hold."""

    name: str
    kind: str  # "range" or "instant"
    source: Source | None
    copies: tuple[Copy, ...]

    def counts(self, work: Work) -> tuple[int, int]:
        """Return the fewest and the most instructions of a kind that a copy holds."""
        numbers = [copy.counts[work] for copy in self.copies]
        return min(numbers), max(numbers)

    def holds(self, *kinds: Work) -> bool:
        """Whether any copy holds an instruction of one of these kinds."""
        return any(copy.counts[work] for copy in self.copies for work in kinds)

    @property
    def label(self) -> str:
        """The name, and the lines where they are known."""
        return f'"{self.name}" ({self.source})' if self.source else f'"{self.name}"'


@dataclass(frozen=True)
class InstructionGroup:
    """Instructions of one kind at one place."""

    work: Work
    place: str  # "in the loop at gemm.py:38, after \"dot\""
    inside: tuple[str, ...]  # names of the ranges that hold them; empty: they are in none
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True)
class Discrepancy:
    """A range that isn't what its name or its lines promise."""

    range: CodeRange  # the one that breaks its promise
    message: str
    elsewhere: tuple[InstructionGroup, ...] = ()  # instructions of its lines, or of that kind
    lost: str = ""  # the same in one line, where sessions say it unasked

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class KernelReport:
    """The findings for one kernel."""

    name: str
    target: str
    origin: str  # the file, or the kind of object that it comes from
    instructions: tuple[Instruction, ...]
    ranges: tuple[CodeRange, ...]
    outside: tuple[InstructionGroup, ...]  # what is in no range, kind by kind, place by place
    warnings: tuple[Discrepancy, ...]
    problems: tuple[str, ...]  # what this report doesn't know
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> CodeRange:
        """Return the first range or instant of this name.

        Raises:
            KeyError: there is none.
        """
        for found in self.ranges:
            if found.name == name:
                return found
        raise KeyError(f"no range {name!r} in {self.name}: {sorted({r.name for r in self.ranges})}")


@dataclass(frozen=True)
class Report(Printed):
    """What the ranges of one kernel or several hold; prints as a table.

    Iterating yields the kernels. ``report["load"]`` is the first range of that name.
    """

    kernels: tuple[KernelReport, ...]

    def __iter__(self) -> Iterator[KernelReport]:
        return iter(self.kernels)

    def __len__(self) -> int:
        return len(self.kernels)

    def __getitem__(self, name: str) -> CodeRange:
        """Return the first range or instant of this name in any kernel.

        Raises:
            KeyError: there is none.
        """
        for kernel in self.kernels:
            for found in kernel.ranges:
                if found.name == name:
                    return found
        names = sorted({r.name for kernel in self.kernels for r in kernel.ranges})
        raise KeyError(f"no range {name!r}: there are {names}")

    @property
    def warnings(self) -> tuple[Discrepancy, ...]:
        """The warnings of all kernels."""
        return tuple(warning for kernel in self.kernels for warning in kernel.warnings)

    def to_dict(self) -> dict[str, Any]:
        """Return the whole report as JSON's types; addresses in bytes from the kernel's start."""
        return headed("inspect", VERSION, {"kernels": [_kernel_dict(kernel) for kernel in self]})

    def to_json(self) -> str:
        """Return the whole report as indented JSON."""
        return as_json(self.to_dict())


class SourceJson(TypedDict):
    """Lines of a file, and the calls in them, as JSON."""

    file: str
    first: int
    last: int
    calls: list[str]


class InstructionJson(TypedDict):
    """A machine instruction as JSON."""

    address: int
    text: str
    work: str
    file: str | None
    line: int | None


class CopyJson(TypedDict):
    """A ``Copy`` as JSON."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    store: int
    named: int | None
    counts: dict[str, int]
    instructions: list[InstructionJson]


class RangeJson(TypedDict):
    """A ``CodeRange`` as JSON."""

    name: str
    kind: str
    source: SourceJson | None
    copies: list[CopyJson]


class GroupJson(TypedDict):
    """An ``InstructionGroup`` as JSON."""

    work: str
    place: str
    ranges: tuple[str, ...]
    instructions: list[InstructionJson]


class WarningJson(TypedDict):
    """A ``Discrepancy`` as JSON."""

    range: str
    message: str
    elsewhere: list[GroupJson]


class KernelJson(TypedDict):
    """A ``KernelReport`` as JSON."""

    name: str
    target: str
    origin: str
    instructions: int
    ranges: list[RangeJson]
    in_no_range: list[GroupJson]
    warnings: list[WarningJson]
    unknown: list[str]
    notes: list[str]


class ReportJson(TypedDict):
    """The JSON of ``ikp inspect``, without the head."""

    kernels: list[KernelJson]


def _kernel_dict(kernel: KernelReport) -> KernelJson:
    return {
        "name": kernel.name,
        "target": kernel.target,
        "origin": kernel.origin,
        "instructions": len(kernel.instructions),
        "ranges": [_range_dict(found) for found in kernel.ranges],
        "in_no_range": [_group_dict(group) for group in kernel.outside],
        "warnings": [
            {
                "range": warning.range.name,
                "message": warning.message,
                "elsewhere": [_group_dict(group) for group in warning.elsewhere],
            }
            for warning in kernel.warnings
        ],
        "unknown": list(kernel.problems),
        "notes": list(kernel.notes),
    }


def _range_dict(found: CodeRange) -> RangeJson:
    source: SourceJson | None = None
    if found.source:
        source = {
            "file": found.source.file,
            "first": found.source.first,
            "last": found.source.last,
            "calls": sorted(found.source.calls),
        }
    return {
        "name": found.name,
        "kind": found.kind,
        "source": source,
        "copies": [
            {
                "starts": copy.starts,
                "ends": copy.ends,
                "store": copy.store,
                "named": copy.named,
                "counts": {w.value: copy.counts[w] for w in Work if copy.counts[w]},
                "instructions": [_instruction_dict(i) for i in copy.instructions],
            }
            for copy in found.copies
        ],
    }


def _group_dict(group: InstructionGroup) -> GroupJson:
    return {
        "work": group.work.value,
        "place": group.place,
        "ranges": group.inside,
        "instructions": [_instruction_dict(i) for i in group.instructions],
    }


def _instruction_dict(instruction: Instruction) -> InstructionJson:
    line = instruction.lines[0] if instruction.lines else None
    return {
        "address": instruction.address,
        "text": instruction.text,
        "work": work_of(instruction).value,
        "file": line.file if line else None,
        "line": line.number if line else None,
    }
