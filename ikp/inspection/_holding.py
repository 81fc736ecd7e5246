"""``Holding``: splits a range's instructions: those of the kind and lines in its name, and others.

A name of a range in finished machine code says what it does, and at which lines:
``wgmma x4 @matmul.py:93``. Or the kernel's source has a range of that name, which has lines.
Between its clock reads are instructions of that kind and those lines, and others.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import PurePath

from ikp.inspection._record import Record
from ikp.inspection._source import Source
from ikp.probes.points.lines_of import AboutLines, inlined
from ikp.probes.points.naming import original
from ikp.probes.points.sese_regions import Regions
from ikp.probes.points.source_ranges import NamedRange, written
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.outstanding import LoadWait, load_waits
from ikp.sass.disassembly.listing import Line
from ikp.sass.disassembly.opcodes import ISSUED, Landmark, landmark

_NAME = re.compile(
    r"^(?P<what>.*?)(?: x(?P<count>\d{1,9}))?"
    r"(?: @(?P<file>[^:@]+):(?P<lines>[\d+.-]+)(?P<note>.*))?$"
)
_LINES_UNKNOWN = " (line"
"""How the note begins of a product whose own line is not known."""
_KINDS = {
    "wgmma": {Landmark.PRODUCT},
    "mma": {Landmark.PRODUCT},
    "tcgen05.mma": {Landmark.PRODUCT},
    "tcgen05 wait": {Landmark.MBARRIER_WAIT},
    "cp.async": {Landmark.COPY},
    "wgmma wait": {Landmark.PRODUCT_WAIT},
    "cp.async wait": {Landmark.COPY_WAIT},
    "copy wait": {Landmark.COPY_WAIT},
    "wait for all": {Landmark.COPY_WAIT},
    "flag wait": {Landmark.LOAD},
    "TMA store wait": {Landmark.COPY_WAIT},
    **{kind.value: {kind} for kind in Landmark},
}
"""Landmarks that a range holds, by the kind in its name."""
_NOTHING = "all of its lines"
_AROUND = ("loop", "iteration")
_WAITS = {*Landmark} - ISSUED


@dataclass(frozen=True, slots=True)
class RangeInstructions:
    """The instructions of one copy of a range."""

    own: tuple[int, ...]  # instructions of the kind and lines in its name
    others: tuple[int, ...]
    short: str = ""  # words for instructions that its name says and that it lacks

    @classmethod
    def split(
        cls, inside: Iterable[int], own: Collection[int], short: str, awaited: tuple[int, ...] = ()
    ) -> RangeInstructions:
        """Return a range's instructions, of which some are its own; those awaited, if none are."""
        others = tuple(at for at in inside if at not in own)
        return cls(tuple(own) or awaited, others, short)


