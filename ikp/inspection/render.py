"""A report of ``ikp inspect`` as text for a terminal, and the instructions of one range."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ikp.inspection._source import lines_of
from ikp.inspection.report import (
    CodeRange,
    Copy,
    Discrepancy,
    InstructionGroup,
    KernelReport,
    Report,
)
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.opcodes import IDLE, Work, opcodes, work_of
from ikp.terminal import Column, columns, lay_out, printable, shortened

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

_FIXED = ("range", "source", "copies", "instructions")
_NAMED = "as named"
_MAIN = (
    Work.TENSOR,
    Work.COPY,
    Work.LOAD,
    Work.STORE,
    Work.ATOMIC,
    Work.LOCAL,
    Work.WAIT,
    Work.BARRIER,
)
"""What is listed where it is in no range; JSON has every kind."""
_COUNTS_NOTE = (
    "counts: instructions in the code, per copy of a range; one in a loop runs many times. "
    "Integer instructions and jumps are in the first number only."
)
_NAMED_NOTE = (
    "as named: how many of them are what the range's name says, by kind and by line; of a wait for "
    "loads, the loads that its second clock read waits for. The others are other lines' code that "
    "the compiler has put between."
)


def as_text(report: Report, wide: int | None = None) -> str:
    """Return the report as aligned plain text.

    Without ``wide``, it fits the terminal that stdout is; elsewhere it is as wide as it gets.
    """
    wide = wide or columns()
    return "\n\n".join("\n".join(line for line, _ in _lines(k, wide)) for k in report)


def as_rich(report: Report) -> RenderableType:
    """Return what rich prints: the same lines, in colour, as wide as its console is."""
    return _Rich(report)


@dataclass(frozen=True, slots=True)
class _Rich:
    report: Report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        for kernel in self.report:
            for line, style in _lines(kernel, options.max_width):
                yield Text(line, style, overflow="fold")
            yield Text()


def listing(found: CodeRange) -> str:
    """Return the instructions of each copy of a range, with their kinds and lines."""
    blocks = [_copy_listing(found, number, copy) for number, copy in enumerate(found.copies, 1)]
    return "\n\n".join(blocks)


def _lines(kernel: KernelReport, wide: int | None) -> Iterator[tuple[str, str]]:
    """Yield what is said of a kernel, line by line, and each one's style."""
    header, *rows = _cells(kernel)
    shape = [Column(title, int(title == "copies"), title in _FIXED[:2]) for title in header]
    head, lines = lay_out(shape, rows, wide)
    title, origin = _head(kernel)
    yield printable(title), "bold"
    yield printable(origin), "dim"
    yield "", ""
    yield head, "bold"
    yield "-" * (wide or max(map(len, [head, *lines]))), "dim"
    yield from ((line, "") for line in lines)
    yield "", ""
    yield from ((printable(line), _style(line)) for line in _below(kernel))


def _style(line: str) -> str:
    return "yellow" if line.startswith(("warning:", "unknown:")) else ""


def _head(kernel: KernelReport) -> tuple[str, str]:
    ranges = sum(found.kind == "range" for found in kernel.ranges)
    size = len(kernel.instructions)
    return f"{kernel.name} ({kernel.target}): {ranges} ranges in {size} instructions", kernel.origin


def _is_judged(kernel: KernelReport) -> bool:
    """Whether any range was held against what its name says."""
    return any(copy.named is not None for found in kernel.ranges for copy in found.copies)


def _below(kernel: KernelReport) -> list[str]:
    """Return what comes under the table."""
    lines = [
        _COUNTS_NOTE,
        *([_NAMED_NOTE] if _is_judged(kernel) else []),
        *(f"note: {note}" for note in kernel.notes),
    ]
    for warning in kernel.warnings:
        lines += ["", *_warning(warning)]
    for problem in kernel.problems:
        lines += ["", f"unknown: {problem}"]
    outside = [group for group in kernel.outside if group.work in _MAIN]
    return [*lines, "", "In no range:", *map(_group, outside)] if outside else lines


def _warning(warning: Discrepancy) -> list[str]:
    return [f"warning: {warning}", *map(_group, warning.elsewhere)]


def _group(group: InstructionGroup) -> str:
    lines = lines_of(list(group.instructions))
    return f"  {opcodes(group.instructions)}{f' ({lines})' if lines else ''}: {group.place}"


def _cells(kernel: KernelReport) -> list[list[str]]:
    """Return the table's header and rows. A column for each kind of work that there is."""
    kinds = [
        work
        for work in Work
        if work not in IDLE and any(found.holds(work) for found in kernel.ranges)
    ]
    judged = any(copy.named is not None for found in kernel.ranges for copy in found.copies)
    rows = [_row(found, kinds, judged=judged) for found in kernel.ranges]
    named = [_NAMED] if judged else []
    return [[*_FIXED, *named, *(work.value for work in kinds)], *rows]


def _row(found: CodeRange, kinds: list[Work], *, judged: bool) -> list[str]:
    sizes = [len(copy.instructions) for copy in found.copies]
    name = shortened(found.name)
    counts = [found.counts(work) for work in kinds]
    named = [copy.named for copy in found.copies if copy.named is not None]
    own = [_between(min(named), max(named)) if named else ""] if judged else []
    return [
        name if found.kind == "range" else f"{name} ({found.kind})",
        printable(str(found.source or "")),
        str(len(found.copies)),
        _between(min(sizes), max(sizes)),
        *own,
        *(_between(*pair) for pair in counts),
    ]


def _between(least: int, most: int) -> str:
    if least == most:
        return str(most) if most else "-"
    return f"{least} to {most}"


def _copy_listing(found: CodeRange, number: int, copy: Copy) -> str:
    of = f", copy {number} of {len(found.copies)}" if len(found.copies) > 1 else ""
    starts, ends = (", ".join(map(hex, at)) for at in (copy.starts, copy.ends))
    head = (
        f"{found.label}{of}: start read at {starts}, end read at {ends}, stored at {copy.store:#x}"
    )
    return "\n".join(map(printable, [head, *map(_instruction_line, copy.instructions)]))


def _instruction_line(instruction: Instruction) -> str:
    work = work_of(instruction)
    kind = "" if work in IDLE else work.value
    lines = lines_of([instruction])
    return f"  {instruction.address:05x}  {kind:<14} {instruction.text:<64} {lines}".rstrip()
