"""``ikp.inspect``: the ``Report`` on which instructions the ranges of a compiled kernel hold."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any

from ikp.errors import InspectError
from ikp.inspection import _expectations as expectations
from ikp.inspection import _images as ptx_names
from ikp.inspection import _source as source
from ikp.inspection._find_records import find
from ikp.inspection._holding import Holding
from ikp.inspection._images import PtxMarks, codes, images
from ikp.inspection._record import FoundRecords, Record
from ikp.inspection._whereabouts import Places
from ikp.inspection.report import (
    CodeRange,
    Copy,
    Discrepancy,
    InstructionGroup,
    KernelReport,
    Report,
)
from ikp.patterns import dotted
from ikp.plugins import Image
from ikp.printing import Printer, bind
from ikp.ptx.record_insertion import OWN_LINE
from ikp.sass.control_flow.flow import Flow
from ikp.sass.disassembly.listing import Code, Instruction
from ikp.sass.disassembly.opcodes import IDLE, Work, work_of


def inspect(kernel: Any, *, name: str | None = None) -> Report:
    """Return which machine instructions lie between the clock reads of a kernel's ranges.

    No GPU is needed, but NVIDIA's disassembler, ``nvdisasm``, is: it comes with Triton. Where the
    machine code carries line numbers (Triton's and Gluon's does), ranges and instructions are shown
    with theirs.

    Args:
        kernel: a compiled kernel: what a launch returned in Triton and Gluon; in CuTe, what
            ``cute.compile`` returned with its options ``cute.KeepPTX`` and ``cute.KeepCUBIN``. Or a
            path: a ``.cubin`` or ``.ptx`` file, or a directory of such, like Triton's cache. Or a
            trace of kernels with records in their machine code (level="machine"), which says where
            that was kept.
        name: only kernels of this name; a pattern as the shell has them, like ``*gemm*``.

    Returns:
        A report: print it, or look into its kernels, their ranges and warnings.

    Raises:
        InspectError: there is no kernel with ikp's records, or it can't be disassembled.
        UsageError: ``kernel`` is none of the above.
    """
    return report(images(kernel), name, str(kernel) if isinstance(kernel, (str, PathLike)) else "")


def report(found: Iterable[Image], name: str | None = None, where: str = "") -> Report:
    """Return the report on the kernels of some images; see ``inspect``."""
    pattern = dotted(name or "*")
    kernels = []
    seen = summed = 0
    for image in found:
        for code in codes(image):
            if pattern.search(code.name):
                seen += 1
                if ptx_names.keeps_totals(image.ptx):
                    summed += 1
                else:
                    kernels += _kernel(code, image)
    if not kernels:
        raise InspectError(_SUMMED if summed else _none(seen, name, where))
    return Report(tuple(kernels))


def lost_ranges(flow: Flow, found: FoundRecords, marks: PtxMarks, image: Image) -> tuple[str, ...]:
    """Return in words which ranges that a source names lost what they are about, or part of it."""
    if marks.named_by_code:
        return ()
    return _Findings(flow, found, marks, image).lost


def _kernel(code: Code, image: Image) -> list[KernelReport]:
    """Return the findings for one kernel; none if nothing is recorded in it."""
    flow = Flow(code)
    found = find(flow)
    read = ptx_names.read_marks(image.ptx)
    if not found.records and not found.unresolved and code.name != read.kernel:
        return []
    return [_Findings(flow, found, read, image).kernel()]


@dataclass(frozen=True)
class _Findings:
    """Turns what was found in one kernel into its part of the report."""

    flow: Flow
    found: FoundRecords
    marks: PtxMarks
    image: Image

    def kernel(self) -> KernelReport:
        """Return it."""
        code = self.flow.code
        at = set(range(len(code.instructions)))
        outside = {i for i in at - self._held.keys() - self._own if self._works(i)}
        return KernelReport(
            code.name,
            code.target,
            self.image.origin,
            code.instructions,
            tuple(self._ranges),
            self._places.groups(outside),
            tuple(self._warnings()),
            tuple(self._problems()),
            self._notes(),
        )

    @property
    def lost(self) -> tuple[str, ...]:
        """What ranges that a source names have lost of what they are about, a line each."""
        return tuple(dict.fromkeys(one.lost for one in self._warnings() if one.lost))

    @cached_property
    def _holding(self) -> Holding | None:
        """What ranges hold of what they name, where the code alone names them."""
        return Holding(self.flow, self.image.ptx, self._own) if self.marks.named_by_code else None

    @cached_property
    def _records(self) -> dict[tuple[str, str, source.Source | None], list[Record]]:
        """The records of each range of the source, in the order of their first stores."""
        groups: dict[tuple[str, str, source.Source | None], list[Record]] = defaultdict(list)
        for record in self.found.records:
            first = record.spans[0]
            kind = ptx_names.kind(record.tag, instant=first.start == first.end)
            groups[self.marks.name(record.tag), kind, self._source(record)].append(record)
        return groups

    @cached_property
    def _ranges(self) -> list[CodeRange]:
        return [
            CodeRange(*key, copies=tuple(map(self._copy, records)))
            for key, records in self._records.items()
        ]

    def _source(self, record: Record) -> source.Source | None:
        if self._holding is not None:
            return self._holding.source(self.marks.name(record.tag))
        instructions = self.flow.code.instructions
        span = record.spans[-1]
        return source.between(instructions[span.start], instructions[span.end])

    def _copy(self, record: Record) -> Copy:
        instructions = self.flow.code.instructions
        contents = {i for span in record.spans for i in span.contents} - self._own
        held = self._holding.of(self.marks.name(record.tag), record) if self._holding else None
        return Copy(
            tuple(sorted({instructions[span.start].address for span in record.spans})),
            tuple(sorted({instructions[span.end].address for span in record.spans})),
            instructions[record.store].address,
            tuple(instructions[i] for i in sorted(contents)),
            None if held is None else len(held.own),
        )

    @cached_property
    def _reads(self) -> set[int]:
        """The clock reads of all records."""
        spans = (span for record in self.found.records for span in record.spans)
        return {at for span in spans for at in (span.start, span.end)}

    @cached_property
    def _own(self) -> set[int]:
        """The clock reads and stores of all records, and what else is known to be put in."""
        stores = {at for record in self.found.records for at in record.stores}
        addresses = enumerate(each.address for each in self.flow.code.instructions)
        ours = self.marks.ours
        put_in = {i for i, at in addresses if any(first <= at < last for first, last in ours)}
        added = {i for i, each in enumerate(self.flow.code.instructions) if _is_ours(each)}
        return self._reads | stores | put_in | added | {*self.found.published}

    @cached_property
    def _held(self) -> dict[int, tuple[str, ...]]:
        """The ranges that hold each instruction, the innermost (shortest) first."""
        names: dict[int, dict[str, int]] = defaultdict(dict)
        for (name, _, _), records in self._records.items():
            for record in records:
                for span in record.spans:
                    for i in span.contents:
                        names[i].setdefault(name, len(span.contents))
        return {i: tuple(sorted(sizes, key=sizes.__getitem__)) for i, sizes in names.items()}

    @cached_property
    def _places(self) -> Places:
        reads = {
            i: name
            for (name, _, _), records in self._records.items()
            for record in records
            for span in record.spans
            for i in (span.start, span.end)
        }
        return Places(self.flow, reads, self._held)

    def _warnings(self) -> list[Discrepancy]:
        if self._holding is not None:
            return self._not_held(self._holding)
        return [
            w
            for found in self._ranges
            for w in expectations.check(found, _OutsideOfRange(self, found))
        ]

    def _not_held(self, holding: Holding) -> list[Discrepancy]:
        """Say which ranges don't hold what they name."""
        ranges = zip(self._ranges, self._records.items(), strict=True)
        return [
            Discrepancy(found, f"{found.label} lacks {held.short} of what its name says.")
            for found, ((name, _, _), records) in ranges
            for record in records
            if (held := holding.of(name, record)) and held.short
        ]

    def outside(self, found: CodeRange, kinds: Iterable[Work]) -> list[int]:
        """Return the kernel's own instructions of some kinds that a range doesn't hold.

        What another range of the same lines holds is that one's: a helper may be named by its
        caller.
        """
        inside = {i.address for copy in found.copies for i in copy.instructions}
        wanted, others = frozenset(kinds), self._of_the_same_lines(found)
        return [
            at
            for at, instruction in enumerate(self.flow.code.instructions)
            if work_of(instruction) in wanted
            and instruction.address not in inside
            and at not in self._own
            and others.isdisjoint(self._held.get(at, ()))
        ]

    def _of_the_same_lines(self, found: CodeRange) -> set[str]:
        if not found.source:
            return set()
        same = {each.name for each in self._ranges if each.source == found.source}
        return same - {found.name}

    def groups(self, at: Iterable[int]) -> tuple[InstructionGroup, ...]:
        """Return instructions by kind and place."""
        return self._places.groups(at)

    def depth(self, found: CodeRange) -> int:
        """Return in how many loops a range is: its deepest copy."""
        starts = {address for copy in found.copies for address in copy.starts}
        every = enumerate(self.flow.code.instructions)
        return max(self.loops(at) for at, each in every if each.address in starts)

    def loops(self, at: int) -> int:
        """Return in how many loops an instruction is."""
        return len(self.flow.loops_around(at))

    def _works(self, at: int) -> bool:
        return work_of(self.flow.code.instructions[at]) not in IDLE

    def _problems(self) -> list[str]:
        """Say what was not found or not understood."""
        instructions = self.flow.code.instructions
        problems = [
            f"the start of the record stored at {instructions[at].address:#x} was not found: its "
            "range is missing here. Please report this with the kernel's .cubin file."
            for at in self.found.unresolved
        ]
        problems += [
            f"the clock read at {_at(instructions[at])} belongs to no record: a range that is "
            "never ended, or a clock read of the kernel's own."
            for at in self.found.clocks
            if at not in self._reads
        ]
        problems += [
            f'no record of "{name}" is in the machine code, though the PTX has one: the '
            "assembler found that it can't be reached, or another kernel of the file holds it."
            for name in self._without_record()
        ]
        other = {i.op for i in instructions if work_of(i) is Work.OTHER}
        if other:
            problems.append(f"opcodes that ikp doesn't know, counted as other: {sorted(other)}.")
        return problems

    def _without_record(self) -> list[str]:
        """Return the names that the PTX has and no record of the machine code, if all are known."""
        stored = {record.tag for record in self.found.records}
        if None in stored:
            return []
        return [name for tag, name in self.marks.tags.items() if tag not in stored]

    def _notes(self) -> tuple[str, ...]:
        notes = list(self.image.notes)
        if not self.flow.code.has_lines:
            notes.append("the machine code has no line numbers: ranges are known by name only.")
        if not self.marks.names and any(r.tag is not None for r in self.found.records):
            notes.append("no PTX with this kernel's names was found beside it: names are ids.")
        return tuple(notes)