@dataclass(frozen=True)
class Holding:
    """Splits the instructions that ranges hold in one kernel.

    Args:
        flow: the patched kernel.
        ptx: its PTX.
        ours: the instructions that ikp inserted.
    """

    flow: Flow
    ptx: str
    ours: Collection[int]

    def _inside(self, record: Record) -> list[int]:
        """Return the instructions between a record's clock reads, but for ikp's own."""
        some = {at for span in record.spans for at in span.contents} - {*self.ours}
        return [at for at in sorted(some) if not self.flow.code.instructions[at].never_runs]

    def of(self, name: str, record: Record) -> RangeInstructions | None:
        """Return the instructions of a record's range; None for loops and kernels, of any work.

        Args:
            name: the range's name.
            record: one of its records.
        """
        found = _NAME.match(name)
        if not found or found["what"] in (*_AROUND, self.flow.code.name):
            return None
        inside = self._inside(record)
        if found["what"].startswith("wait for ") and found["what"] not in _KINDS:
            return self._waits(found, record, inside)
        if not found["file"] and (named := self._named_so(found["what"])):
            return self._of_source(named, record, inside)
        kinds = _KINDS.get(found["what"])
        own = [at for at in inside if self._is(at, kinds, found)]
        short = _short(found, len(own), self._awaits(record))
        return RangeInstructions.split(inside, own, short)

    def source(self, name: str) -> Source | None:
        """Return the source lines in a name, or of the source's range of that name."""
        found = _NAME.match(name)
        if found is None or not found["file"]:
            named = self._named_so(found["what"]) if found else []
            alone = named[0] if len(named) == 1 else None
            return Source(alone.file, alone.first, alone.last) if alone else None
        file = next((f for f in self._files if PurePath(f).name == found["file"]), found["file"])
        spans = _lines(found["lines"])
        return Source(file, min(spans)[0], max(last for _, last in spans)) if spans else None

    def _waits(self, found: re.Match[str], record: Record, inside: list[int]) -> RangeInstructions:
        """Return a wait's own loads: its second clock read waits for them, no code between."""
        loads = [at for at in self._awaits(record) if self._is(at, {Landmark.LOAD}, found)]
        short = "" if loads else "no wait for a load of its lines"
        return RangeInstructions(tuple(loads), tuple(inside), short)

    def _named_so(self, what: str) -> list[NamedRange]:
        """Return the ranges of the source that have a name, without ``": ..."`` at its end, too."""
        names = (what, what.rpartition(": ")[0])
        return next((found for name in names if (found := self._written.get(name))), [])

    def _is_in(self, at: int, named: list[NamedRange]) -> bool:
        """Whether an instruction is about a line in one of a source's ranges."""
        lines = [*chain.from_iterable([*self._about.about(at), self._about.own(at)])]
        return any(
            each.within(line.file) and each.first <= line.number <= each.last
            for each in named
            for line in lines
        )

    def _of_source(
        self, named: list[NamedRange], record: Record, inside: list[int]
    ) -> RangeInstructions:
        """Return the instructions of a source's range: of its lines, or loads of them awaited."""
        own = [at for at in inside if self._is_in(at, named)]
        awaited = tuple(at for at in self._awaits(record) if self._is_in(at, named))
        return RangeInstructions.split(inside, own, "" if own or awaited else _NOTHING, awaited)

    def _awaits(self, record: Record) -> tuple[int, ...]:
        """Return the loads that a range's last clock read waits for."""
        ends = {span.end for span in record.spans}
        waits = [self._loads[at] for at in ends if at in self._loads]
        return tuple(load for wait in waits for load in wait.loads)

    def _is(self, at: int, kinds: set[Landmark] | None, found: re.Match[str]) -> bool:
        """Whether an instruction is of one of some kinds, and of the lines in a name."""
        if kinds is not None and landmark(self.flow.code.instructions[at].opcode) not in kinds:
            return False
        if not found["file"] or found["note"].startswith(_LINES_UNKNOWN):
            return True
        if found["lines"].endswith("..."):  # the name lists only some of its lines
            return True
        numbers, spans = self._numbers(at, found["file"]), _lines(found["lines"])
        return any(first <= each <= last for each in numbers for first, last in spans)

    def _numbers(self, at: int, file: str) -> list[int]:
        """Return the lines of a file that an instruction is about."""
        lines = (each for line in self._lines_about(at) for each in (line, original(line)))
        return [each.number for each in lines if PurePath(each.file).name == file]

    def _lines_about(self, at: int) -> Iterator[Line]:
        """Yield the lines that an instruction may be named by."""
        instruction = self.flow.code.instructions[at]
        chains = [*self._about.about(at)]
        if landmark(instruction.opcode) in _WAITS:  # named by their own line in PTX
            chains.append(instruction.lines)
        for line in instruction.lines[:1]:  # the PTX has the callers that line info lacks
            chains += self._inlined.get(line, ())
        return chain.from_iterable(chains)

    @cached_property
    def _inlined(self) -> dict[Line, set[tuple[Line, ...]]]:
        return inlined(self.flow.code, self.ptx)

    @cached_property
    def _about(self) -> AboutLines:
        return AboutLines(self.flow, self.ptx, Regions(self.flow))

    @cached_property
    def _loads(self) -> dict[int, LoadWait]:
        return {wait.at: wait for wait in load_waits(self.flow)}

    @cached_property
    def _written(self) -> dict[str, list[NamedRange]]:
        """The ranges that the source of this kernel's code names."""
        found: dict[str, list[NamedRange]] = {}
        for each in (each for file in self._files for each in written(file)):
            if isinstance(each, NamedRange):
                found.setdefault(each.name, []).append(each)
        return found

    @cached_property
    def _files(self) -> list[str]:
        lines = (line.file for i in self.flow.code.instructions for line in i.lines)
        return list(dict.fromkeys(lines))


_SPAN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def _lines(text: str) -> list[tuple[int, int]]:
    """Return the first and the last lines of ``"17+18"``, ``"17+18+19+..."`` or ``"88-96"``."""
    parts = map(_SPAN.fullmatch, text.strip("+.").split("+"))
    return [(int(part[1]), int(part[2] or part[1])) for part in parts if part]


def _short(found: re.Match[str], own: int, awaits: tuple[int, ...]) -> str:
    """Return words for the instructions that are missing; empty if none are."""
    wanted = int(found["count"] or 1)
    if found["what"] not in _KINDS:  # chosen lines: any of their instructions, or a wait for them
        return "" if own or awaits else _NOTHING
    return "" if own == wanted or (not found["count"] and own) else f"{wanted - own} of {wanted}"