@dataclass(frozen=True)
class _OutsideOfRange:
    """Says where instructions are that a range was expected to hold."""

    findings: _Findings
    found: CodeRange

    def __call__(
        self, kinds: Iterable[Work], *, own_lines: bool = False, as_often: bool = False
    ) -> tuple[InstructionGroup, ...]:
        findings, source = self.findings, self.found.source
        instructions = findings.flow.code.instructions
        others = findings.outside(self.found, kinds)
        if as_often:
            least = findings.depth(self.found)
            others = [at for at in others if findings.loops(at) >= least]
        of_its_lines = [at for at in others if source and source.holds(instructions[at])]
        return findings.groups(of_its_lines or ([] if own_lines else others))

    def strayed(self, written: re.Pattern[str]) -> tuple[InstructionGroup, ...]:
        findings, instructions = self.findings, self.findings.flow.code.instructions
        least = findings.depth(self.found)
        return findings.groups(
            at
            for at in findings.outside(self.found, (Work.COPY,))
            if instructions[at].op in expectations.ASYNC_LOADS
            and findings.loops(at) >= least
            and any(source.calls_none(line, written) for line in instructions[at].lines[:1])
        )


def _is_ours(instruction: Instruction) -> bool:
    """Whether line info says that an instruction is a record's, put into a kernel's PTX."""
    return any(line.number == OWN_LINE for line in instruction.lines)


def _at(instruction: Instruction) -> str:
    lines = source.lines_of([instruction])
    return f"{instruction.address:#x}" + (f" ({lines})" if lines else "")


_SUMMED = (
    "this kernel keeps totals (mode='totals'): it sums up clock reads in registers, and has no "
    "record of a range by which they could be found. Inspect the same kernel compiled for a "
    "timeline."
)


def _none(seen: int, name: str | None, where: str) -> str:
    place = f" in {where}" if where else ""
    if not seen and name:
        return f"no kernel{place} has a name that matches {name!r}."
    return (
        f"no kernel{place} records anything: it was compiled with None for its buffer, or without "
        "ikp. Launch it with prof.buffer(label) and inspect that compilation."
    )


def _of_report() -> Printer:
    from ikp.inspection.render import as_rich, as_text

    return Printer(as_text, as_rich)


bind("ikp.inspection.report.Report", _of_report)
